"""One pass over token files, recorded so that unchanged files are not read again."""

import hashlib
import json
import os
import pathlib
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxformer.errors import DataError
from jaxformer.storage import make_folder, write_whole
from jaxformer.text.batches.windows import TokenStream
from jaxformer.text.sources.token_files import TokenFiles, TokenRange
from jaxformer.text.sources.token_scan import document_starts, scan_tokens
from jaxformer.text.store.array_files import map_array, write_array
from jaxformer.text.tokenizers.tokenizer import Tokenizer

__all__ = ["CheckedTokens", "check_token_files"]

_LAYOUT = 1  # version of a record's layout; part of its name


class CheckedTokens(NamedTuple):
    """Tokens of files that were checked against a tokenizer's vocabulary.

    Args:
        stream: the tokens, memory-mapped; documents end with the end of text.
        num_bytes: UTF-8 bytes of their text; None if single tokens do not determine it.
        fingerprint: SHA-256 of the tokens and their type.
    """

    stream: TokenStream
    num_bytes: int | None
    fingerprint: str


def check_token_files(
    files: TokenFiles,
    tokenizer: Tokenizer,
    cache_dir: pathlib.Path | None,
    *,
    on_progress: Callable[[int], None] = lambda size: None,
) -> CheckedTokens:
    """Reads tokens once: checks them against the vocabulary, and finds where documents start.

    The result is recorded in `cache_dir`. The next call reads nothing if paths, sizes and
    modification times of the files are the same.

    Args:
        files: the tokens.
        tokenizer: tokenizer that they were made with.
        cache_dir: folder for the records; None for no records.
        on_progress: called with the number of bytes done so far.

    Returns:
        The tokens as a stream.

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
        >>> checked = check_token_files(files, byte_tokenizer(), folder / "cache")
        >>> checked.stream.offsets.tolist(), checked.num_bytes
        ([0, 3], 3)
    """
    for one in files.ranges:
        if one.is_raw and tokenizer.vocab_size > 2**16:
            raise DataError(
                "a .bin file without a header has tokens of two bytes, got a tokenizer of "
                f"vocab_size={tokenizer.vocab_size} for '{one.path}'; save the tokens as .npy"
            )
    path = None
    if cache_dir is not None:
        path = cache_dir / "token_files" / f"{_key(files, tokenizer)}.json"
        if (found := _read(path, files)) is not None:
            return found
    checked = _check(files, tokenizer, on_progress)
    if path is None:
        return checked
    make_folder(path.parent)
    starts = checked.stream.offsets
    write_array(path.with_suffix(".npy"), starts)
    values = {
        "starts": zlib.crc32(starts.data), "num_bytes": checked.num_bytes,
        "fingerprint": checked.fingerprint,
    }  # fmt: skip
    write_whole(path, json.dumps(values))
    return _read(path, files) or checked  # maps the document starts, too


def _check(
    files: TokenFiles, tokenizer: Tokenizer, on_progress: Callable[[int], None]
) -> CheckedTokens:
    tokens, lengths = files.tokens, tokenizer.byte_lengths()
    # A mask token that was added for training occurs in no text.
    vocab_size = tokenizer.vocab_size - (tokenizer.mask == tokenizer.vocab_size - 1)
    digest = hashlib.sha256(tokens.dtype.str.encode())
    counts, ends = np.zeros(vocab_size, np.int64), []
    begin = done = 0

    def update(chunk: np.ndarray) -> None:
        nonlocal done
        digest.update(np.ascontiguousarray(chunk).data)
        done += chunk.nbytes
        on_progress(done)

    for one in files.ranges:
        one.require_unchanged()
        scan = scan_tokens(
            one.tokens, vocab_size=vocab_size, end_of_text=tokenizer.end_of_text,
            name=f"'{one.path}'", start=one.start, on_chunk=update,
        )  # fmt: skip
        one.require_unchanged()
        assert scan.counts is not None
        counts += scan.counts
        ends.append(scan.ends + begin)
        begin += one.tokens.size
    stream = TokenStream(tokens, document_starts(np.concatenate(ends), begin))
    num_bytes = None if lengths is None else int(counts @ lengths[:vocab_size])
    return CheckedTokens(stream, num_bytes, digest.hexdigest())


def _key(files: TokenFiles, tokenizer: Tokenizer) -> str:
    digest = hashlib.sha256(f"{_LAYOUT}\0{tokenizer.identity}".encode())
    for one in files.ranges:
        digest.update(_place(one).encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _place(one: TokenRange) -> str:
    """Identifies the tokens of a file without reading them."""
    path = os.path.realpath(one.path)
    return repr((path, one.state, one.start, one.tokens.size, one.tokens.dtype.str))


def _read(path: pathlib.Path, files: TokenFiles) -> CheckedTokens | None:
    """The record of files; None if it is missing or damaged."""
    try:
        values = json.loads(path.read_bytes())
        starts = map_array(path.with_suffix(".npy"), remedy="check again")
        if zlib.crc32(starts.data) != values["starts"]:
            return None
        stream = TokenStream(files.tokens, starts)
        return CheckedTokens(stream, values["num_bytes"], values["fingerprint"])
    except Exception:  # a record with any fault is made again
        return None
