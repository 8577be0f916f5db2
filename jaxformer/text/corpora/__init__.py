"""Corpora: records of files or in memory, split, and encoded into a store."""
