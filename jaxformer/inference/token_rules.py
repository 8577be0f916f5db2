"""Rules for the next token of a beam search hypothesis."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.functional.checks import static_bool
from jaxformer.inference.ngrams import repeated_ngrams
from jaxformer.inference.token_rows import require_int

__all__ = ["TokenRules"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenRules:
    """Rules for the next token, which `beam_search` documents."""

    vocab_size: int  # V
    max_new_tokens: int  # L
    end_token: int
    no_repeat_ngram_size: int
    min_new_tokens: int
    forbidden_tokens: tuple[int, ...]
    renormalize: bool
    forced_first_token: int | None
    forced_last_token: int | None

    def __post_init__(self) -> None:
        """Checks ids and renormalize; `beam_search` has checked sizes and lengths."""
        static_bool("renormalize", self.renormalize)
        ids = {"end_token": self.end_token}
        for name in ("forced_first_token", "forced_last_token"):
            if getattr(self, name) is not None:
                ids[name] = getattr(self, name)
        ids |= {f"forbidden_tokens[{i}]": token for i, token in enumerate(self.forbidden_tokens)}
        for name, token in ids.items():
            require_int(name, token, 0, self.vocab_size - 1)

    def log_probs(self, logits: jax.Array, step: jax.Array, hypotheses: jax.Array) -> jax.Array:
        """Log-probabilities of the next token, float32 `[N, V]`, in nats; -inf if it is ruled out.

        `logits` are `[N, V or more]`. `hypotheses` int32 `[N, 1 + L]` have `step` tokens each,
        after their start tokens.
        """
        logits = logits[:, : self.vocab_size].astype(jnp.float32)
        ruled_out = self._ruled_out(step, hypotheses)
        if ruled_out is not None and self.renormalize:
            logits = jnp.where(ruled_out, -jnp.inf, logits)
        # If all logits are -inf, log_softmax is NaN, but these tokens are impossible, not damaged.
        new = jnp.where(jnp.isneginf(logits), -jnp.inf, jax.nn.log_softmax(logits, axis=-1))
        if ruled_out is not None:
            new = jnp.where(ruled_out, -jnp.inf, new)
        # With max_new_tokens=1 both apply; the forced last token wins.
        for place, token in (
            (0, self.forced_first_token), (self.max_new_tokens - 1, self.forced_last_token),
        ):  # fmt: skip
            if token is not None:
                new = jnp.where(step == place, _forced(new, token), new)
        return new

    def _ruled_out(self, step: jax.Array, hypotheses: jax.Array) -> jax.Array | None:
        """Tokens that cannot come next, bool `[1 or N, V]`; None without such rules."""
        ids = np.arange(self.vocab_size)[None]
        rules = []
        if self.forbidden_tokens:
            rules.append(jnp.asarray(np.isin(ids, self.forbidden_tokens)))
        if self.no_repeat_ngram_size > 0:
            lengths = jnp.full(len(hypotheses), step + 1)
            rules.append(
                repeated_ngrams(hypotheses, lengths, self.no_repeat_ngram_size, self.vocab_size)
            )
        if self.min_new_tokens > 0:
            rules.append((ids == self.end_token) & (step < self.min_new_tokens))
        return functools.reduce(jnp.logical_or, rules) if rules else None


def _forced(log_probs: jax.Array, token: int) -> jax.Array:
    """Log-probabilities that make one token certain; keeps NaN, so that it can be reported."""
    certain = jnp.where(jnp.arange(log_probs.shape[-1]) == token, 0.0, -jnp.inf)
    return jnp.where(jnp.isnan(log_probs), log_probs, certain[None])
