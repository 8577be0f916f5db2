"""Token files that were made elsewhere: .bin and .npy, memory-mapped."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from jaxformer.errors import DataError
from jaxformer.storage import as_path, in_bucket
from jaxformer.text.sources.file_states import require_stamp
from jaxformer.text.sources.files import opened
from jaxformer.text.store.arrays import JoinedArray, joined, map_array

_HEADER = 256  # int32 numbers at the start of an llm.c file: magic, version, number of tokens
# By magic: version and token type. The first is also the format of modded-nanogpt.
_HEADERS = {20240520: (1, "<u2"), 20240801: (7, "<u4")}

RawType = Literal["auto", "uint16", "uint32"]
"""Type of the numbers of a .bin file without a header."""

_SAMPLE = 2**16  # numbers from which the type is told
_HIGH = 2**4  # upper halves of ids of a vocabulary of at most 2**20 are smaller


class TokenRange(NamedTuple):
    """A range of the tokens of one file."""

    path: pathlib.Path
    tokens: np.ndarray  # memory-mapped
    start: int  # index of the first token in the file
    is_raw: bool  # the file does not state the type of its tokens
    state: tuple[int, int]  # size in bytes, and modification time in nanoseconds

    def require_unchanged(self) -> None:
        """Raises DataError if the file has changed since it was mapped."""
        require_stamp(self.path, self.state)


@dataclasses.dataclass(frozen=True, eq=False)
class TokenFiles:
    """Tokens of files, concatenated and read lazily.

    Args:
        ranges: the range of each file.
    """

    ranges: tuple[TokenRange, ...]

    @property
    def tokens(self) -> np.ndarray | JoinedArray:
        """The tokens: integers [tokens], memory-mapped."""
        return joined([part.tokens for part in self.ranges])

    def split(self, validation_fraction: float) -> "tuple[TokenFiles, TokenFiles]":
        """Splits off the last tokens for validation.

        Args:
            validation_fraction: share of the tokens, more than 0 and less than 1.

        Returns:
            The training tokens and the validation tokens, at least 2 each.

        Raises:
            DataError: one side would have fewer than 2.

        Example:
            >>> import tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp(), "tokens.npy")
            >>> np.save(path, np.arange(10))
            >>> [part.tokens.tolist() for part in map_token_files([path]).split(0.2)]
            [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9]]
        """
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
    first = ranges[0]
    for other in ranges[1:]:
        if other.tokens.dtype != first.tokens.dtype:
            raise DataError(
                f"token files must have numbers of one type, got {first.tokens.dtype} in "
                f"'{first.path}' and {other.tokens.dtype} in '{other.path}'; save all as one type"
            )
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
    with opened(path) as file:  # reports why a file cannot be read
        status = os.fstat(file.fileno())
        start = file.read(4 * _HEADER)
    if not status.st_size:
        raise DataError(f"a token file must have tokens, got the empty '{path}'; leave it out")
    is_raw = False
    if path.suffix.lower() == ".npy":
        tokens = _mapped_npy(path)
    else:
        header = np.frombuffer(start[: len(start) // 4 * 4], "<i4")
        is_raw = not header.size or int(header[0]) not in _HEADERS
        tokens = _mapped_raw(path, status.st_size, dtype) if is_raw else _mapped_llmc(path, header)
    if not tokens.size:
        raise DataError(f"a token file must have tokens, got none in '{path}'; leave it out")
    return TokenRange(path, tokens, 0, is_raw, (status.st_size, status.st_mtime_ns))


def _mapped_npy(path: pathlib.Path) -> np.ndarray:
    tokens = map_array(path, remedy="save it again with np.save")
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise DataError(
            f"a .npy file of tokens must have integers of one axis, got {tokens.dtype} of shape "
            f"{tokens.shape} in '{path}'; save tokens.reshape(-1) as integers"
        )
    return tokens


def _mapped_raw(path: pathlib.Path, size: int, dtype: RawType) -> np.ndarray:
    width = 4 if dtype == "uint32" else 2
    if size % width:
        raise DataError(
            f"a .bin file must have {width} bytes for each token, got {size:,} bytes in '{path}'; "
            "get the whole file again, or save tokens of another type as .npy"
        )
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
    if header.size < _HEADER or header[1] != version:
        got = f"version {header[1]}" if header.size == _HEADER else f"{4 * header.size} bytes"
        raise DataError(
            f"a .bin file of llm.c must have a header of 1,024 bytes in version {version}, "
            f"got {got} in '{path}'; get it again, or save the tokens as .npy"
        )
    size, count = path.stat().st_size - 4 * _HEADER, int(header[2])
    if size != count * np.dtype(dtype).itemsize:
        raise DataError(
            f"'{path}' must have the {count:,} tokens that its header states, got {size:,} "
            f"bytes of {np.dtype(dtype)} after it; get the whole file again"
        )
    if not size:  # nothing to map
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r", offset=4 * _HEADER)
