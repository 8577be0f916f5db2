"""Compiled training and evaluation steps on devices."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

__all__ = ["Program"]


class Program:
    """A step on devices, as a function of (tree, batch), compiled once per batch shape.

    `compile` is separate, so that a caller can be interrupted before the step takes the state away.
    A call compiles, too, if necessary. Frozen parameters are an argument of the compiled function,
    never constants.

    Args:
        function: result of `jax.jit` or `jax.pmap`.
        put: function that places a batch on the devices.
        finish: function applied to the result.
        context: returns a context manager in which to trace and call the function.
        frozen: third argument of the function, on the devices; None if it takes two.
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
        """Whether `compile` was called for a batch of this shape."""
        return _shapes(batch) in self._compiled

    def compile(self, tree: Any, batch: Any) -> None:
        """Compiles for the shapes of a batch; JAX caches the result for later calls."""
        with self._context():
            self._function.lower(tree, self._put(batch), *self._others).compile()
        self._compiled.add(_shapes(batch))

    def lower(self, tree: Any, batch: Any) -> Any:
        """Lowers the step for shapes of the runner's templates, even of devices not here."""
        with self._context():
            return self._function.lower(tree, batch, *self._others)

    def __call__(self, tree: Any, batch: Any) -> Any:
        """Runs the step."""
        with self._context():
            return self._finish(self._function(tree, self._put(batch), *self._others))


def _shapes(batch: Any) -> Any:
    """Structure, shapes and dtypes of a batch, which determine the compiled program."""
    leaves, structure = jax.tree.flatten(batch)
    return structure, tuple((np.shape(leaf), leaf.dtype) for leaf in leaves)
