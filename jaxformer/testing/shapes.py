"""Assertions on the shapes of a module's parameters and output, by tracing only."""

import fnmatch
from collections.abc import Callable, Mapping
from typing import Any

import chex
import jax

from jaxformer.errors import ConfigError
from jaxformer.testing.failures import fail

__tracebackhide__ = True  # a failure in pytest shows the test's own line, not this module's

Shape = Any  # as in chex.assert_shape: a tuple of sizes, None or ... ; or a ShapeDtypeStruct


def assert_shapes(
    init: Callable[..., Any], apply: Callable[..., Any], *inputs: Any,
    params: Mapping[str, Shape] | None = None, output: Shape | Mapping[str, Shape] | None = None,
    rng: jax.Array | None = None,
) -> None:  # fmt: skip
    """Asserts the shapes of a module's parameters and of its output, by tracing only.

    A shape is a tuple as in `chex.assert_shape`, with None for any size and ... for any axes, or a
    `jax.ShapeDtypeStruct`, which also checks the dtype. Paths join the keys of a tree with "/" and
    may be patterns: "params/layer_*/kernel". Every parameter must match a path; the first match
    counts.

    Args:
        init: `init(rng, *inputs)` returns a pytree of parameters (`module.init` of Linen).
        apply: `apply(parameters, *inputs)` returns a pytree of outputs (`module.apply`).
        *inputs: arrays, or `jax.ShapeDtypeStruct`s.
        params: shapes of all parameters, by path or pattern; not checked when not given.
        output: shape of an output that is one array, or shapes by path; not checked when not
            given.
        rng: PRNG key; `jax.random.key(0)` when not given.

    Raises:
        AssertionError: listing every shape that differs and every path without a match.
        ConfigError: neither params nor output is given.

    Example:
        >>> from flax import linen as nn
        >>> dense, inputs = nn.Dense(5), jax.ShapeDtypeStruct((2, 3), "float32")
        >>> assert_shapes(
        ...     dense.init,
        ...     dense.apply,
        ...     inputs,
        ...     params={"params/kernel": (3, 5), "params/bias": (5,)},
        ...     output=(2, 5),
        ... )
    """
    if params is None and output is None:
        raise ConfigError("params or output must be given, got neither: nothing would be checked")
    variables = jax.eval_shape(init, jax.random.key(0) if rng is None else rng, *inputs)
    if params is not None:
        _check("parameters", variables, params)
    if output is not None:
        result = jax.eval_shape(apply, variables, *inputs)
        _check("output", result, output if isinstance(output, Mapping) else {"": output})


def _check(name: str, tree: Any, expected: Mapping[str, Shape]) -> None:
    leaves = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    unused, problems = set(expected), []
    for path, leaf in leaves.items():
        pattern = next((p for p in expected if fnmatch.fnmatchcase(path, p)), None)
        label, got = path or name, f"{leaf.dtype.name} {leaf.shape}"
        if pattern is None:
            problems.append((f"{label}: {got}", f"{label}: none, no path names it"))
            continue
        unused.discard(pattern)
        if not _fits(leaf, expected[pattern]):
            shape = expected[pattern]
            if isinstance(shape, jax.ShapeDtypeStruct):
                shape = f"{shape.dtype.name} {shape.shape}"
            problems.append((f"{label}: {got}", f"{label}: {shape}"))
    problems += [(f"{path}: none", f"{path}: {expected[path]}") for path in sorted(unused)]
    if not problems:
        return
    between = "\n" + " " * 16
    fail(
        f"shapes: the {name} must have the expected paths and shapes",
        where=f"{len(problems)} of {len(leaves.keys() | unused)} paths",
        got=between.join(got for got, _ in problems),
        expected=between.join(shape for _, shape in problems),
        cause="a submodule renamed, missing or new, a bias, or input and output axes of a kernel "
        "exchanged",
    )


def _fits(leaf: Any, expected: Shape) -> bool:
    try:
        if isinstance(expected, jax.ShapeDtypeStruct):
            chex.assert_trees_all_equal_shapes_and_dtypes(leaf, expected)
        else:
            chex.assert_shape(leaf, expected)
    except AssertionError:
        return False
    return True
