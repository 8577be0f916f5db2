"""Compiled programs of generation: prefill, and the loop that decodes token by token."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.config import SamplingConfig
from jaxformer.inference.decodable import decoder_states, empty_cache, encode
from jaxformer.inference.sampling import sample
from jaxformer.inference.token_rules import TokenRules
from jaxformer.models.transformer import TransformerOutput
from jaxformer.models.transformer_inputs import TransformerInputs
from jaxformer.modules.stacked_layers import Cache

# XLA's CPU compiler turns each loop that it considers small into one function, which runs on one
# core. In jax 0.12 that is every loop without library calls, such as the loop of one row; it also
# takes twice as long to compile. Other platforms have no pass of this name.
_LOOP_OPTIONS = {"xla_disable_hlo_passes": "small-while-loop-hoisting"}


class _History(NamedTuple):
    """Tokens of the rows so far, including the prompts; zeros after them."""

    tokens: jax.Array  # [B, capacity]
    lengths: jax.Array  # [B]

    def seen(self, vocab_size: int) -> jax.Array:
        """Whether a token is in a row, bool `[B, V]`."""
        rows, capacity = self.tokens.shape
        is_token = jnp.arange(capacity)[None] < self.lengths[:, None]  # [B, capacity]
        ids = jnp.where(is_token, self.tokens, vocab_size)  # out of range: dropped
        seen = jnp.zeros((rows, vocab_size), bool)
        return seen.at[jnp.arange(rows)[:, None], ids].set(True, mode="drop")


class DecodingState(NamedTuple):
    """State of the decoding loop; every leaf has the leading axis B."""

    cache: Cache | None
    cross_cache: Cache | None  # of an encoder-decoder
    logits: jax.Array  # [B, V], of the next token
    rngs: jax.Array  # [B]
    generated: jax.Array  # [B], number of new tokens
    done: jax.Array  # [B], whether a stop token was generated
    history: _History | None  # only for rules on repetition
    min_new_tokens: jax.Array | None  # [B], before a stop token


class Prompts(NamedTuple):
    """Prompts to continue, padded on the right."""

    tokens: jax.Array  # int [B, T]
    lengths: jax.Array  # int [B]
    rngs: jax.Array  # [B]
    sources: tuple[jax.Array, jax.Array] | None  # of an encoder: int [B, S], lengths [B]
    min_new_tokens: jax.Array | None  # int [B], before a stop token


@functools.partial(jax.jit, static_argnames=("model", "capacity", "track_history"))
def prefill(
    model: nn.Module,  # with attention_implementation "auto"
    params: Any,  # split into layers
    prompts: Prompts,
    *,
    capacity: int,  # tokens per row, including the prompt
    track_history: bool,  # whether the loop needs the tokens of each row
) -> DecodingState:
    """Prefill: caches the prompts, and computes the logits of each row's next token."""
    tokens, lengths = prompts.tokens, prompts.lengths
    batch = tokens.shape[0]

    def forward(model: nn.Module) -> tuple[TransformerOutput, jax.Array]:
        cache = empty_cache(model, params, batch, capacity)
        inputs: TransformerInputs = {"lengths": lengths, "cache": cache}
        if prompts.sources is not None:
            inputs |= encode(model, *prompts.sources)
        output = decoder_states(model, tokens, inputs)
        # Logits of all positions would be large and unused.
        last = output.hidden[jnp.arange(batch), lengths - 1]  # [B, D]
        return output, model.logits(last)

    output, logits = nn.apply(forward, model)({"params": params})
    history = None
    if track_history:
        room = jnp.zeros((batch, capacity), jnp.int32)
        history = _History(room.at[:, : tokens.shape[1]].set(tokens), lengths)
    return DecodingState(
        cache=output.cache,
        cross_cache=output.cross_cache,
        logits=logits,
        rngs=prompts.rngs,
        generated=jnp.zeros(batch, jnp.int32),
        done=jnp.zeros(batch, bool),
        history=history,
        min_new_tokens=prompts.min_new_tokens,
    )


_Carry = tuple[jax.Array, DecodingState, jax.Array]  # index of the token, state, tokens [B, chunk]


@functools.partial(
    jax.jit,
    static_argnames=("model", "chunk_size", "sampling", "rules"),
    donate_argnames="state",  # updates the cache in place
    compiler_options=_LOOP_OPTIONS,
)  # fmt: skip
def decode(
    model: nn.Module,
    params: Any,
    state: DecodingState,  # its buffers are donated
    limit: jax.Array,  # maximum number of tokens per row, at most chunk_size
    *,
    chunk_size: int,
    sampling: SamplingConfig,
    rules: TokenRules,
) -> tuple[DecodingState, jax.Array]:
    """Decodes tokens of every row that is not done: the new state, int32 `[B, chunk_size]`."""
    # Row i's new tokens are the first `new.generated[i] - old.generated[i]`. A -1 means no token
    # could be drawn; it ends the row.
    batch = state.logits.shape[0]

    def unfinished(carry: _Carry) -> jax.Array:
        index, state, _ = carry
        return (index < limit) & ~state.done.all()

    def step(carry: _Carry) -> _Carry:
        index, state, chunk = carry
        token = _next_tokens(state, sampling, rules)  # [B]
        # A row without a token, -1, stops too; the caller reports it.
        stopped = jnp.isin(token, jnp.asarray((-1, *rules.end_tokens), jnp.int32))
        # Rows that are done have length 0: they write nothing to the cache and count nothing.
        active = (~state.done).astype(jnp.int32)  # [B]
        if state.history is not None:
            # Rows that are done write behind their tokens, which is harmless.
            tokens, lengths = state.history
            tokens = tokens.at[jnp.arange(batch), lengths].set(token)
            state = state._replace(history=_History(tokens, lengths + active))
        forward = functools.partial(_next_logits, token=token, active=active, state=state)
        cache, logits = nn.apply(forward, model)({"params": params})
        new = state._replace(
            cache=cache,
            logits=logits,
            generated=state.generated + active,
            done=state.done | stopped,
        )
        return index + 1, new, chunk.at[:, index].set(token)

    chunk = jnp.zeros((batch, chunk_size), jnp.int32)
    _, state, chunk = jax.lax.while_loop(unfinished, step, (jnp.int32(0), state, chunk))
    return state, chunk


def _next_tokens(state: DecodingState, sampling: SamplingConfig, rules: TokenRules) -> jax.Array:
    """Samples a token for every row, int32 `[B]`."""
    # Folds in the row's own count, so that draws do not depend on chunks or other rows.
    rngs = jax.vmap(jax.random.fold_in)(state.rngs, state.generated)  # [B]
    logits = state.logits  # [B, V]
    tokens, lengths = (None, None) if state.history is None else state.history
    is_short = None if state.min_new_tokens is None else state.generated < state.min_new_tokens
    ruled_out = rules.ruled_out(logits.shape[1], tokens, lengths, is_short)
    if ruled_out is not None:
        logits = jnp.where(ruled_out, -jnp.inf, logits)
    seen = None
    if state.history is not None and sampling.repetition_penalty != 1:
        seen = state.history.seen(logits.shape[1])
    return sample(logits, rngs, sampling, seen)


def _next_logits(
    model: nn.Module, *, token: jax.Array, active: jax.Array, state: DecodingState
) -> tuple[Cache | None, jax.Array]:
    """Cache with the new tokens `[B]` of active rows, and logits `[B, V]` of those after them."""
    inputs: TransformerInputs = {"lengths": active, "cache": state.cache}
    if state.cross_cache is not None:
        inputs["cross_cache"] = state.cross_cache
    output = decoder_states(model, token[:, None], inputs)
    return output.cache, model.logits(output.hidden[:, 0])
