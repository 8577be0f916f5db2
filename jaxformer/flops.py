"""Floating-point operations of the matrix products of a traced program."""

import functools
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from jaxformer.errors import ConfigError
from jaxformer.op_names import is_of_model

_LAYER = re.compile(r"\b(?:(?:cross_)?attention|(?P<feed_forward>feed_forward))\b")


class Flops(NamedTuple):
    """FLOPs of matrix products, two for each multiplication and addition.

    The names of the modules that compute the products, "attention", "cross_attention" and
    "feed_forward", decide to which part they belong.

    Args:
        projections: projections of attention to queries, keys, values and output.
        attention: scores and sums of values: the products in attention that have batch axes.
        feed_forward: feed-forward layers.
        output: all others, such as the logits, which are not computed in each layer.
    """

    projections: float = 0.0
    attention: float = 0.0
    feed_forward: float = 0.0
    output: float = 0.0

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return sum(self)

    def plus(self, other: "Flops") -> "Flops":
        """Sum of two, part by part."""
        return Flops(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Flops":
        """All parts, each multiplied by a number."""
        return Flops(*(factor * part for part in self))


def count_flops(function: Callable[..., Any], *args: Any) -> Flops:
    """FLOPs of the matrix products (`jax.lax.dot_general`) of a function, which is only traced.

    Products in a scan count once for each iteration, and of a conditional, the branch with the most
    products counts. Of a `jax.lax.platform_dependent` choice, the default counts. Products of a
    `shard_map` count on all its devices. Convolutions, `jax.lax.ragged_dot` and products inside
    kernels (Pallas, cuDNN) do not count.

    Args:
        function: a function of JAX arrays, such as a loss or its gradient.
        *args: its arguments; all arrays may be `jax.ShapeDtypeStruct`.

    Raises:
        ConfigError: a while loop, whose number of iterations is unknown, has matrix products.

    Example:
        >>> x, kernel = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((3, 5), (5, 7)))
        >>> count_flops(lambda x, kernel: x @ kernel, x, kernel).total
        210.0
    """
    return count_products(jax.make_jaxpr(function)(*args).jaxpr)


def count_model_flops(function: Callable[..., Any], *args: Any) -> float:
    """Model FLOPs of a training step: matrix products of its forward and backward pass.

    As `count_flops`, but without what remat computes again, and without products outside of the
    gradient, such as those of an optimizer; for model FLOPs utilization (Chowdhery et al., "PaLM",
    2022, appendix B). Chunked attention counts fewer than dense attention, which computes hidden
    pairs, too.

    Args:
        function: a training step.
        *args: its arguments; all arrays may be `jax.ShapeDtypeStruct`.

    Raises:
        ConfigError: a while loop, whose number of iterations is unknown, has matrix products.

    Example:
        >>> import jax.numpy as jnp
        >>> loss = lambda kernel, x: jax.checkpoint(lambda x: jnp.sin(x @ kernel))(x).sum()
        >>> arrays = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((3, 5), (2, 3)))
        >>> count_model_flops(jax.grad(loss), *arrays)  # of the product, and of its gradient
        120.0
    """
    jaxpr = jax.make_jaxpr(function)(*args).jaxpr
    return count_products(jaxpr, is_counted=is_of_model).total


def count_products(
    jaxpr: Jaxpr, scope: str = "", *, is_counted: Callable[[str], bool] = lambda scope: True
) -> Flops:
    """FLOPs of the products, if counted by scope, of a program and of the programs in it."""
    total = Flops()
    for eqn in jaxpr.eqns:
        inner_scope = f"{scope}/{eqn.source_info.name_stack}"
        if eqn.primitive.name == "dot_general":
            total = total.plus(_product(eqn, inner_scope) if is_counted(inner_scope) else Flops())
        elif eqn.primitive.name == "pallas_call":
            continue  # kernels do not count, and their loops may have traced bounds
        elif inner := [
            count_products(program, inner_scope, is_counted=is_counted)
            for program in _inner_programs(eqn)
        ]:
            total = total.plus(_runs_of(eqn, inner))
    return total


def _inner_programs(eqn: JaxprEqn) -> list[Jaxpr]:
    values = jax.tree.leaves(list(eqn.params.values()))
    programs = [value.jaxpr if isinstance(value, ClosedJaxpr) else value for value in values]
    return [program for program in programs if isinstance(program, Jaxpr)]


def _runs_of(eqn: JaxprEqn, inner: list[Flops]) -> Flops:
    """FLOPs of an operation that runs programs, from those of one run of each."""
    once = functools.reduce(Flops.plus, inner)
    match eqn.primitive.name:
        case "scan":
            return once.times(eqn.params["length"])
        case "cond":
            platforms = eqn.params.get("branches_platforms") or ()
            if None in platforms:
                return inner[platforms.index(None)]
            return max(inner, key=lambda branch: branch.total)
        case "while" if once.total:
            raise ConfigError(
                "a while loop with matrix products must have a known number of iterations, got one "
                f"that {eqn.source_info.name_stack or 'the function'} decides while it runs; use "
                "jax.lax.scan, or jax.lax.fori_loop between Python ints"
            )
        case "shard_map":  # shapes within it are global over the axes that it does not split
            mesh, axes = eqn.params["mesh"], eqn.params["newly_manual_axes"]
            return once.times(math.prod(mesh.shape[axis] for axis in axes))
    return once


def _product(eqn: JaxprEqn, scope: str) -> Flops:
    """FLOPs of one product, as the part of the model that its scope names."""
    (contracted, _), (batch_axes, _) = eqn.params["dimension_numbers"]
    left: Any = eqn.invars[0].aval
    result: Any = eqn.outvars[0].aval
    flops = 2.0 * math.prod(result.shape) * math.prod(left.shape[axis] for axis in contracted)
    layer = _LAYER.search(scope)
    if layer is None:
        return Flops(output=flops)
    if layer["feed_forward"]:
        return Flops(feed_forward=flops)
    return Flops(attention=flops) if batch_axes else Flops(projections=flops)
