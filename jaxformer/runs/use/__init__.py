"""Opened runs: their methods, and conversion."""
