"""Linear maps with a hand-written transpose.

JAX transposes a map product by product, in an order of its own; on CPUs, products in that order may
take three times as long as in the best one. Unlike `jax.custom_vjp`, which rules out forward mode,
and `jax.custom_derivatives.linear_call`, which rules out `jax.vmap` and second derivatives, this
supports every transformation.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jaxformer.functional.sharding import varying_alike


class _Map(NamedTuple):
    """Functions of lists of arrays: (saved, tangents) and (saved, cotangents)."""

    forward: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]
    backward: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


def linear_map(
    forward: Callable[[Any, Any], Any],
    backward: Callable[[Any, Any], Any],
    saved: Any,
    tangents: Any,
) -> Any:
    """`forward(saved, tangents)`, linear in the tangents, with the transpose `backward`."""
    # As in linear_map(lambda a, x: a @ x, lambda a, y: a.T @ y, matrix, x). Both functions must be
    # differentiable, since second derivatives are theirs.
    # Under jax.shard_map, a cotangent must vary over the axes over which its tangent does.
    saved, tangents = varying_alike((saved, tangents))
    flat_saved, saved_tree = jax.tree.flatten(saved)
    flat_tangents, tangent_tree = jax.tree.flatten(tangents)
    value_tree = jax.tree.structure(jax.eval_shape(forward, saved, tangents))

    def flat_forward(saved: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        value = forward(
            jax.tree.unflatten(saved_tree, saved), jax.tree.unflatten(tangent_tree, tangents)
        )
        return jax.tree.leaves(value)

    def flat_backward(saved: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        input_cotangents = backward(
            jax.tree.unflatten(saved_tree, saved), jax.tree.unflatten(value_tree, cotangents)
        )
        return jax.tree.leaves(input_cotangents)

    values = _bind(_Map(flat_forward, flat_backward), flat_saved, flat_tangents)
    return jax.tree.unflatten(value_tree, values)


def _bind(linear: _Map, saved: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    return _LINEAR.bind(*saved, *tangents, linear=linear, count=len(saved))


def _apply(*arrays: Any, linear: _Map, count: int) -> Sequence[Any]:
    return linear.forward(list(arrays[:count]), list(arrays[count:]))


def _differentiate(
    primals: Sequence[Any], tangents: Sequence[Any], *, linear: _Map, count: int
) -> tuple[list[Any], list[Any]]:
    saved, inputs = primals[:count], primals[count:]
    values = _bind(linear, saved, inputs)
    # Along the inputs, the derivative is the map itself, with its transpose.
    value_dots = _bind(linear, saved, [ad.instantiate_zeros(dot) for dot in tangents[count:]])
    # Along saved arrays it is JAX's, of those that move; in a second derivative some do.
    moving = [i for i, dot in enumerate(tangents[:count]) if not isinstance(dot, ad.Zero)]
    if moving:

        def of_moving(*arrays: Any) -> Sequence[Any]:
            replaced = dict(zip(moving, arrays, strict=True))
            arguments = [replaced.get(i, array) for i, array in enumerate(saved)]
            return linear.forward(arguments, list(inputs))

        points, dots = [saved[i] for i in moving], [tangents[i] for i in moving]
        _, saved_dots = jax.jvp(of_moving, points, dots)
        value_dots = [a + b for a, b in zip(value_dots, saved_dots, strict=True)]
    return values, value_dots


def _transpose(cotangents: Sequence[Any], *arrays: Any, linear: _Map, count: int) -> list[Any]:
    cotangents = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    input_cotangents = linear.backward(list(arrays[:count]), cotangents)
    # A known tangent is a zero, of an input that is not differentiated, and has no cotangent.
    return [None] * count + [
        cotangent if ad.is_undefined_primal(array) else None
        for cotangent, array in zip(input_cotangents, arrays[count:], strict=True)
    ]


def _vectorize(
    arrays: Sequence[Any], axes: Sequence[int | None], *, linear: _Map, count: int
) -> tuple[list[Any], list[int]]:
    size = next(a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None)
    saved_axes = list(axes[:count])
    tangents = [  # all along axis 0: the transpose of the broadcast sums their cotangents
        jnp.broadcast_to(array, (size, *array.shape))
        if axis is None
        else jnp.moveaxis(array, axis, 0)
        for array, axis in zip(arrays[count:], axes[count:], strict=True)
    ]
    vectorized = _Map(
        jax.vmap(linear.forward, (saved_axes, 0)), jax.vmap(linear.backward, (saved_axes, 0))
    )
    values = _bind(vectorized, list(arrays[:count]), tangents)
    return values, [0] * len(values)


def _shapes(*shapes: Any, linear: _Map, count: int) -> list[Any]:
    jaxpr = jax.make_jaxpr(linear.forward)(list(shapes[:count]), list(shapes[count:]))
    return list(jaxpr.out_avals)


_LINEAR = Primitive("linear_map")
_LINEAR.multiple_results = True
_LINEAR.def_impl(_apply)
_LINEAR.def_abstract_eval(_shapes)
ad.primitive_jvps[_LINEAR] = _differentiate
ad.primitive_transposes[_LINEAR] = _transpose
batching.primitive_batchers[_LINEAR] = _vectorize
mlir.register_lowering(_LINEAR, mlir.lower_fun(_apply, multiple_results=True))
