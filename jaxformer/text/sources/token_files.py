"""Token files that were made elsewhere: .bin and .npy, memory-mapped, and checked once."""

import hashlib
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxformer.errors import DataError
from jaxformer.storage import as_path, in_bucket
from jaxformer.text.sources.files import FileState, file_states, readable
from jaxformer.text.store.arrays import JoinedArray, RaggedArray, TokenStream, map_array
from jaxformer.text.store.store import Arrays, cache_path, filled_store
from jaxformer.text.tokenizers.tokenizer import Tokenizer

_HEADER = 256  # int32 numbers at the start of an llm.c file: magic, version, number of tokens
# By magic: version and token type. The first is also the format of modded-nanogpt.
_HEADERS = {20240520: (1, "<u2"), 20240801: (7, "<u4")}

_CHUNK = 2**22  # tokens read at a time
_LAYOUT = 12  # version of what is remembered
_SAMPLE = 2**16  # numbers from which wider ones are told


class TokenFiles(NamedTuple):
    """Tokens of files, concatenated and read lazily."""

    arrays: tuple[np.ndarray, ...]  # memory-mapped, one of each file
    states: tuple[FileState, ...]  # when they were mapped

    @property
    def tokens(self) -> np.ndarray | JoinedArray:
        """The tokens: integers [tokens], memory-mapped."""
        return self.arrays[0] if len(self.arrays) == 1 else JoinedArray(self.arrays)


def map_token_files(files: Sequence[pathlib.Path]) -> TokenFiles:
    """Memory-maps token files.

    A `.bin` file has little-endian uint16 tokens and nothing else, as nanoGPT writes them. Or it
    begins with the header of llm.c, which states the number of tokens and whether they are uint16
    or uint32. A `.npy` file has integers of any type, with one axis.

    Args:
        files: at least one file; all with the same type of numbers.

    Returns:
        The tokens of all files, in order, as one stream: a document may continue in the next file.

    Raises:
        DataError: a file is missing, empty, incomplete, or not of its kind; or they differ in type.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "train.bin")
        >>> np.array([5, 3, 2], np.uint16).tofile(path)
        >>> map_token_files([path]).tokens
        memmap([5, 3, 2], dtype=uint16)
    """
    if not files:
        raise DataError("files must be a list of token files, got none; name one")
    arrays, states = zip(*(_mapped(as_path(file)) for file in files), strict=True)
    if len({tokens.dtype for tokens in arrays}) > 1:
        types = [f"{array.dtype} in '{file}'" for array, file in zip(arrays, files, strict=True)]
        raise DataError(
            f"token files must have numbers of one type, got {', '.join(types[:8])}; save all as "
            "one"
        )
    return TokenFiles(arrays, states)


def _mapped(path: pathlib.Path) -> tuple[np.ndarray, FileState]:
    """Maps one file."""
    if path.suffix.lower() not in (".bin", ".npy"):
        raise DataError(
            f"a token file must end in .bin or .npy, got '{path}'; rename or convert it"
        )
    if in_bucket(path):
        raise DataError(
            f"a token file is memory-mapped, so it must be on a disk, got '{path}'; copy it first "
            f"with: gcloud storage cp {path} ."
        )
    (state,) = file_states([path])
    if path.suffix.lower() == ".npy":
        tokens = map_array(path, remedy="save it again with np.save")
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise DataError(
                f"a .npy file of tokens must have integers of one axis, got {tokens.dtype} of "
                f"shape {tokens.shape} in '{path}'; save tokens.reshape(-1) as integers"
            )
    else:
        with readable(path):
            header = np.fromfile(path, "<i4", _HEADER)
        has_header = header.size and int(header[0]) in _HEADERS
        tokens = _mapped_llmc(path, header) if has_header else _mapped_raw(path, state.size)
    if not tokens.size:
        raise DataError(f"a token file must have tokens, got none in '{path}'; leave it out")
    return tokens, state


def _mapped_raw(path: pathlib.Path, size: int) -> np.ndarray:
    if not size:  # nothing to map
        return np.zeros(0, "<u2")
    tokens = np.memmap(path, "<u2", mode="r", shape=size // 2)
    has_zeros = size > 4 and tokens[:_SAMPLE].any() and not tokens[1:_SAMPLE:2].any()
    if size % 2 or has_zeros:
        got = "every second number 0, as if of four bytes," if has_zeros else f"{size:,} bytes"
        raise DataError(
            "a .bin file without a header must have two bytes for each token, as nanoGPT writes "
            f"them, got {got} in '{path}'; save the tokens as .npy"
        )
    return tokens


def _mapped_llmc(path: pathlib.Path, header: np.ndarray) -> np.ndarray:
    version, dtype = _HEADERS[int(header[0])]
    count = int(header[2]) if header.size == _HEADER and header[1] == version else 0
    size = 4 * _HEADER + count * np.dtype(dtype).itemsize
    if not count or path.stat().st_size != size:
        raise DataError(
            f"a .bin file of llm.c must have a header of version {version}, and the tokens that it "
            f"states, got {path.stat().st_size:,} bytes and the header {header[:3]} in '{path}'; "
            "get it again, or save the tokens as .npy"
        )
    return np.memmap(path, dtype, mode="r", offset=4 * _HEADER)


def check_token_files(
    files: TokenFiles, tokenizer: Tokenizer, cache_dir: pathlib.Path | None
) -> TokenStream:
    """Checks tokens against the vocabulary, and finds where documents start; once per cache."""

    def fill(append: Callable[[Arrays], None]) -> dict[str, Any]:
        starts, record = _check(files, tokenizer)
        append({"documents": RaggedArray(starts)})
        return record

    key = tokenizer.identity, [tuple(state) for state in files.states]
    arrays, record = filled_store(cache_path(cache_dir, "token_files", _LAYOUT, *key), fill)
    return TokenStream(files.tokens, np.asanyarray(arrays["documents"].values), **record)


def _check(files: TokenFiles, tokenizer: Tokenizer) -> tuple[np.ndarray, dict[str, Any]]:
    """Starts of documents; the number of bytes of their text, and a fingerprint."""
    end, lengths = tokenizer.end_of_text, tokenizer.byte_lengths()
    # A mask token that was added for training occurs in no text.
    vocab_size = tokenizer.vocab_size - (tokenizer.mask == tokenizer.vocab_size - 1)
    if files.tokens.dtype.itemsize == 2 and vocab_size > 2**16:
        raise DataError(
            f"tokens of two bytes must be of a vocabulary of at most 65,536, got {vocab_size:,} in "
            "the tokenizer; save the tokens as .npy of a wider type"
        )
    digest = hashlib.sha256(files.tokens.dtype.str.encode())
    ends, size, num_bytes = list[np.ndarray](), 0, 0
    for tokens, state in zip(files.arrays, files.states, strict=True):
        for begin, chunk in _checked_chunks(tokens, vocab_size, state.path):
            digest.update(np.ascontiguousarray(chunk).data)
            if end is not None:
                ends.append(np.flatnonzero(chunk == end) + size + begin)
            if lengths is not None:
                num_bytes += int(lengths[chunk].sum())
        size += tokens.size
    record = {
        "num_bytes": None if lengths is None else num_bytes, "fingerprint": digest.hexdigest()
    }  # fmt: skip
    # A document starts after each end of another, except after the last token.
    starts = np.concatenate([np.zeros(1, np.int64), *(part + 1 for part in ends)])
    return starts[: np.searchsorted(starts, size)], record


def _checked_chunks(
    tokens: np.ndarray, vocab_size: int, path: str
) -> Iterator[tuple[int, np.ndarray]]:
    """Checks tokens in constant memory; yields chunks, each with the index where it begins."""
    for begin in range(0, tokens.size, _CHUNK):
        chunk = np.asarray(tokens[begin : begin + _CHUNK])
        if chunk.min() < 0 or chunk.max() >= vocab_size:
            index = int(np.flatnonzero((chunk < 0) | (chunk >= vocab_size))[0])
            raise DataError(
                f"tokens must be at least 0 and less than the tokenizer's vocab_size={vocab_size}, "
                f"got {chunk[index]} at index {begin + index} of '{path}'; use the tokenizer of "
                "the tokens"
            )
        yield begin, chunk
