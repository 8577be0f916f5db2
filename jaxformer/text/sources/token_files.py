"""Token files that were made elsewhere: .bin and .npy, memory-mapped, and checked once."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

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

RawType = Literal["auto", "uint16", "uint32"]
"""Type of the numbers of a .bin file without a header."""

_SAMPLE = 2**16  # numbers from which the type is told
_HIGH = 2**4  # upper halves of ids of a vocabulary of at most 2**20 are smaller
_CHUNK = 2**22  # tokens read at a time
_LAYOUT = 11  # version of what is remembered
_MAX_ID = 2**31 - 1  # tokens on devices are int32


class TokenRange(NamedTuple):
    """A range of the tokens of one file."""

    path: pathlib.Path
    tokens: np.ndarray  # memory-mapped
    start: int  # index of the first token in the file
    is_raw: bool  # the file does not state the type of its tokens
    state: FileState  # when it was mapped


@dataclasses.dataclass(frozen=True, eq=False)
class TokenFiles:
    """Tokens of files, concatenated and read lazily."""

    ranges: tuple[TokenRange, ...]

    @property
    def tokens(self) -> np.ndarray | JoinedArray:
        """The tokens: integers [tokens], memory-mapped."""
        arrays = [part.tokens for part in self.ranges]
        return arrays[0] if len(arrays) == 1 else JoinedArray(arrays)

    def split(self, validation_fraction: float) -> "tuple[TokenFiles, TokenFiles]":
        """Splits off a share of the tokens, the last ones, for validation."""
        total = sum(part.tokens.size for part in self.ranges)
        train = total - round(validation_fraction * total)
        if train < 2 or total - train < 2:
            raise DataError(
                f"both sides of a split must have at least 2 tokens, got {train} for training and "
                f"{total - train} for validation with validation_fraction={validation_fraction}; "
                "add tokens, or change the fraction"
            )
        sides: tuple[list[TokenRange], list[TokenRange]] = [], []
        begin = 0
        for part in self.ranges:
            cut = min(max(train - begin, 0), part.tokens.size)
            head = part._replace(tokens=part.tokens[:cut])
            tail = part._replace(tokens=part.tokens[cut:], start=part.start + cut)
            for side, piece in zip(sides, (head, tail), strict=True):
                if piece.tokens.size:
                    side.append(piece)
            begin += part.tokens.size
        return TokenFiles(tuple(sides[0])), TokenFiles(tuple(sides[1]))


def map_token_files(files: Sequence[pathlib.Path], *, dtype: RawType = "auto") -> TokenFiles:
    """Memory-maps token files.

    A `.bin` file has little-endian tokens and nothing else: uint16, as nanoGPT writes them, or
    uint32. Or it begins with the header of llm.c, which states the number of tokens and whether
    they are uint16 or uint32. A `.npy` file has integers of any type, with one axis.

    Args:
        files: at least one file; all with the same type of numbers.
        dtype: type of the numbers of a `.bin` file without a header. "auto" takes them as uint32 if
            every second uint16 is zero or nearly so, as the upper halves of token ids are.

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
    ranges = tuple(_mapped(as_path(file), dtype) for file in files)
    if len({part.tokens.dtype for part in ranges}) > 1:
        got = ", ".join(f"{part.tokens.dtype} in '{part.path}'" for part in ranges[:8])
        raise DataError(f"token files must have numbers of one type, got {got}; save all as one")
    return TokenFiles(ranges)


def _mapped(path: pathlib.Path, dtype: RawType) -> TokenRange:
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
    is_raw = False
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
        is_raw = not header.size or int(header[0]) not in _HEADERS
        tokens = _mapped_raw(path, state.size, dtype) if is_raw else _mapped_llmc(path, header)
    if not tokens.size:
        raise DataError(f"a token file must have tokens, got none in '{path}'; leave it out")
    return TokenRange(path, tokens, 0, is_raw, state)


def _mapped_raw(path: pathlib.Path, size: int, dtype: RawType) -> np.ndarray:
    width = 4 if dtype == "uint32" else 2
    if size % width:
        raise DataError(
            f"a .bin file must have {width} bytes for each token, got {size:,} bytes in '{path}'; "
            "get the whole file again, or save tokens of another type as .npy"
        )
    if not size:  # nothing to map
        return np.zeros(0, "<u2")
    if dtype == "auto" and size % 4 == 0:
        width = 4 if _are_halves(np.memmap(path, "<u2", mode="r")) else 2
    return np.memmap(path, f"<u{width}", mode="r")


def _are_halves(numbers: np.ndarray) -> bool:
    """Whether numbers are lower and upper halves of token ids, in turns; by their start."""
    lower, upper = numbers[:_SAMPLE:2], numbers[1:_SAMPLE:2]
    if upper.max() == 0:
        return bool(lower.any())
    return bool(upper.max() < _HIGH <= lower.max())


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
    files: TokenFiles,
    tokenizer: Tokenizer,
    cache_dir: pathlib.Path | None,
    *,
    on_progress: Callable[[int], None] = lambda size: None,
) -> TokenStream:
    """Checks tokens against the vocabulary, and finds where documents start; once per cache.

    `on_progress` is called with the number of bytes done so far.
    """
    ranges = [
        (*part.state, part.start, part.tokens.size, part.tokens.dtype) for part in files.ranges
    ]

    def fill(append: Callable[[Arrays], None]) -> dict[str, Any]:
        starts, record = _check(files, tokenizer, on_progress)
        append({"documents": RaggedArray(starts)})
        return record

    folder = cache_path(cache_dir, "token_files", _LAYOUT, tokenizer.identity, ranges)
    arrays, record = filled_store(folder, fill)
    return TokenStream(files.tokens, np.asanyarray(arrays["documents"].values), **record)


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
