"""Assertions of equivalence: cached vs. full decoding, scanned vs. looped layers."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import ConfigError, ShapeError
from jaxformer.functional.checks import Array, check_axes
from jaxformer.testing.failures import check_close, check_output_shape, compiled, differs, run

__tracebackhide__ = True  # a failure in pytest shows the test's own line, not this module's


def assert_cached_decoding_equals_full(
    full: Callable[[jax.Array], jax.Array],
    step: Callable[[jax.Array, Any], tuple[jax.Array, Any]],
    init_cache: Callable[[], Any],
    tokens: Array,
    *,
    chunks: Sequence[Sequence[int]] | None = None,
    tolerance: float = 1e-5,
) -> None:
    """Asserts that cached decoding gives the same logits as one pass over all tokens.

    Args:
        full: `full(tokens)` returns logits, float `[B, T, V]`.
        step: `step(tokens, cache)` takes the next tokens, integer `[B, t]`, and returns their
            logits `[B, t, V]` and the next cache.
        init_cache: returns an empty cache.
        tokens: integer `[B, T]`.
        chunks: ways to split the T tokens, each a sequence of chunk sizes that add up to T. When
            not given: one token at a time; then a prefill of half the tokens followed by one at a
            time. If your step takes only single tokens, pass `[[1] * T]`.
        tolerance: relative to the largest logit.

    Raises:
        AssertionError: the logits differ; the message names the first position.
        ConfigError: chunks do not add up to T.
        ShapeError: tokens are not `[B, T]` with T at least 2.

    Example:
        >>> def full(tokens):
        ...     return jnp.cumsum(tokens, axis=1)[..., None]
        >>> def step(tokens, total):
        ...     total = total + jnp.cumsum(tokens, axis=1)
        ...     return total[..., None], total[:, -1:]
        >>> tokens = np.array([[3.0, 1.0, 4.0, 1.0]])
        >>> assert_cached_decoding_equals_full(full, step, lambda: jnp.zeros((1, 1)), tokens)
    """
    tokens = jnp.asarray(tokens)
    length = check_axes("tokens", tokens, "B T")["T"]
    if length < 2:
        raise ShapeError(f"tokens [B, T] must have a T of at least 2, got shape {tokens.shape}")
    half = length // 2
    ways = [(1,) * length, (half, *(1,) * (length - half))] if chunks is None else chunks
    for sizes in ways:
        if sum(sizes) != length or min(sizes) < 1:
            raise ConfigError(f"chunks must be positive and add up to T={length}, got {sizes}")
    rule = "cached decoding: the logits of every step must equal those of the full pass"
    expected = run(full, tokens)
    check_output_shape(rule, expected, tokens.shape, "B T")
    next_logits = compiled(step)
    for sizes in ways:
        cache, pieces = init_cache(), []
        starts = [0, *itertools.accumulate(sizes)]
        for start, end in itertools.pairwise(starts):
            piece, cache = next_logits(tokens[:, start:end], cache)
            check_output_shape(rule, piece, (tokens.shape[0], end - start), "B t")
            pieces.append(np.asarray(piece, np.float64))
        got = np.concatenate(pieces, axis=1)
        check_close(
            f"{rule}; tokens given in chunks of {', '.join(map(str, sizes))}",
            got,
            expected,
            name="logits",
            axes="B T V",
            tolerance=tolerance,
            cause=_cached_cause(got, expected, sizes, tolerance),
        )


def _cached_cause(
    got: np.ndarray, expected: np.ndarray, sizes: Sequence[int], tolerance: float
) -> str:
    if got.shape != expected.shape:
        return "step and full have vocabularies of different sizes"
    wrong = differs(got, expected, tolerance)
    first = int(np.argmax(wrong.any(axis=tuple(a for a in range(wrong.ndim) if a != 1))))
    where = f"the first wrong output is at position {first}, which suggests "
    if first >= sizes[0]:
        return where + (
            "one of these: positions, or the rows of the causal mask, do not continue from the "
            "cached tokens; keys and values are written to the wrong slot; attention misses the "
            "newest token"
        )
    return where + (
        "one of these: the empty slots of the cache are attended to (hide those beyond its "
        "length); positions do not start where those of the full pass do; the tokens of a chunk "
        "need the causal mask among themselves"
    )


def assert_scanned_equals_looped(
    scanned: Callable[..., Any], looped: Callable[..., Any], params: Any, *inputs: Any,
    tolerance: float = 1e-4,
) -> None:  # fmt: skip
    """Asserts by chex that scanned layers have the outputs and gradients of a loop over them.

    If not, their parameters are in another order (sorted by name, layer_10 comes before layer_2),
    or what differs between layers, such as a window, is not scanned over.

    Args:
        scanned: `scanned(params, *inputs)` returns a pytree of arrays.
        looped: `looped(params, *inputs)` returns the same.
        params: pytree of the scanned model's float parameters, different in every layer.
        *inputs: arrays.
        tolerance: absolute, and relative to the largest element of each array of the loop.

    Raises:
        AssertionError: an output or gradient differs; the message names the output or parameter.

    Example:
        >>> def layer(x, kernel):
        ...     return jnp.tanh(x @ kernel)
        >>> kernels = jax.random.normal(jax.random.key(0), (3, 2, 2))
        >>> assert_scanned_equals_looped(
        ...     lambda kernels, x: jax.lax.scan(lambda x, k: (layer(x, k), None), x, kernels)[0],
        ...     lambda kernels, x: layer(layer(layer(x, kernels[0]), kernels[1]), kernels[2]),
        ...     kernels,
        ...     jnp.ones((1, 2)),
        ... )
    """

    def outcome(call: Callable[..., Any]) -> dict[str, Any]:
        def outputs(params: Any) -> dict[str, Any]:
            # The cotangent differs between elements of the output.
            output, pull = jax.vjp(lambda params: call(params, *inputs), params)
            (gradient,) = pull(jax.tree.map(jnp.cos, output))
            return {"output": output, "gradient": gradient}

        return run(outputs, params)

    expected, got = outcome(looped), outcome(scanned)
    chex.assert_trees_all_equal_shapes_and_dtypes(got, expected)
    chex.assert_tree_all_finite((got, expected))
    largest = jax.tree.map(lambda array: np.abs(array).max(initial=1), expected)
    got, expected = (jax.tree.map(np.divide, tree, largest) for tree in (got, expected))
    for name in ("output", "gradient"):
        chex.assert_trees_all_close(
            {name: got[name]}, {name: expected[name]}, rtol=0, atol=tolerance,
            custom_message="scanned and looped layers differ, over their largest element",
        )  # fmt: skip
