"""How far two arrays are apart, and how many numbers a model has."""

from typing import Any

import jax
import numpy as np

__all__ = ["count_numbers", "largest_difference"]


def largest_difference(a: Any, b: Any) -> float:
    """How far two arrays are from each other where they differ the most.

    Example:
        >>> largest_difference([1.0, 5.0], [1.5, 3.0])
        2.0
    """
    return float(np.abs(np.subtract(a, b)).max())


def count_numbers(params: Any) -> int:
    """How many numbers a pytree of arrays, or of their shapes, holds.

    Example:
        >>> count_numbers({"kernel": np.zeros((2, 3)), "bias": np.zeros(3)})
        9
    """
    return sum(leaf.size for leaf in jax.tree.leaves(params))
