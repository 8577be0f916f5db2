"""Variables of single layers, out of those that a stack has for all its layers."""

from typing import Any

import jax
import numpy as np
from einops import rearrange

GROUPS = ("first_layers", "layers")
"""Names of the stacked parameters."""


def layer_variables(variables: Any, start: int, stop: int) -> list[Any]:
    """Variables of each layer from `start` on, stacked or from `split_layers`."""
    leaves, tree = jax.tree.flatten(variables, is_leaf=_is_split)
    if not leaves or start == stop:
        return [variables] * (stop - start)
    parts = [leaf[start:] if start else leaf for leaf in leaves]
    parts = [part if _is_split(part) else _split(part) for part in parts]
    return [jax.tree.unflatten(tree, list(layer)) for layer in zip(*parts, strict=True)]


def _is_split(leaf: Any) -> bool:
    return isinstance(leaf, tuple)


def _split(leaf: jax.Array) -> tuple[jax.Array, ...]:
    # The gradient of lax.split is one concatenation. The gradient of indexing would be a sum of
    # arrays as large as the stack, one per layer.
    parts = jax.lax.split(leaf, (1,) * leaf.shape[0])
    return tuple(rearrange(part, "1 ... -> ...") for part in parts)


def split_layers(params: Any) -> Any:
    """Splits stacked parameters on a CPU: a tuple per array in a "stack", which a loop accepts."""
    # Decoding reads all parameters for every token. On a CPU, slicing them out of a stack each time
    # is 2.6 times slower (measured), and layers share the stack's memory. Elsewhere each would be
    # a copy.
    on_host = all(_is_on_one_cpu(leaf) for leaf in jax.tree.leaves(params))
    return _split_stacks(params) if on_host else params


def _split_stacks(params: Any, in_stack: bool = False) -> Any:
    if not isinstance(params, dict):
        return params
    return {
        name: jax.tree.map(_views, inner)
        if in_stack and name in GROUPS
        else _split_stacks(inner, in_stack=name.lower().startswith("stack"))
        for name, inner in params.items()
    }


def _is_on_one_cpu(leaf: Any) -> bool:
    if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
        return False
    devices: set[jax.Device] = leaf.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "cpu"


def _views(leaf: jax.Array) -> tuple[jax.Array, ...]:
    # On CPU, NumPy views the array without a copy, and so does device_put if it is aligned.
    device = leaf.sharding if leaf.committed else None
    return tuple(jax.device_put(part, device) for part in np.asarray(leaf))
