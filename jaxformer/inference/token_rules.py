"""Rules for the next token of a row, in sampling and in beam search."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np


class TokenOptions(TypedDict, total=False):
    """Keyword arguments of `beam_search` and `translate` about single tokens.

    Args:
        vocab_size: logits of ids at or above it (vocabulary padding) are cut off before the
            softmax.
        forbidden_tokens: ids that no hypothesis may contain, such as padding in Marian. Excluding
            tokens, by this or by the n-gram and length rules, leaves the other probabilities as
            they are, unless renormalize is set.
        renormalize: whether to scale the probabilities of the remaining tokens to sum to 1.
        forced_first_token: id that starts every hypothesis, such as the target language in NLLB.
            Its log-probability counts as 0.
        forced_last_token: id that ends a hypothesis of `max_new_tokens`, likewise; usually an end
            token, as in BART and Marian.
    """

    vocab_size: int | None
    forbidden_tokens: Sequence[int]
    renormalize: bool
    forced_first_token: int | None
    forced_last_token: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenRules:
    """Tokens that may not come next; `generate_stream` documents them. A static argument of jit."""

    end_tokens: tuple[int, ...]
    vocab_size: int | None = None
    forbidden_tokens: tuple[int, ...] = ()
    no_repeat_ngram_size: int = 0

    def ruled_out(
        self,
        num_logits: int,
        tokens: jax.Array | None,  # [B, T]
        lengths: jax.Array | None,  # [B]
        is_short: jax.Array | None,  # [B], rows that may not end yet
    ) -> jax.Array | None:
        """Tokens that cannot come next, bool `[1 or B, num_logits]`; None without such rules."""
        ids = np.arange(num_logits)[None]
        rules = []
        if self.vocab_size is not None and self.vocab_size < num_logits:
            rules.append(jnp.asarray(ids >= self.vocab_size))
        if self.forbidden_tokens:
            rules.append(jnp.asarray(np.isin(ids, self.forbidden_tokens)))
        if tokens is not None and lengths is not None and self.no_repeat_ngram_size > 0:
            rules.append(repeated_ngrams(tokens, lengths, self.no_repeat_ngram_size, num_logits))
        if is_short is not None:
            rules.append(jnp.asarray(np.isin(ids, self.end_tokens)) & is_short[:, None])
        return functools.reduce(jnp.logical_or, rules) if rules else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class HypothesisRules(TokenRules):
    """Rules for the hypotheses of `beam_search`, which documents them; they also force tokens."""

    vocab_size: int
    min_new_tokens: int
    renormalize: bool
    forced_tokens: Mapping[int, int]  # by place in the hypothesis

    def log_probs(self, logits: jax.Array, step: jax.Array, hypotheses: jax.Array) -> jax.Array:
        """Log-probabilities of the next token, float32 `[B, V]` in nats; -inf if ruled out."""
        # Hypotheses `[B, 1 + L]` have a start token and `step` tokens; the rest is ignored.
        logits = logits[:, : self.vocab_size].astype(jnp.float32)  # [B, V]
        rows = len(hypotheses)
        is_short = (step < self.min_new_tokens)[None] if self.min_new_tokens else None
        ruled_out = self.ruled_out(logits.shape[1], hypotheses, jnp.full(rows, step + 1), is_short)
        if ruled_out is not None and self.renormalize:
            logits = jnp.where(ruled_out, -jnp.inf, logits)
        # If all logits are -inf, log_softmax is NaN, but these tokens are impossible, not damaged.
        new = jnp.where(jnp.isneginf(logits), -jnp.inf, jax.nn.log_softmax(logits, axis=-1))
        if ruled_out is not None:
            new = jnp.where(ruled_out, -jnp.inf, new)
        for place, token in self.forced_tokens.items():
            new = jnp.where(step == place, _forced(new, token), new)
        return new


def _forced(log_probs: jax.Array, token: int) -> jax.Array:
    """Log-probabilities that make one token certain; keeps NaN, so that it can be reported."""
    certain = jnp.where(jnp.arange(log_probs.shape[-1]) == token, 0.0, -jnp.inf)
    return jnp.where(jnp.isnan(log_probs), log_probs, certain[None])


def repeated_ngrams(tokens: jax.Array, lengths: jax.Array, size: int, vocab_size: int) -> jax.Array:
    """Next tokens that would complete an n-gram that a row already has, bool `[B, V]`."""
    # Tokens int32 `[B, T]` of these lengths, `[B]`; the rest of each row is ignored. Paulus et al.,
    # "A Deep Reinforced Model for Abstractive Summarization", 2018, section 2.5.
    rows, places = len(tokens), tokens.shape[1] - size + 1  # where an n-gram can start
    none = jnp.zeros((rows, vocab_size), bool)
    if places < 1:
        return none
    # Whole n-grams end within the tokens so far, [B, places].
    repeats = jnp.arange(places)[None] + size <= lengths[:, None]
    for index in range(size - 1):
        # Compares each of the n - 1 newest tokens with the same index of every n-gram.
        newest = jnp.take_along_axis(
            tokens, jnp.maximum(lengths - size + 1 + index, 0)[:, None], axis=1
        )
        repeats &= tokens[:, index : index + places] == newest
    last = jnp.where(repeats, tokens[:, size - 1 :], vocab_size)  # out of range: dropped
    return none.at[jnp.arange(rows)[:, None], last].set(True, mode="drop")
