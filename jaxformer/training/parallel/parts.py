"""Sums over the tokens of a batch that a mesh splits: each device sums over its own part."""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec

from jaxformer.functional.sharding import automatic_axes

__all__ = ["BATCH_SPEC", "ROW_AXES", "num_parts", "sum_over_parts"]

ROW_AXES = ("data", "fsdp")
"""Mesh axes that split the rows of a batch."""

BATCH_SPEC = PartitionSpec(ROW_AXES, "sequence")
"""Sharding of an array `[B, T, ...]` of a batch."""


def num_parts() -> int:
    """Number of devices that share the traced program; 1 without a mesh."""
    return math.prod(automatic_axes().values())


def sum_over_parts(
    function: Callable[..., Any], hidden: jax.Array, table: jax.Array, labels: jax.Array,
    *others: jax.Array,
) -> Any:  # fmt: skip
    """Calls a function on each device's tokens, and sums the results over devices.

    Left to itself, XLA would sum the gradient of the table over devices after every chunk of
    tokens, and gather the tokens to split them into chunks.

    Args:
        function: function of (hidden, table, labels, *others) that returns a pytree of sums over
            the tokens.
        hidden: float `[B, T, D]`.
        table: float `[V, D]`.
        labels: integer `[B, T]`.
        *others: replicated arrays, such as a bias `[V]`.

    Returns:
        The sums; without a mesh, the result of the function.
    """
    axes = {*ROW_AXES, "sequence"} & automatic_axes().keys()
    if not axes:
        return function(hidden, table, labels, *others)

    def own_part(*arrays: jax.Array) -> Any:
        return jax.lax.psum(function(*arrays), tuple(sorted(axes)))

    rows = tuple(axis for axis in ROW_AXES if axis in axes)
    split = PartitionSpec(rows, "sequence" if "sequence" in axes else None)
    return jax.shard_map(
        own_part, in_specs=(split, PartitionSpec(), split, *[PartitionSpec()] * len(others)),
        out_specs=PartitionSpec(), axis_names=axes,
    )(hidden, table, labels, *others)  # fmt: skip
