"""Programs that are traced once and compiled differently per platform."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

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
    @functools.partial(jax.jit, static_argnums=(0, 1))
    def compiled(static: Static, options: tuple, arrays: list[jax.Array]) -> Result:
        return function(*combine(arrays, static), *options)

    @functools.wraps(function)
    def call(inputs: Any, dropout_rng: jax.Array | None, *options: Any) -> Result:
        arrays, static = partition((inputs, dropout_rng))
        return compiled(static, options, arrays)

    return call


class Static(NamedTuple):
    """A pytree without its arrays, hashable; its leaves are None in their places."""

    structure: jax.tree_util.PyTreeDef
    leaves: tuple


def partition(tree: Any) -> tuple[list[Any], Static]:
    """Splits a pytree into its arrays, and the rest of it."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array | np.ndarray)]
    rest = tuple(None if isinstance(leaf, jax.Array | np.ndarray) else leaf for leaf in leaves)
    return arrays, Static(structure, rest)


def combine(arrays: Iterable[jax.Array], static: Static) -> Any:
    """The pytree that `partition` split, with other arrays."""
    remaining = iter(arrays)
    leaves = [next(remaining) if leaf is None else leaf for leaf in static.leaves]
    return jax.tree.unflatten(static.structure, leaves)


def by_platform(functions: Mapping[str, Callable[[], Result]]) -> Result:
    """Calls the function for the platform that the program is compiled for, one of `PLATFORMS`."""
    # That may not be the default backend's: with `jax.export`, or for the devices of the arrays.
    # All functions are traced, and all but one are dropped during lowering.
    default = functions[OTHERS]
    specific = {name: function for name, function in functions.items() if function is not default}
    return jax.lax.platform_dependent(default=default, **specific)
