"""Sharding of each parameter over a mesh, by rules on parameter paths.

The library's rules split the axis "tensor" as Megatron-LM does (heads, the inner width of
feed-forward layers, the vocabulary), the other dimension of every large kernel over "fsdp", and the
experts of mixtures over "expert".
Parameters that no rule matches, such as norms, are replicated. Own rules are for loops of your own,
by the logical names of the axes.
"""

import fnmatch
import math
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import PartitionSpec

from jaxformer.errors import ConfigError
from jaxformer.training.state import TrainState

_INTO_HEADS = ("fsdp", "tensor")  # kernels [..., D, N*H] and [..., D, F]
_OUT_OF_HEADS = ("tensor", "fsdp")  # kernels [..., N*H, D] and [..., F, D]

RULES = {
    **dict.fromkeys(("*query_kernel", "*key_kernel", "*value_kernel"), _INTO_HEADS),
    **dict.fromkeys(("*query_bias", "*key_bias", "*value_bias"), ("tensor",)),
    "*attention/output_kernel": _OUT_OF_HEADS,
    **dict.fromkeys(("*gate_kernel", "*up_kernel"), _INTO_HEADS),
    **dict.fromkeys(("*gate_bias", "*up_bias"), ("tensor",)),
    "*down_kernel": _OUT_OF_HEADS,
    # "?" = split only if divisible, which vocabularies rarely are.
    "*embedding/*embedding": ("tensor?", "fsdp"),
}
"""Mesh axes of the last dimensions of parameters, by pattern of paths; the first match applies."""

EXPERT_RULES = {
    path: ("expert", *axes)
    for path, axes in (RULES | {"*down_bias": ("",)}).items()
    if path.startswith(("*gate_", "*up_", "*down_"))
}
"""Rules in place of those, for the parameters `[..., E, ...]` of a layer that has a router."""


def partition_specs(tree: Any, sizes: Mapping[str, int]) -> Any:
    """PartitionSpec of every leaf of a pytree of parameters, or of a `TrainState`."""
    # Optimizer state with the shape of its parameter is split like it; the rest is replicated.
    leaves = _params_by_path(tree)
    specs = {}
    for keys, leaf in leaves.items():
        is_of_experts = (*keys[:-1], "router_kernel") in leaves
        rules = RULES | EXPERT_RULES if is_of_experts else RULES
        specs[keys] = _spec("/".join(keys), leaf.shape, rules, sizes)

    def spec_of(path: tuple[Any, ...], leaf: Any) -> PartitionSpec:
        keys = _keys(path)
        for start in range(len(keys) + 1):  # the longest suffix first
            suffix = keys[start:]
            if suffix in leaves and leaves[suffix].shape == leaf.shape:
                return specs[suffix]
        return PartitionSpec()

    return jax.tree_util.tree_map_with_path(spec_of, tree)


def bytes_per_device(tree: Any, sizes: Mapping[str, int]) -> int:
    """Bytes of a pytree on each device of a mesh."""

    def num_bytes(leaf: Any, spec: PartitionSpec) -> int:
        parts = math.prod(sizes[axis] for axis in spec if axis is not None)
        return math.prod(leaf.shape) // parts * leaf.dtype.itemsize

    return sum(jax.tree.leaves(jax.tree.map(num_bytes, tree, partition_specs(tree, sizes))))


def _params_by_path(tree: Any) -> dict[tuple[str, ...], Any]:
    params = tree.params if isinstance(tree, TrainState) else tree
    return {_keys(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}


def _keys(path: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)


def _spec(
    path: str,
    shape: tuple[int, ...],
    rules: Mapping[str, tuple[str, ...]],
    sizes: Mapping[str, int],
) -> PartitionSpec:
    """PartitionSpec of one parameter, from the first rule that matches its path."""
    matching = (axes for pattern, axes in rules.items() if fnmatch.fnmatchcase(path, pattern))
    axes = next(matching, ())
    if len(axes) > len(shape):  # of a layer of the user's own
        return PartitionSpec()
    split: list[str | None] = [None] * (len(shape) - len(axes))
    for size, word in zip(shape[len(split) :], axes, strict=True):
        axis = word.removesuffix("?")
        divides = not axis or size % sizes[axis] == 0
        if not divides and word == axis:
            raise ConfigError(
                f"mesh.{axis}={sizes[axis]} must divide each dimension that is split over it, got "
                f"{size} of {path} {list(shape)}; change one of them"
            )
        split.append(axis if axis and divides and sizes[axis] > 1 else None)
    while split and split[-1] is None:  # XLA's form, so that a step's output has its input's spec
        split.pop()
    return PartitionSpec(*split)
