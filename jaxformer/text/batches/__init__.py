"""Sequences of one length or of several to batches: a pure function of (seed, step)."""
