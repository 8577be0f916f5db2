"""The Transformer as a JAX library: pure functions, Flax Linen blocks, training, generation.

Submodules are imported on first use, so that `import jaxformer.functional` costs little more
than JAX itself.
"""

import importlib
from types import ModuleType

__version__ = "0.1.0"

_SUBMODULES = (
    "cli", "config", "errors", "functional", "inference", "models", "modules", "runs",
    "testing", "text", "training", "viz",
)  # fmt: skip

__all__ = ["__version__", *_SUBMODULES]


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        return importlib.import_module(f"jaxformer.{name}")
    raise AttributeError(f"module 'jaxformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
