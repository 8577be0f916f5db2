"""A training or evaluation step as a program on devices."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

__all__ = ["Program"]


class Program:
    """A step on devices, compiled once for each shape of batch: a function of (tree, batch).

    Frozen parameters are an argument of the compiled function, and never constants of it, but not
    of this one, since no step changes them.

    Compiling is a call of its own for who wants to be between it and the step, which takes the
    state away. Calling compiles, too, where that was not done.

    Args:
        function: result of `jax.jit` or `jax.pmap`.
        put: from a batch to what the function takes.
        finish: what is done with its result.
        context: makes what the function must be traced and called in.
        frozen: parameters that the function takes as its third argument, on the devices; None
            where it has two.
    """

    def __init__(
        self,
        function: Any,
        put: Callable[[Any], Any],
        finish: Callable[[Any], Any] = lambda x: x,
        context: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
        frozen: Any = None,
    ) -> None:
        self._function, self._put, self._finish, self._context = function, put, finish, context
        self._others = () if frozen is None else (frozen,)
        self._compiled: set[Any] = set()

    def is_compiled(self, batch: Any) -> bool:
        """Tells whether `compile` was called for a batch of this shape."""
        return _shapes(batch) in self._compiled

    def compile(self, tree: Any, batch: Any) -> None:
        """Compiles for the shapes of a batch; JAX keeps the result, and a call then uses it."""
        with self._context():
            self._function.lower(tree, self._put(batch), *self._others).compile()
        self._compiled.add(_shapes(batch))

    def lower(self, tree: Any, batch: Any) -> Any:
        """Lowers the step for shapes alone, which need not be on a device, nor the device be there.

        Args:
            tree: what the runner's `template` makes of the state's shapes.
            batch: what the runner's `batch_template` makes of those of a global batch.

        Returns:
            The result of `jax.jit(...).lower`.
        """
        with self._context():
            return self._function.lower(tree, batch, *self._others)

    def __call__(self, tree: Any, batch: Any) -> Any:
        """Runs the step."""
        with self._context():
            return self._finish(self._function(tree, self._put(batch), *self._others))


def _shapes(batch: Any) -> Any:
    """What a program is compiled for: structure, shapes and dtypes of a batch."""
    leaves, structure = jax.tree.flatten(batch)
    return structure, tuple((np.shape(leaf), leaf.dtype) for leaf in leaves)
