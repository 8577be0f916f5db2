"""One pass over tokens: checks them against the vocabulary, and finds where documents end."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.store.mapped_files import require_whole
from jaxformer.text.store.sharded_tokens import ShardedTokens

__all__ = ["TokenScan", "document_starts", "require_token_ids", "scan_tokens"]

_CHUNK = 2**22  # tokens read at a time
_MAX_ID = 2**31 - 1  # tokens on devices are int32


class TokenScan(NamedTuple):
    """Result of one pass over tokens.

    Args:
        ends: int64 [ends], indices of the tokens that end a document.
        counts: int64 [vocab_size], number of occurrences of each token; None if the vocabulary is
            unknown.
    """

    ends: np.ndarray
    counts: np.ndarray | None


def scan_tokens(
    tokens: np.ndarray | ShardedTokens,
    *,
    vocab_size: int | None,
    end_of_text: int | None,
    name: str,
    start: int = 0,
    on_chunk: Callable[[np.ndarray], None] = lambda chunk: None,
) -> TokenScan:
    """Checks tokens, counts them, and finds the ends of documents, in constant memory.

    Args:
        tokens: integers [tokens].
        vocab_size: size of the vocabulary; None if unknown.
        end_of_text: token that ends a document; None for none.
        name: name of the tokens in messages.
        start: index of the first token in messages.
        on_chunk: called with each chunk of tokens.

    Raises:
        DataError: a token is negative or not in the vocabulary, or a file was truncated.

    Example:
        >>> scan = scan_tokens(np.array([5, 0, 7, 0]), vocab_size=9, end_of_text=0, name="tokens")
        >>> scan.ends.tolist(), scan.counts.tolist()
        ([1, 3], [2, 0, 0, 0, 0, 1, 0, 1, 0])
    """
    ends = [np.zeros(0, np.int64)]
    counts = None if vocab_size is None else np.zeros(vocab_size, np.int64)
    for begin in range(0, tokens.size, _CHUNK):
        require_whole(tokens)
        chunk = np.asarray(tokens[begin : begin + _CHUNK])
        require_token_ids(chunk, vocab_size, name, start + begin)
        if counts is not None:
            # int64, since older versions of NumPy cannot count uint64.
            counts += np.bincount(chunk.astype(np.int64, copy=False), minlength=counts.size)
        if end_of_text is not None:
            ends.append(np.flatnonzero(chunk == end_of_text) + begin)
        on_chunk(chunk)
    return TokenScan(np.concatenate(ends), counts)


def require_token_ids(ids: np.ndarray, vocab_size: int | None, name: str, start: int = 0) -> None:
    """Raises DataError for the first token that is negative or not in the vocabulary."""
    if not ids.size:
        return
    most = _MAX_ID if vocab_size is None else vocab_size - 1
    if ids.min() >= 0 and ids.max() <= most:
        return
    index = int(np.flatnonzero((ids < 0) | (ids > most))[0])
    of = "2**31" if vocab_size is None else f"the tokenizer's vocab_size={vocab_size}"
    raise DataError(
        f"tokens must be at least 0 and less than {of}, got {ids[index]} at index {start + index} "
        f"of {name}; " + ("correct it" if vocab_size is None else "use the tokenizer of the tokens")
    )


def document_starts(ends: np.ndarray, size: int) -> np.ndarray:
    """Where documents start: int64 [documents], 0 and after each end except the last token.

    Example:
        >>> document_starts(np.array([1, 3]), size=4), document_starts(np.array([1, 2]), size=4)
        (array([0, 2]), array([0, 2, 3]))
    """
    starts = np.concatenate([np.zeros(1, np.int64), ends + 1])
    return starts[: np.searchsorted(starts, size)]
