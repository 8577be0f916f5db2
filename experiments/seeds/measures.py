"""Largest difference of two arrays, and number of parameters."""

from typing import Any

import jax
import numpy as np

__all__ = ["count_numbers", "largest_difference"]


def largest_difference(a: Any, b: Any) -> float:
    """Largest absolute difference of two arrays.

    Example:
        >>> largest_difference([1.0, 5.0], [1.5, 3.0])
        2.0
    """
    return float(np.abs(np.subtract(a, b)).max())


def count_numbers(params: Any) -> int:
    """Number of elements in a pytree of arrays, or of their shapes.

    Example:
        >>> count_numbers({"kernel": np.zeros((2, 3)), "bias": np.zeros(3)})
        9
    """
    return sum(leaf.size for leaf in jax.tree.leaves(params))
