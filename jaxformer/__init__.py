"""The Transformer as a JAX library: pure functions, Flax Linen blocks, training, generation.

Submodules are imported on first use, so that `import jaxformer.functional` costs little more
than JAX itself.
"""

import importlib
from types import ModuleType

# Not imported from typing: that import would delay the command line's signal handlers.
TYPE_CHECKING = False

__version__ = "0.1.0"

__all__ = [
    "__version__", "cli", "config", "errors", "functional", "inference", "models", "modules",
    "planning", "runs", "sweeps", "testing", "text", "training", "viz",
]  # fmt: skip

if TYPE_CHECKING:  # type checkers and editors do not run __getattr__
    from jaxformer import (
        cli,
        config,
        errors,
        functional,
        inference,
        models,
        modules,
        planning,
        runs,
        sweeps,
        testing,
        text,
        training,
        viz,
    )
else:

    def __getattr__(name: str) -> ModuleType:
        if name in __all__:
            return importlib.import_module(f"jaxformer.{name}")
        raise AttributeError(f"module 'jaxformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
