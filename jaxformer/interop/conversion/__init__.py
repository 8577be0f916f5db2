"""Conversion of configs and weights: the tables that a model family consists of."""
