"""Shapes of a model's parameters, without the parameters."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

__all__ = ["init_shapes"]


def init_shapes(model: nn.Module, *inputs: jax.ShapeDtypeStruct) -> Any:
    """Shapes and dtypes of a model's parameters, from tracing its `init`; nothing is computed.

    Tracing takes a good part of a second, so what it finds is remembered, by the model's fields.

    Args:
        model: of any size; where its layers run as a scan, the time does not grow with them.
        inputs: shapes and dtypes of what the model is called with.

    Returns:
        Nested dict of `jax.ShapeDtypeStruct`, the caller's to change.

    Example:
        >>> import jax.numpy as jnp
        >>> shapes = init_shapes(nn.Dense(3), jax.ShapeDtypeStruct((1, 2), jnp.float32))
        >>> shapes["kernel"].shape, shapes["bias"].shape
        ((2, 3), (3,))
    """
    # A model of the user's may have fields that are not hashable, which only decoding refuses.
    trace = _trace if _is_hashable(model) else _trace.__wrapped__
    # Where jax_enable_x64 is set, dtypes differ: the default of a float tells.
    return jax.tree.map(lambda leaf: leaf, trace(model, inputs, jnp.result_type(float)))


@functools.lru_cache(maxsize=32)
def _trace(model: nn.Module, inputs: tuple[jax.ShapeDtypeStruct, ...], _float_dtype: Any) -> Any:
    rng = jax.eval_shape(lambda: jax.random.key(0))
    return jax.eval_shape(model.init, rng, *inputs)["params"]


def _is_hashable(model: nn.Module) -> bool:
    try:
        hash(model)
    except TypeError:
        return False
    return True
