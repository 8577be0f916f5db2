"""Beam search for the likeliest continuations, over any step function."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange, repeat

from jaxformer.errors import ConfigError, DataError, ShapeError
from jaxformer.functional.options import static_bool, static_number
from jaxformer.functional.shapes import Array, as_array, check_axes, check_dtype
from jaxformer.functional.sizes import known_values
from jaxformer.inference.ngrams import repeated_ngrams
from jaxformer.inference.token_rows import require_int

__all__ = ["Beams", "beam_search", "length_divisors"]

_StepFunction = Callable[[jax.Array, Any], tuple[jax.Array, Any]]

_MOST_TOKENS = 2**31 - 1  # an int32
_LARGEST_DIVISOR = 1e30  # beyond it, and below its inverse, scores would not fit float32


class Beams(NamedTuple):
    """Hypotheses of every row, best first.

    Args:
        tokens: int32 `[B, n, L]`, without the start token, with the end token, and filled up with
            `end_token`.
        lengths: int32 `[B, n]`, number of tokens; 0 where the row has no further hypothesis.
        scores: float32 `[B, n]`, log_probs / lengths ** length_penalty.
        log_probs: float32 `[B, n]`, sums of the tokens' log-probabilities, in nats.
    """

    tokens: jax.Array
    lengths: jax.Array
    scores: jax.Array
    log_probs: jax.Array


class _State(NamedTuple):
    """Loop state of the search; `cache` leads with B*W, where W is the number of beams."""

    step: jax.Array  # [], number of tokens in every running hypothesis
    cache: Any
    last: jax.Array  # [B, W], the newest token, which is not in the cache yet
    tokens: jax.Array  # [B, W, L], of the running hypotheses, likeliest first
    log_probs: jax.Array  # [B, W], of the running hypotheses; -inf where there is none
    finished: Beams  # [B, W], the best finished hypotheses so far
    done: jax.Array  # [B], whether the row changes no more


def beam_search(
    step_fn: _StepFunction,
    cache: Any,
    start_tokens: Array,
    *,
    beam_size: int,
    max_new_tokens: int,
    end_token: int,
    length_penalty: float = 1.0,
    early_stopping: bool | Literal["never"] = False,
    no_repeat_ngram_size: int = 0,
    min_new_tokens: int = 0,
    num_best: int = 1,
    vocab_size: int | None = None,
    forbidden_tokens: Sequence[int] = (),
    renormalize: bool = False,
    forced_first_token: int | None = None,
    forced_last_token: int | None = None,
) -> Beams:
    r"""Beam search: keeps the `beam_size` likeliest hypotheses of every row at each step.

    A hypothesis is a sequence of tokens that ends with `end_token`, or that has `max_new_tokens`
    tokens and no `end_token`. Its score is
    $\sum_t \log p(y_t \mid y_{<t}) \; / \; length^{length\_penalty}$, where the length counts its
    tokens with the end token, without the start token. The penalty divides a negative number: a
    positive one favours long hypotheses, a negative one short ones, 0 is the plain sum.

    Each step takes the 2W likeliest continuations of a row's W running hypotheses. Those among the
    first W that end are finished, and the best W finished ones are kept; an end that ranks below W
    is dropped. The W likeliest of the 2W that do not end keep running. With as many beams as there
    are continuations nothing is dropped, so the search is exhaustive. Ties go to the likelier
    running hypothesis, then to the lower token; of equal scores the earlier finished wins.

    A row is done, and changes no more, when no hypothesis is running, or by `early_stopping`:

    - True: when it has W finished hypotheses.
    - False: when it has W, and the likeliest running one, scored at its present length, is not
      better than the worst of them. Quick, but with a positive penalty a longer hypothesis that
      would have been better can be missed.
    - "never": when it has W, and no running one can become better than the worst of them.
      Log-probabilities are never positive, so its best possible score is its present
      log-probability at length max_new_tokens (positive penalty) or at its present length.

    A token whose logit is -inf is impossible, and so is every hypothesis that has it; a hypothesis
    whose every next token is impossible is dropped. Where a row has fewer than `num_best`
    hypotheses, the others have length 0 and score -inf. A NaN or +inf logit in a running hypothesis
    is an error; under jit, where it cannot be raised, all scores and log-probabilities of its row
    are NaN: check for it before use.

    Rows are independent of each other, as long as those of `step_fn` are. All arguments after
    the arrays are static; wrap the call in `jax.jit` to compile it once for many batches.

    Args:
        step_fn: (tokens int32 `[B*W]`, cache) -> (logits float `[B*W, V]` of the next token,
            cache with these tokens in it, of the same structure, shapes and dtypes).
        cache: pytree of arrays that lead with B, without the start tokens. Every leaf is repeated
            to B*W, beams next to each other, and gathered on that axis as beams are chosen.
        start_tokens: int `[B]`, the last token of each prompt, or a decoder's start token.
        beam_size: W, number of running hypotheses of a row.
        max_new_tokens: L, length of the longest hypothesis.
        end_token: id that ends a hypothesis.
        length_penalty: exponent of the length: positive, negative or 0.
        early_stopping: when a row is done, as above.
        no_repeat_ngram_size: n of the n-grams that a hypothesis has at most once, its start token,
            of a prompt the last one, included; 0 lets all repeat.
        min_new_tokens: tokens of a hypothesis before `end_token`, which is no choice until then.
        num_best: n, number of hypotheses to return, at most W.
        vocab_size: logits of ids at or above it, which pad a vocabulary, are cut off before the
            softmax.
        forbidden_tokens: ids that no hypothesis has, such as padding. Where it, or one of the two
            above, rules out tokens, the others' probabilities stay as they are, unless:
        renormalize: whether the probabilities of the tokens that are not ruled out sum to 1.
        forced_first_token: id that every hypothesis begins with, such as the language to translate
            to, at no cost: its log-probability counts as 0.
        forced_last_token: id that a hypothesis of max_new_tokens has at its end, likewise; mostly
            end_token.

    Returns:
        The n best finished hypotheses of every row.

    Raises:
        ConfigError: an option is impossible.
        ShapeError: start tokens, cache or what `step_fn` returns do not fit.
        DataError: logits are NaN or +inf, and this is no call under jit.

    References:
        Graves, "Sequence Transduction with Recurrent Neural Networks", 2012 (beam search);
        Wu et al., "Google's Neural Machine Translation System", 2016, section 7 (length penalty;
        here without its constant 5).

    Example:
        >>> table = jnp.log(jnp.array([[0.4, 0.6, 0], [0.1, 0, 0.9], [1.0, 0, 0]]))
        >>> step = lambda tokens, cache: (table[tokens], cache)
        >>> options = {"beam_size": 2, "max_new_tokens": 3, "end_token": 0, "num_best": 2}
        >>> beams = beam_search(step, (), jnp.array([0]), **options)
        >>> beams.tokens[0].tolist(), beams.lengths[0].tolist()
        ([[1, 2, 0], [0, 0, 0]], [3, 1])
        >>> [round(probability, 2) for probability in jnp.exp(beams.log_probs[0]).tolist()]
        [0.54, 0.4]
    """
    for name, count in {
        "beam_size": beam_size, "max_new_tokens": max_new_tokens, "num_best": num_best,
    }.items():  # fmt: skip
        require_int(name, count, 1)
    require_int("no_repeat_ngram_size", no_repeat_ngram_size, 0, _MOST_TOKENS)
    require_int("min_new_tokens", min_new_tokens, 0, _MOST_TOKENS)
    if num_best > beam_size:
        raise ConfigError(
            f"num_best must be at most beam_size, got num_best={num_best} and "
            f"beam_size={beam_size}; search with more beams"
        )
    if not isinstance(early_stopping, bool) and early_stopping != "never":
        raise ConfigError(f'early_stopping must be True, False or "never", got {early_stopping!r}')
    if not callable(step_fn):
        raise ConfigError(f"step_fn must be a function, got {step_fn!r}")
    if beam_size * max_new_tokens > _MOST_TOKENS:
        raise ConfigError(
            f"beam_size * max_new_tokens must be at most 2**31 - 1, got {beam_size} * "
            f"{max_new_tokens}"
        )
    divisors = length_divisors(max_new_tokens, length_penalty)

    start = as_array("start_tokens", start_tokens)
    check_axes("start_tokens", start, "B")
    check_dtype("start_tokens", start, "integer")
    batch = start.shape[0]
    last = repeat(start.astype(jnp.int32), "b -> b w", w=beam_size)
    cache = _repeat_for_beams(cache, batch, beam_size)
    step_fn = jax.jit(step_fn)  # traced once, for the check and for the loop
    num_logits = _check_step(step_fn, last, cache)
    if vocab_size is None:
        vocab_size = num_logits
    require_int("vocab_size", vocab_size, 1, num_logits)
    require_int("end_token", end_token, 0, vocab_size - 1)
    # Of a hypothesis of one token, which is its first and its last, the last is what counts.
    forced = ((0, forced_first_token), (max_new_tokens - 1, forced_last_token))
    for name, token in {
        "forced_first_token": forced_first_token, "forced_last_token": forced_last_token,
        **{f"forbidden_tokens[{i}]": token for i, token in enumerate(forbidden_tokens)},
    }.items():  # fmt: skip
        if token is not None or name.startswith("forbidden"):
            require_int(name, token, 0, vocab_size - 1)
    forbidden = np.isin(np.arange(vocab_size), list(forbidden_tokens))
    rules_out = forbidden.any() or no_repeat_ngram_size > 0 or min_new_tokens > 0
    renormalize = static_bool("renormalize", renormalize)
    state = _State(
        step=jnp.int32(0),
        cache=cache,
        last=last,
        tokens=jnp.full((batch, beam_size, max_new_tokens), end_token, jnp.int32),
        # At first each row has one hypothesis, the empty one, or all beams would be equal.
        log_probs=jnp.full((batch, beam_size), -jnp.inf, jnp.float32).at[:, 0].set(0),
        finished=Beams(
            tokens=jnp.full((batch, beam_size, max_new_tokens), end_token, jnp.int32),
            lengths=jnp.zeros((batch, beam_size), jnp.int32),
            scores=jnp.full((batch, beam_size), -jnp.inf, jnp.float32),
            log_probs=jnp.full((batch, beam_size), -jnp.inf, jnp.float32),
        ),
        done=jnp.zeros(batch, bool),
    )

    def unfinished(state: _State) -> jax.Array:
        return (state.step < max_new_tokens) & ~state.done.all()

    def step(state: _State) -> _State:
        logits, cache = step_fn(rearrange(state.last, "b w -> (b w)"), state.cache)
        logits = logits[:, :vocab_size]
        ruled_out = forbidden[None]  # [1 or B*W, V]
        if no_repeat_ngram_size > 0:
            ruled_out = ruled_out | _repeated(state, start, no_repeat_ngram_size, vocab_size)
        if min_new_tokens > 0:
            is_end = (np.arange(vocab_size) == end_token)[None]
            ruled_out = ruled_out | (is_end & (state.step < min_new_tokens))
        if renormalize:
            logits = jnp.where(ruled_out, -jnp.inf, logits)
        new = _log_probs(logits)
        if rules_out:
            new = jnp.where(ruled_out, -jnp.inf, new)
        for place, token in forced:
            if token is not None:
                new = jnp.where(state.step == place, _forced(new, token), new)
        totals = _continuation_log_probs(new, state.log_probs)
        return _advance(
            state._replace(cache=cache), totals, jnp.asarray(divisors), end_token, early_stopping
        )

    finished = jax.lax.while_loop(unfinished, step, state).finished
    scores = known_values(finished.scores)
    if scores is not None and np.isnan(scores).any():
        row = int(np.argmax(np.isnan(scores).any(axis=1)))
        raise DataError(
            f"the logits of step_fn are NaN or +inf in row {row}; the model has diverged, or its "
            "parameters are damaged"
        )
    return jax.tree.map(lambda leaf: leaf[:, :num_best], finished)


def _log_probs(logits: jax.Array) -> jax.Array:
    """Log-probabilities of the next token, float32 `[B*W, V]`."""
    logits = logits.astype(jnp.float32)
    # Where all logits are -inf, log_softmax is NaN; but these tokens are impossible, not damaged.
    return jnp.where(jnp.isneginf(logits), -jnp.inf, jax.nn.log_softmax(logits, axis=-1))


def _repeated(state: _State, start: jax.Array, size: int, vocab_size: int) -> jax.Array:
    """Tokens that would repeat an n-gram of a running hypothesis, bool `[B*W, V]`."""
    beam_size = state.tokens.shape[1]
    starts = repeat(start.astype(jnp.int32), "b -> b w 1", w=beam_size)
    tokens = rearrange(jnp.concatenate([starts, state.tokens], axis=-1), "b w l -> (b w) l")
    return repeated_ngrams(tokens, jnp.full(len(tokens), state.step + 1), size, vocab_size)


def _forced(log_probs: jax.Array, token: int) -> jax.Array:
    """Log-probabilities of which one token is certain; NaN stays, so that it can be raised."""
    certain = jnp.where(jnp.arange(log_probs.shape[-1]) == token, 0.0, -jnp.inf)
    return jnp.where(jnp.isnan(log_probs), log_probs, certain[None])


def _continuation_log_probs(new: jax.Array, log_probs: jax.Array) -> jax.Array:
    """Log-probabilities `[B, W, V]` of all continuations of hypotheses of `log_probs` `[B, W]`."""
    new = rearrange(new, "(b w) v -> b w v", w=log_probs.shape[1])
    log_probs = log_probs[..., None]
    # Beams without a hypothesis are computed from leftover tokens, whose logits may be NaN.
    return jnp.where(jnp.isneginf(log_probs), -jnp.inf, log_probs + new)


def _advance(
    state: _State,
    totals: jax.Array,
    divisors: jax.Array,
    end_token: int,
    early_stopping: bool | Literal["never"],
) -> _State:
    """Next state, from the log-probabilities `[B, W, V]` of all continuations."""
    batch, beam_size, vocab_size = totals.shape
    # Of equal values top_k takes the one with the lower index: lower beam, then lower token.
    flat = rearrange(totals, "b w v -> b (w v)")
    # The barrier keeps XLA from merging later slices into the sort that top_k starts as, which it
    # would then no longer recognize: 49 ms instead of 0.4 for 8 rows, 4 beams and 8,000 tokens.
    log_probs, index = jax.lax.optimization_barrier(
        jax.lax.top_k(flat, min(2, vocab_size) * beam_size)
    )
    parents, last = index // vocab_size, index % vocab_size
    length = state.step + 1
    tokens = _take_rows(state.tokens, parents).at[:, :, state.step].set(last)
    ends = (last == end_token) | (length == state.tokens.shape[2])

    ending = Beams(
        tokens=tokens,
        lengths=jnp.full_like(last, length),
        scores=jnp.where(ends, log_probs / divisors[state.step], -jnp.inf),
        log_probs=log_probs,
    )
    # top_k prefers the lower index, so a place that is still empty, which scores -inf, stays empty
    # rather than take a candidate that has not ended.
    pool = jax.tree.map(
        lambda old, new: jnp.concatenate([old, new[:, :beam_size]], axis=1), state.finished, ending
    )
    finished = _take_rows(pool, jax.lax.top_k(pool.scores, beam_size)[1])

    log_probs, best = jax.lax.top_k(jnp.where(ends, -jnp.inf, log_probs), beam_size)
    parents, last, tokens = _take_rows((parents, last, tokens), best)
    # The cache leads with B*W, so beams are gathered by their index in the whole batch.
    rows = rearrange(jnp.arange(batch) * beam_size, "b -> b 1")
    gather = rearrange(rows + parents, "b w -> (b w)")

    damaged = jnp.isnan(totals).any(axis=(1, 2))
    finished = finished._replace(
        scores=jnp.where(damaged[:, None], jnp.nan, finished.scores),
        log_probs=jnp.where(damaged[:, None], jnp.nan, finished.log_probs),
    )
    # Rows that are done go on computing until all are; only their result must not change.
    keep = jax.vmap(lambda done, old, new: jnp.where(done, old, new))
    finished = jax.tree.map(lambda *leaves: keep(state.done, *leaves), state.finished, finished)
    worst = finished.scores[:, -1]  # -inf until there are W
    if early_stopping is True:
        done = ~jnp.isneginf(worst) | jnp.isneginf(log_probs[:, 0])
    else:
        present = divisors[state.step]
        highest = jnp.maximum(present, divisors[-1]) if early_stopping == "never" else present
        done = log_probs[:, 0] / highest <= worst  # also where none is running: -inf
    return _State(
        step=length,
        cache=jax.tree.map(lambda leaf: leaf[gather], state.cache),
        last=last,
        tokens=tokens,
        log_probs=log_probs,
        finished=finished,
        done=state.done | done | damaged,
    )


def _take_rows(tree: Any, index: jax.Array) -> Any:
    """Gathers along axis 1 of every leaf `[B, M, ...]`, by `index` `[B, N]` of each row."""
    return jax.tree.map(lambda leaf: jax.vmap(lambda row, places: row[places])(leaf, index), tree)


def _repeat_for_beams(cache: Any, batch: int, beam_size: int) -> Any:
    """Repeats every leaf of a cache for the beams, B -> B*W."""

    def repeat_leaf(path: Any, leaf: Any) -> jax.Array:
        array = as_array(f"cache{jax.tree_util.keystr(path)}", leaf)
        if array.ndim == 0 or array.shape[0] != batch:
            raise ShapeError(
                f"every leaf of cache must lead with the batch of start_tokens, B={batch}, got "
                f"shape {array.shape} at cache{jax.tree_util.keystr(path)}"
            )
        return repeat(array, "b ... -> (b w) ...", w=beam_size)

    return jax.tree_util.tree_map_with_path(repeat_leaf, cache)


def _check_step(step_fn: _StepFunction, last: jax.Array, cache: Any) -> int:
    """Checks what a step function returns, by tracing it; returns the size of its vocabulary.

    Args:
        step_fn: as in `beam_search`.
        last: int32 `[B, W]`, the tokens that it is called with.
        cache: the cache that it is called with, whose leaves lead with B*W.
    """
    tokens = rearrange(last, "b w -> (b w)")
    logits, new_cache = jax.eval_shape(step_fn, tokens, cache)
    check_dtype("step_fn's logits", logits, "floating")
    sizes = check_axes("step_fn's logits", logits, "B*W V", {"B*W": tokens.shape[0]})

    def describe(tree: Any) -> list[str]:
        leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
        kinds = [f"cache{jax.tree_util.keystr(p)} {leaf.dtype}{leaf.shape}" for p, leaf in leaves]
        return [*kinds, str(structure)]

    old, new = describe(cache), describe(new_cache)
    if old != new:
        got, want = next(pair for pair in zip(new, old, strict=False) if pair[0] != pair[1])
        raise ShapeError(f"step_fn must return a cache like the one it is given, {want}, got {got}")
    return sizes["V"]


def length_divisors(max_new_tokens: int, length_penalty: float) -> np.ndarray:
    """Divisors length ** length_penalty of log-probabilities, at lengths 1 .. L, float32 `[L]`.

    Raises:
        ConfigError: float32 does not hold them, or length_penalty is no number.
    """
    exponent = static_number("length_penalty", length_penalty)
    if abs(exponent) * np.log(max_new_tokens) > np.log(_LARGEST_DIVISOR):
        raise ConfigError(
            f"max_new_tokens ** length_penalty must be within float32, got {max_new_tokens} ** "
            f"{length_penalty}; a usual length_penalty is 0 .. 2"
        )
    return (np.arange(1, max_new_tokens + 1) ** exponent).astype(np.float32)
