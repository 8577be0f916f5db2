"""Programs that are traced once and compiled differently per platform."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir

from jaxformer.errors import ConfigError

OTHERS = "rocm"
"""Any platform without its own entry in `PLATFORMS`."""

PLATFORMS = ("cpu", "cuda", "tpu", OTHERS)

Result = TypeVar("Result")

_compiled_for: contextvars.ContextVar[str | None] = contextvars.ContextVar("platform", default=None)


@contextlib.contextmanager
def compiling_for(platform: str) -> Iterator[None]:
    """Traces as where a platform is the default backend, for devices that need not be present."""
    token = _compiled_for.set(platform)
    try:
        yield
    finally:
        _compiled_for.reset(token)


def default_platform() -> str:
    """Name of the default backend, "cuda" or "rocm" for a GPU."""
    if (compiled_for := _compiled_for.get()) is not None:
        return compiled_for
    backend = jax.default_backend()
    if backend != "gpu":
        return backend
    return "cuda" if "cuda" in jax.devices()[0].client.platform_version else "rocm"


def jit_with_numbers(function: Callable[..., Result]) -> Callable[..., Result]:
    """Compiles a function of (pytree, PRNG key, *hashable options) with static Python numbers."""

    # Attention skips blocks by them. An eager call of equal shapes and numbers compiles only once.
    @functools.partial(jax.jit, static_argnums=(0, 1, 2))
    def compiled(
        tree: Any, numbers: tuple[float | None, ...], options: tuple, arrays: list[jax.Array | None]
    ) -> Result:
        leaves = [a if n is None else n for a, n in zip(arrays, numbers, strict=True)]
        return function(*jax.tree.unflatten(tree, leaves), *options)

    @functools.wraps(function)
    def call(inputs: Any, dropout_rng: jax.Array | None, *options: Any) -> Result:
        leaves, tree = jax.tree.flatten((inputs, dropout_rng))
        numbers = tuple(None if isinstance(leaf, jax.Array) else leaf for leaf in leaves)
        arrays = [leaf if isinstance(leaf, jax.Array) else None for leaf in leaves]
        return compiled(tree, numbers, options, arrays)

    return call


def by_platform(functions: Mapping[str, Callable[[], Result]]) -> Result:
    """Calls the function for the platform that the program is compiled for, one of `PLATFORMS`."""
    # That may not be the default backend's: with `jax.export`, or for the devices of the arrays.
    # All functions are traced, and all but one are dropped during lowering.
    default = functions[OTHERS]
    specific = {name: function for name, function in functions.items() if function is not default}
    return jax.lax.platform_dependent(default=default, **specific)


def refuse(message: str, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Stands for an array of a program that cannot be compiled: lowering it raises ConfigError."""
    return _REFUSAL.bind(message=message, shape=shape, dtype=dtype)


def _raise_refusal(context: mlir.LoweringRuleContext, *, message: str, **_: Any) -> NoReturn:
    raise ConfigError(message)


_REFUSAL = Primitive("refusal")
_REFUSAL.def_abstract_eval(lambda *, shape, dtype, **_: jax.core.ShapedArray(shape, dtype))
mlir.register_lowering(_REFUSAL, _raise_refusal)
