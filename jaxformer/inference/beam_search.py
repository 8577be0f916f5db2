"""Beam search over any step function."""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange, repeat

from jaxformer.config import BeamSearchConfig
from jaxformer.errors import ShapeError
from jaxformer.functional.checks import (
    Array,
    as_array,
    check_array,
    check_int,
    check_keywords,
    static_bool,
)
from jaxformer.inference.beams import Beams, SearchState, advance, start_state
from jaxformer.inference.token_ids import as_ids
from jaxformer.inference.token_rules import HypothesisRules, TokenOptions

_StepFunction = Callable[[jax.Array, Any], tuple[jax.Array, Any]]

DEFAULT_SEARCH = BeamSearchConfig()


def beam_search(
    step_fn: _StepFunction,
    cache: Any,
    start_tokens: Array,
    *,
    max_new_tokens: int,
    end_tokens: Sequence[int],
    search: BeamSearchConfig = DEFAULT_SEARCH,
    **options: Unpack[TokenOptions],
) -> Beams:
    r"""Beam search: keeps the `beam_size` most probable hypotheses per row at each step.

    A hypothesis is a sequence of tokens that ends with one of `end_tokens`, or has
    `max_new_tokens` tokens and none of them. Its score is
    $\sum_t \log p(y_t \mid y_{<t}) \; / \; length^{length\_penalty}$. The length includes the end
    token and excludes the start token. The penalty divides a negative number: positive favours long
    hypotheses, negative favours short ones, 0 is the plain sum.

    With E end tokens, each step takes the (1 + E) W most probable continuations of a row's W
    running hypotheses. Those among the first W that end are finished; the best W finished ones are
    kept. An ended one that ranks below W is dropped. The W most probable that do not end keep
    running. With as many beams as continuations, nothing is dropped and the search is exhaustive.
    Ties go to the more probable running hypothesis, then to the lower token; among equal scores,
    the one finished earlier wins.

    A row is done, and no longer changes, when no hypothesis is running, or by
    `search.early_stopping`. If that is False, a positive penalty can miss a longer hypothesis that
    would have been better. "never" misses none: log-probabilities are never positive, so the best
    possible score of a running hypothesis is its present log-probability at length max_new_tokens
    (positive penalty) or at its present length.

    A logit of -inf makes a token, and every hypothesis with it, impossible. A hypothesis without a
    possible next token is dropped. If a row has fewer than `num_best` hypotheses, the others have
    length 0 and score -inf. With a NaN or +inf logit in a running hypothesis, all scores and
    log-probabilities of its row are NaN, so check before use; `translate` raises an error.

    Rows are independent of each other if those of `step_fn` are. All arguments after the arrays are
    static; wrap the call in `jax.jit` to compile it once for many batches.

    Args:
        step_fn: (tokens int32 `[B*W]`, cache) -> (logits float `[B*W, V]` of the next token,
            cache with these tokens in it, of the same structure, shapes and dtypes).
        cache: pytree of arrays with leading axis B, without the start tokens. Every leaf is
            repeated to B*W, beams of a row adjacent, and gathered on that axis as beams are chosen.
        start_tokens: int `[B]`, the last token of each prompt, or a decoder's start token.
        max_new_tokens: L, maximum length of a hypothesis.
        end_tokens: ids that end a hypothesis; none = all have `max_new_tokens` tokens.
        search: beam_size (W), num_best (n), and the other settings of the search. The start token
            counts for no_repeat_ngram_size.
        **options: as in `TokenOptions`.

    Returns:
        The n best finished hypotheses of every row.

    Raises:
        ConfigError: an option is invalid.
        ShapeError: start tokens, cache or the output of `step_fn` do not fit.

    References:
        Graves, "Sequence Transduction with Recurrent Neural Networks", 2012 (beam search);
        Wu et al., "Google's Neural Machine Translation System", 2016, section 7 (length penalty;
        here without its constant 5).

    Example:
        >>> table = jnp.log(jnp.array([[0.4, 0.6, 0], [0.1, 0, 0.9], [1.0, 0, 0]]))
        >>> step = lambda tokens, cache: (table[tokens], cache)
        >>> search = BeamSearchConfig(beam_size=2, num_best=2)
        >>> options = {"max_new_tokens": 3, "end_tokens": [0]}
        >>> beams = beam_search(step, (), jnp.array([0]), search=search, **options)
        >>> beams.tokens[0].tolist(), beams.lengths[0].tolist()
        ([[1, 2, 0], [0, 0, 0]], [3, 1])
        >>> [round(probability, 2) for probability in jnp.exp(beams.log_probs[0]).tolist()]
        [0.54, 0.4]
    """
    check_keywords("beam_search", options, TokenOptions)
    check_int("max_new_tokens", max_new_tokens, 1)
    lengths = np.arange(1.0, max_new_tokens + 1)
    divisors = jnp.asarray(lengths**search.length_penalty, jnp.float32)  # [L]

    start = as_array("start_tokens", start_tokens)
    check_array("start_tokens", start, "integer", "B")
    start = start.astype(jnp.int32)  # [B]
    cache = _repeat_for_beams(cache, len(start), search.beam_size)
    step_fn = jax.jit(step_fn)  # traced once, for the check and for the loop
    first = repeat(start, "b -> (b w)", w=search.beam_size)
    rules = _rules(search, max_new_tokens, _check_step(step_fn, first, cache), end_tokens, options)
    ends = rules.end_tokens
    state = start_state(
        cache, start, beam_size=search.beam_size, max_new_tokens=max_new_tokens,
        padding=ends[0] if ends else 0,
    )  # fmt: skip

    def unfinished(state: SearchState) -> jax.Array:
        return (state.step < max_new_tokens) & ~state.done.all()

    def step(state: SearchState) -> SearchState:
        tokens = rearrange(state.tokens, "b w l -> (b w) l")
        logits, cache = step_fn(tokens[:, state.step], state.cache)
        log_probs = rules.log_probs(logits, state.step, tokens)
        state = state._replace(cache=cache)
        return advance(state, log_probs, divisors, ends, search.early_stopping)

    finished = jax.lax.while_loop(unfinished, step, state).finished
    finished = finished._replace(tokens=finished.tokens[..., 1:])  # without the start
    return jax.tree.map(lambda leaf: leaf[:, : search.num_best], finished)


def _rules(
    search: BeamSearchConfig, max_new_tokens: int, num_logits: int, end_tokens: Sequence[int],
    options: TokenOptions,
) -> HypothesisRules:  # fmt: skip
    """Checked rules for the next token."""
    vocab_size = options.get("vocab_size")
    vocab_size = num_logits if vocab_size is None else vocab_size
    check_int("vocab_size", vocab_size, 1, num_logits)
    forced_tokens: dict[int, Any] = {}
    # With max_new_tokens=1 both have the same place; the forced last token wins.
    for name, place in (("forced_first_token", 0), ("forced_last_token", max_new_tokens - 1)):
        if (token := options.get(name)) is not None:
            check_int(name, token, 0, vocab_size - 1)
            forced_tokens[place] = token
    forbidden = options.get("forbidden_tokens", ())
    return HypothesisRules(
        vocab_size=vocab_size,
        forbidden_tokens=as_ids("forbidden_tokens", forbidden, vocab_size),
        renormalize=static_bool("renormalize", options.get("renormalize", False)),
        forced_tokens=forced_tokens,
        end_tokens=as_ids("end_tokens", end_tokens, vocab_size),
        no_repeat_ngram_size=search.no_repeat_ngram_size,
        min_new_tokens=search.min_new_tokens,
    )


def _repeat_for_beams(cache: Any, batch: int, beam_size: int) -> Any:
    """Repeats every leaf of a cache for the beams, B -> B*W."""

    def repeat_leaf(path: Any, leaf: Any) -> jax.Array:
        name = f"cache{jax.tree_util.keystr(path)}"
        array = as_array(name, leaf)
        if array.ndim == 0 or array.shape[0] != batch:
            raise ShapeError(
                f"every leaf of cache must have the leading axis of start_tokens, B={batch}, got "
                f"shape {array.shape} at {name}"
            )
        return repeat(array, "b ... -> (b w) ...", w=beam_size)

    return jax.tree_util.tree_map_with_path(repeat_leaf, cache)


def _check_step(step_fn: _StepFunction, tokens: jax.Array, cache: Any) -> int:
    """Checks the output of a step on tokens `[B*W]` by tracing it; returns its vocabulary size."""
    returned = jax.eval_shape(step_fn, tokens, cache)
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise ShapeError(f"step_fn must return (logits, cache), got {type(returned).__name__}")
    logits = returned[0]
    sizes = {"B*W": tokens.shape[0]}
    return check_array("step_fn's logits", logits, "floating", "B*W V", sizes)["V"]
