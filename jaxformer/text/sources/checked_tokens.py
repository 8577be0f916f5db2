"""One pass over token files: checked against the vocabulary, and remembered."""

import hashlib
import pathlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.sources.files import require_unchanged
from jaxformer.text.sources.token_files import TokenFiles
from jaxformer.text.store.arrays import JoinedArray
from jaxformer.text.store.ragged import RaggedArray, TokenStream
from jaxformer.text.store.store import Arrays, Record, cache_path, filled_store
from jaxformer.text.tokenizers.tokenizer import Tokenizer

_CHUNK = 2**22  # tokens read at a time
_LAYOUT = 9  # version of what is remembered
_MAX_ID = 2**31 - 1  # tokens on devices are int32


def check_token_files(
    files: TokenFiles,
    tokenizer: Tokenizer,
    cache_dir: pathlib.Path | None,
    *,
    on_progress: Callable[[int], None] = lambda size: None,
) -> TokenStream:
    """Reads tokens once: checks them against the vocabulary, and finds where documents start.

    The result is recorded in `cache_dir`. The next call reads nothing if paths, sizes and
    modification times of the files are the same.

    Args:
        files: the tokens.
        tokenizer: tokenizer that they were made with.
        cache_dir: folder for the records; None for no records.
        on_progress: called with the number of bytes done so far.

    Returns:
        The tokens as a stream; `num_bytes` is None if single tokens do not determine it.

    Raises:
        DataError: a token is not in the vocabulary, a file has changed, or there are fewer than 2
            tokens.
        StorageError: the record cannot be written.

    Example:
        >>> import tempfile
        >>> from jaxformer.text import byte_tokenizer, map_token_files
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.array([104, 105, 256, 33], np.uint16).tofile(folder / "train.bin")
        >>> files = map_token_files([folder / "train.bin"])
        >>> stream = check_token_files(files, byte_tokenizer(), folder / "cache")
        >>> stream.offsets.tolist(), stream.num_bytes
        ([0, 3], 3)
    """
    for part in files.ranges:
        if part.is_raw and part.tokens.itemsize == 2 and tokenizer.vocab_size > 2**16:
            raise DataError(
                "token ids of two bytes are below 65,536, got a tokenizer of "
                f"vocab_size={tokenizer.vocab_size} for '{part.path}', which has no header; if its "
                'ids have four bytes, set dtype to "uint32"'
            )
    ranges = [
        (*part.state, part.start, part.tokens.size, part.tokens.dtype) for part in files.ranges
    ]

    def make(_: Sequence[Record]) -> Iterator[tuple[Arrays, Record]]:
        starts, record = _check(files, tokenizer, on_progress)
        yield {"documents": RaggedArray(starts)}, {**record, "end": None}

    folder = cache_path(cache_dir, "token_files", _LAYOUT, tokenizer.identity, ranges)
    store = filled_store(folder, make)
    (record,), starts = store.records, np.asanyarray(store.arrays["documents"].values)
    return TokenStream(files.tokens, starts, record["num_bytes"], record["fingerprint"])


def _check(
    files: TokenFiles, tokenizer: Tokenizer, on_progress: Callable[[int], None]
) -> tuple[np.ndarray, Record]:
    """Starts of documents; the number of bytes of their text, and a fingerprint."""
    tokens, lengths = files.tokens, tokenizer.byte_lengths()
    # A mask token that was added for training occurs in no text.
    vocab_size = tokenizer.vocab_size - (tokenizer.mask == tokenizer.vocab_size - 1)
    digest = hashlib.sha256(tokens.dtype.str.encode())
    counts, ends = np.zeros(vocab_size, np.int64), []
    begin = done = 0

    def update(chunk: np.ndarray) -> None:
        nonlocal done, counts
        digest.update(np.ascontiguousarray(chunk).data)
        # int64, since older versions of NumPy cannot count uint64.
        counts += np.bincount(chunk.astype(np.int64, copy=False), minlength=vocab_size)
        done += chunk.nbytes
        on_progress(done)

    for part in files.ranges:
        require_unchanged([part.state])
        places = scan_tokens(
            part.tokens, vocab_size=vocab_size, end_of_text=tokenizer.end_of_text,
            name=f"'{part.path}'", start=part.start, on_chunk=update,
        )  # fmt: skip
        require_unchanged([part.state])
        ends.append(places + begin)
        begin += part.tokens.size
    starts = document_starts(np.concatenate(ends), begin)
    num_bytes = None if lengths is None else int(counts @ lengths[:vocab_size])
    return starts, {"num_bytes": num_bytes, "fingerprint": digest.hexdigest()}


def scan_tokens(
    tokens: np.ndarray | JoinedArray,
    *,
    vocab_size: int | None,
    end_of_text: int | None,
    name: str,
    start: int = 0,
    on_chunk: Callable[[np.ndarray], None] = lambda chunk: None,
) -> np.ndarray:
    """Checks tokens in constant memory; indices of those that end a document: int64 [ends]."""
    ends = [np.zeros(0, np.int64)]
    for begin in range(0, tokens.size, _CHUNK):
        chunk = np.asarray(tokens[begin : begin + _CHUNK])
        require_token_ids(chunk, vocab_size, name, start + begin)
        if end_of_text is not None:
            ends.append(np.flatnonzero(chunk == end_of_text) + begin)
        on_chunk(chunk)
    return np.concatenate(ends)


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
