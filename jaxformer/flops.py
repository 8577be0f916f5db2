"""Floating-point operations of the matrix products of a traced program."""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from jaxformer.errors import ConfigError
from jaxformer.op_names import is_of_model


def count_flops(function: Callable[..., Any], *args: Any) -> float:
    """FLOPs of the matrix products (`jax.lax.dot_general`) of a function, which is only traced.

    Each multiplication and each addition is one. Products in a scan count once for each iteration,
    and of a conditional, the branch with the most products counts. Of a
    `jax.lax.platform_dependent` choice, the default counts. Products of a `shard_map` count on all
    its devices. Convolutions, `jax.lax.ragged_dot` and products inside kernels (Pallas, cuDNN) do
    not count.

    Args:
        function: a function of JAX arrays, such as a loss or its gradient.
        *args: its arguments; all arrays may be `jax.ShapeDtypeStruct`.

    Raises:
        ConfigError: a while loop, whose number of iterations is unknown, has matrix products.

    Example:
        >>> x, kernel = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((3, 5), (5, 7)))
        >>> count_flops(lambda x, kernel: x @ kernel, x, kernel)
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
    return count_products(jaxpr, is_counted=is_of_model)


def count_products(
    jaxpr: Jaxpr, scope: str = "", *, is_counted: Callable[[str], bool] = lambda scope: True
) -> float:
    """FLOPs of the products, if counted by scope, of a program and of the programs in it."""
    total = 0.0
    for eqn in jaxpr.eqns:
        inner_scope = f"{scope}/{eqn.source_info.name_stack}"
        if eqn.primitive.name == "dot_general":
            total += _product(eqn) if is_counted(inner_scope) else 0.0
        elif eqn.primitive.name == "pallas_call":
            continue  # kernels do not count, and their loops may have traced bounds
        elif inner := [
            count_products(program, inner_scope, is_counted=is_counted)
            for program in _inner_programs(eqn)
        ]:
            total += _runs_of(eqn, inner)
    return total


def _inner_programs(eqn: JaxprEqn) -> list[Jaxpr]:
    values = jax.tree.leaves(list(eqn.params.values()))
    programs = [value.jaxpr if isinstance(value, ClosedJaxpr) else value for value in values]
    return [program for program in programs if isinstance(program, Jaxpr)]


def _runs_of(eqn: JaxprEqn, inner: list[float]) -> float:
    """FLOPs of an operation that runs programs, from those of one run of each."""
    once = sum(inner)
    match eqn.primitive.name:
        case "scan":
            return once * int(eqn.params["length"])
        case "cond":
            platforms = eqn.params.get("branches_platforms") or ()
            return inner[platforms.index(None)] if None in platforms else max(inner)
        case "while" if once:
            raise ConfigError(
                "a while loop with matrix products must have a known number of iterations, got one "
                f"that {eqn.source_info.name_stack or 'the function'} decides while it runs; use "
                "jax.lax.scan, or jax.lax.fori_loop between Python ints"
            )
        case "shard_map":  # shapes within it are global over the axes that it does not split
            mesh, axes = eqn.params["mesh"], eqn.params["newly_manual_axes"]
            return once * math.prod(mesh.shape[axis] for axis in axes)
    return once


def _product(eqn: JaxprEqn) -> float:
    """FLOPs of one product."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left: Any = eqn.invars[0].aval
    result: Any = eqn.outvars[0].aval
    return 2.0 * math.prod(result.shape) * math.prod(left.shape[axis] for axis in contracted)
