"""One pass over token files: checked against the vocabulary, and remembered."""

import hashlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.sources.files import require_unchanged
from jaxformer.text.sources.token_files import TokenFiles
from jaxformer.text.store.arrays import JoinedArray
from jaxformer.text.store.ragged import RaggedArray, TokenStream
from jaxformer.text.store.store import Arrays, cache_path, filled_store
from jaxformer.text.tokenizers.tokenizer import Tokenizer

_CHUNK = 2**22  # tokens read at a time
_LAYOUT = 11  # version of what is remembered
_MAX_ID = 2**31 - 1  # tokens on devices are int32


def check_token_files(
    files: TokenFiles,
    tokenizer: Tokenizer,
    cache_dir: pathlib.Path | None,
    *,
    on_progress: Callable[[int], None] = lambda size: None,
) -> TokenStream:
    """Reads tokens once: checks them against the vocabulary, and finds where documents start.

    The result is recorded in `cache_dir`, if there is one. The next call reads nothing if paths,
    sizes and modification times of the files are the same. `on_progress` is called with the number
    of bytes done so far. `num_bytes` of the stream is None if single tokens do not determine it.
    """
    ranges = [
        (*part.state, part.start, part.tokens.size, part.tokens.dtype) for part in files.ranges
    ]

    def fill(append: Callable[[Arrays], None]) -> dict[str, Any]:
        starts, record = _check(files, tokenizer, on_progress)
        append({"documents": RaggedArray(starts)})
        return record

    folder = cache_path(cache_dir, "token_files", _LAYOUT, tokenizer.identity, ranges)
    store = filled_store(folder, fill)
    return TokenStream(
        files.tokens, np.asanyarray(store.arrays["documents"].values), **store.record
    )


def _check(
    files: TokenFiles, tokenizer: Tokenizer, on_progress: Callable[[int], None]
) -> tuple[np.ndarray, dict[str, Any]]:
    """Starts of documents; the number of bytes of their text, and a fingerprint."""
    end, lengths = tokenizer.end_of_text, tokenizer.byte_lengths()
    # A mask token that was added for training occurs in no text.
    vocab_size = tokenizer.vocab_size - (tokenizer.mask == tokenizer.vocab_size - 1)
    digest = hashlib.sha256(files.tokens.dtype.str.encode())
    ends, size, num_bytes, done = [np.zeros(0, np.int64)], 0, 0, 0
    for part in files.ranges:
        name = f"'{part.path}'"
        for begin, chunk in checked_chunks(part.tokens, vocab_size, name, part.start):
            digest.update(np.ascontiguousarray(chunk).data)
            if end is not None:
                ends.append(np.flatnonzero(chunk == end) + size + begin)
            if lengths is not None:
                num_bytes += int(lengths[chunk].sum())
            done += chunk.nbytes
            on_progress(done)
        size += part.tokens.size
    require_unchanged([part.state for part in files.ranges])
    record = {
        "num_bytes": None if lengths is None else num_bytes, "fingerprint": digest.hexdigest()
    }  # fmt: skip
    return document_starts(np.concatenate(ends), size), record


def checked_chunks(
    tokens: np.ndarray | JoinedArray, vocab_size: int | None, name: str, start: int = 0
) -> Iterator[tuple[int, np.ndarray]]:
    """Checks tokens in constant memory; yields chunks, each with the index where it begins."""
    for begin in range(0, tokens.size, _CHUNK):
        chunk = np.asarray(tokens[begin : begin + _CHUNK])
        require_token_ids(chunk, vocab_size, name, start + begin)
        yield begin, chunk


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
    """Starts of documents: int64 [documents], 0 and after each end except the last token."""
    starts = np.concatenate([np.zeros(1, np.int64), ends + 1])
    return starts[: np.searchsorted(starts, size)]
