"""Sharding of each parameter over a mesh, by rules on parameter paths.

The library's rules split the axis "tensor" as Megatron-LM does (heads, the inner width of
feed-forward layers, the vocabulary), the other dimension of every large kernel over "fsdp", and the
experts of mixtures over "expert".
Parameters that no rule matches, such as norms, are replicated.
"""

import fnmatch
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
from jax.sharding import PartitionSpec

from jaxformer.config import MeshRule
from jaxformer.errors import ConfigError
from jaxformer.training.state import TrainState

_INTO_HEADS = ("fsdp", "tensor")  # kernels [..., D, N*H] and [..., D, F]
_OUT_OF_HEADS = ("tensor", "fsdp")  # kernels [..., N*H, D] and [..., F, D]

RULES = (
    *(MeshRule(path=f"*{name}_kernel", axes=_INTO_HEADS) for name in ("query", "key", "value")),
    *(MeshRule(path=f"*{name}_bias", axes=("tensor",)) for name in ("query", "key", "value")),
    MeshRule(path="*attention/output_kernel", axes=_OUT_OF_HEADS),
    *(MeshRule(path=f"*{name}_kernel", axes=_INTO_HEADS) for name in ("gate", "up")),
    *(MeshRule(path=f"*{name}_bias", axes=("tensor",)) for name in ("gate", "up")),
    MeshRule(path="*down_kernel", axes=_OUT_OF_HEADS),
    # "?" = split only if divisible, which vocabularies rarely are.
    MeshRule(path="*embedding/*embedding", axes=("tensor?", "fsdp")),
)
"""The library's rules, in order; the first that matches a path applies."""

EXPERT_RULES = tuple(
    MeshRule(path=rule.path, axes=("expert", *rule.axes))
    for rule in (*RULES, MeshRule(path="*down_bias", axes=("",)))
    if rule.path.startswith(("*gate_", "*up_", "*down_"))
)
"""Rules before those, for the parameters `[..., E, ...]` of a layer that has a router."""


def partition_specs(tree: Any, rules: tuple[MeshRule, ...], sizes: Mapping[str, int]) -> Any:
    """PartitionSpec of every leaf of a pytree of parameters, or of a `TrainState`."""
    # Optimizer state with the shape of its parameter is split like it; the rest is replicated.
    leaves = _params_by_path(tree)
    specs = {}
    for keys, leaf in leaves.items():
        is_of_experts = (*keys[:-1], "router_kernel") in leaves
        all_rules = (*rules, *(EXPERT_RULES if is_of_experts else ()), *RULES)
        specs[keys] = _spec("/".join(keys), leaf.shape, all_rules, sizes)

    def spec_of(path: tuple[Any, ...], leaf: Any) -> PartitionSpec:
        keys = _keys(path)
        for start in range(len(keys) + 1):  # the longest suffix first
            suffix = keys[start:]
            if suffix in leaves and leaves[suffix].shape == leaf.shape:
                return specs[suffix]
        return PartitionSpec()

    return jax.tree_util.tree_map_with_path(spec_of, tree)


def bytes_per_device(
    tree: Any, rules: tuple[MeshRule, ...], sizes: Mapping[str, int], *other_params: Any
) -> int:
    """Bytes of a pytree on each device of a mesh; rules may also match `other_params`."""

    def num_bytes(leaf: Any, spec: PartitionSpec) -> int:
        parts = math.prod(sizes[axis] for axis in spec if axis is not None)
        return math.prod(leaf.shape) // parts * leaf.dtype.itemsize

    check_rules((tree, *other_params), rules)
    specs = partition_specs(tree, rules, sizes)
    return sum(jax.tree.leaves(jax.tree.map(num_bytes, tree, specs)))


def check_rules(trees: Iterable[Any], rules: Iterable[MeshRule]) -> None:
    """Raises ConfigError if a user's rule matches no parameter of the pytrees of a model."""
    paths = ["/".join(keys) for tree in trees for keys in _params_by_path(tree)]
    for rule in rules:
        if not any(fnmatch.fnmatchcase(path, rule.path) for path in paths):
            raise ConfigError(
                f"mesh.rules has {rule.path!r}, which matches no parameter; the paths are "
                f"{', '.join(paths[:8])}{' and more' if len(paths) > 8 else ''}"
            )


def _params_by_path(tree: Any) -> dict[tuple[str, ...], Any]:
    params = tree.params if isinstance(tree, TrainState) else tree
    return {_keys(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}


def _keys(path: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)


def _spec(
    path: str, shape: tuple[int, ...], rules: tuple[MeshRule, ...], sizes: Mapping[str, int]
) -> PartitionSpec:
    """PartitionSpec of one parameter, from the first rule that matches its path."""
    matching = (rule for rule in rules if fnmatch.fnmatchcase(path, rule.path))
    rule = next(matching, None)
    if rule is None:
        return PartitionSpec()
    if len(rule.axes) > len(shape):
        raise ConfigError(
            f"the mesh rule for {rule.path!r} has {len(rule.axes)} axes, {list(rule.axes)}, but "
            f"matches {path}, whose shape is {list(shape)}; give it at most {len(shape)} axes"
        )
    split: list[str | None] = [None] * (len(shape) - len(rule.axes))
    for size, word in zip(shape[len(split) :], rule.axes, strict=True):
        axis = word.removesuffix("?")
        divides = not axis or size % sizes[axis] == 0
        if not divides and word == axis:
            axes = ", ".join(f'"{"" if name == axis else name}"' for name in rule.axes)
            raise ConfigError(
                f"mesh.{axis}={sizes[axis]} must divide each dimension that is split over it, got "
                f"{size} of {path} {list(shape)}; change one of them, or add to mesh.rules "
                f'{{ path = "{rule.path}", axes = [{axes}] }}'
            )
        split.append(axis if axis and divides and sizes[axis] > 1 else None)
    while split and split[-1] is None:  # XLA's form, so that a step's output has its input's spec
        split.pop()
    return PartitionSpec(*split)
