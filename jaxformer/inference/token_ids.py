"""Checks of prompts, sources and other token ids; padding of rows to one array."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError, DataError
from jaxformer.functional.checks import check_int, is_int


def check_prompts(
    config: ModelConfig, prompts: Sequence[Sequence[int]], max_new_tokens: int
) -> list[int]:
    """Length of every prompt; DataError if one is empty, unknown or too long for the context."""
    need = "a continuation needs at least one token"
    lengths = _row_lengths("prompt", prompts, config.vocab_size, need)
    if not lengths:
        raise DataError("prompts must have at least one prompt, got none")
    if not is_int(max_new_tokens, 1):
        raise DataError(f"max_new_tokens must be a positive int, got {max_new_tokens!r}")
    for row, length in enumerate(lengths):
        if length + max_new_tokens > config.max_len:
            room = config.max_len - length
            remedy = f"ask for at most {room} new tokens" if room > 0 else "shorten the prompt"
            raise DataError(
                f"prompt {row} has {length} tokens and max_new_tokens={max_new_tokens}, together "
                f"more than the model's context of {config.max_len}; {remedy}"
            )
    return lengths


def check_sources(config: ModelConfig, sources: Sequence[Sequence[int]]) -> list[int]:
    """Length of every source; DataError if one is empty, unknown or longer than max_len."""
    need = "an encoder needs at least one token to read"
    lengths = _row_lengths("source", sources, config.encoder.vocab_size, need)
    for row, length in enumerate(lengths):
        if length > config.max_len:
            raise DataError(
                f"a source must have at most max_len={config.max_len} tokens, got {length} in "
                f"source {row}; cut it into shorter ones"
            )
    return lengths


def as_ids(name: str, tokens: Iterable[int], vocab_size: int | None = None) -> tuple[int, ...]:
    """The ids as a tuple; raises ConfigError unless they are a list of ids of the vocabulary."""
    if not isinstance(tokens, Iterable):
        raise ConfigError(f"{name} must be a list of token ids, got {tokens!r}")
    tokens = tuple(tokens)
    for index, token in enumerate(tokens):
        check_int(f"{name}[{index}]", token, 0, None if vocab_size is None else vocab_size - 1)
    return tokens


def pad_rows(rows: Sequence[Sequence[int]], width: int) -> tuple[jax.Array, jax.Array]:
    """Token ids of all rows, int32 `[B, width]` with zeros behind them, and lengths int32 `[B]`."""
    lengths = np.asarray([len(row) for row in rows], np.int32)
    padded = np.zeros((len(rows), width), np.int32)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return jnp.asarray(padded), jnp.asarray(lengths)


def padded_width(length: int, max_len: int) -> int:
    """Width that rows are padded to: 16, 32 or a multiple of 64, at most max_len."""
    # Few widths mean few programs to compile; 64 would be several times too wide for most prompts.
    widths = (16, 32, round_up(length, 64))
    return min(next(width for width in widths if width >= length), max_len)


def round_up(length: int, step: int) -> int:
    """Rounds up to a multiple of step, so that few shapes compile."""
    return -(-length // step) * step


def _row_lengths(kind: str, rows: Any, vocab_size: int | None, need: str) -> list[int]:
    """Length of every row; DataError unless all are non-empty lists of tokens of the vocabulary."""
    if isinstance(rows, str | bytes) or not hasattr(rows, "__len__"):
        raise DataError(f"{kind}s must be a list of lists of token ids, got {rows!r}")
    lengths = []
    for row, tokens in enumerate(rows):
        ids = np.asarray(tokens)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise DataError(
                f"{kind} {row} must be a list of token ids, got {tokens!r}; pass one such list per "
                "row, as Tokenizer.encode returns it"
            )
        if ids.size == 0:
            raise DataError(f"{kind} {row} is empty; {need}")
        if vocab_size is not None and ((ids < 0) | (ids >= vocab_size)).any():
            index = np.argmax((ids < 0) | (ids >= vocab_size))
            raise DataError(
                f"tokens must be in 0 .. {vocab_size - 1}, got {ids[index]} at index {index} of "
                f"{kind} {row}; encode it with the tokenizer of the model"
            )
        lengths.append(ids.size)
    return lengths
