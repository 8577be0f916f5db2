"""Sparse mixture of experts: route, sort, group, compute, combine."""
