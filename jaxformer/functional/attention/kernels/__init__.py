"""Fused kernels of accelerators, for the calls that they support."""
