"""Programs that are traced once and compiled differently per platform."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import jax

FALLBACK = "rocm"
"""Any platform without its own entry in `PLATFORMS`."""

PLATFORMS = ("cpu", "cuda", "tpu", FALLBACK)

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


def by_platform(functions: Mapping[str, Callable[[], Result]]) -> Result:
    """Calls the function for the platform that the program is compiled for, one of `PLATFORMS`."""
    # That may not be the default backend's: with `jax.export`, or for the devices of the arrays.
    # All functions are traced, and all but one are dropped during lowering.
    default = functions[FALLBACK]
    specific = {name: function for name, function in functions.items() if function is not default}
    return jax.lax.platform_dependent(default=default, **specific) if specific else default()
