"""Files of tokens that were made elsewhere: .bin and .npy, memory-mapped."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.array_files import map_array
from jaxformer.text.file_states import require_stamp
from jaxformer.text.files import opened
from jaxformer.text.sharded_tokens import ShardedTokens

__all__ = ["TokenFiles", "TokenRange", "map_token_files"]

_HEADER = 256  # int32 numbers at the start of a file of llm.c: magic, version, number of tokens
# By magic: version and type of the tokens. The first is modded-nanogpt's format as well.
_HEADERS = {20240520: (1, "<u2"), 20240801: (7, "<u4")}


class TokenRange(NamedTuple):
    """Tokens of one file, from some index on.

    Args:
        path: of the file.
        tokens: integers [tokens], memory-mapped.
        start: index in the file of the first of them.
        is_raw: whether they are uint16 because nothing in the file says another type.
        state: size of the file in bytes, and time of its last change in nanoseconds.
    """

    path: pathlib.Path
    tokens: np.ndarray
    start: int
    is_raw: bool
    state: tuple[int, int]

    def require_unchanged(self) -> None:
        """Raises DataError where the file is not as it was when it was mapped."""
        require_stamp(self.path, self.state)


@dataclasses.dataclass(frozen=True, eq=False)
class TokenFiles:
    """Tokens of files, one file after the other; none is read before it is asked for.

    Args:
        ranges: of each file the tokens that are among these.
    """

    ranges: tuple[TokenRange, ...]

    @property
    def tokens(self) -> np.ndarray | ShardedTokens:
        """The tokens: integers [tokens], memory-mapped."""
        arrays = [one.tokens for one in self.ranges]
        return arrays[0] if len(arrays) == 1 else ShardedTokens(arrays)

    def split(self, validation_fraction: float) -> "tuple[TokenFiles, TokenFiles]":
        """Splits off the last tokens for validation.

        Args:
            validation_fraction: share of the tokens, more than 0 and less than 1.

        Returns:
            Those for training, and those for validation, at least 2 of each.

        Raises:
            DataError: one side would have fewer.

        Example:
            >>> import tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp(), "tokens.npy")
            >>> np.save(path, np.arange(10))
            >>> [part.tokens.tolist() for part in map_token_files([path]).split(0.2)]
            [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9]]
        """
        total = sum(one.tokens.size for one in self.ranges)
        train = total - round(validation_fraction * total)
        if train < 2 or total - train < 2:
            raise DataError(
                f"both sides of a split must have at least 2 tokens, got {train} for training and "
                f"{total - train} for validation with validation_fraction={validation_fraction}; "
                "add tokens, or change the fraction"
            )
        sides: tuple[list[TokenRange], list[TokenRange]] = [], []
        begin = 0
        for one in self.ranges:
            cut = min(max(train - begin, 0), one.tokens.size)
            head = one._replace(tokens=one.tokens[:cut])
            tail = one._replace(tokens=one.tokens[cut:], start=one.start + cut)
            for side, part in zip(sides, (head, tail), strict=True):
                if part.tokens.size:
                    side.append(part)
            begin += one.tokens.size
        return TokenFiles(tuple(sides[0])), TokenFiles(tuple(sides[1]))


def map_token_files(files: Sequence[pathlib.Path]) -> TokenFiles:
    """Maps files of tokens, which stay where they are.

    A `.bin` file holds tokens of two bytes, the low one first, and nothing else, as nanoGPT writes
    them; or it begins with the header of llm.c, which says how many there are, and whether they
    have two bytes or four. A `.npy` file holds integers of any type, with one axis.

    Args:
        files: at least one; all with numbers of one type.

    Returns:
        The tokens of all files in their order, as one stream: a document may go on in the next.

    Raises:
        DataError: a file is missing, empty, not whole, or not of its kind; or they differ in type.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "train.bin")
        >>> np.array([5, 3, 2], np.uint16).tofile(path)
        >>> map_token_files([path]).tokens
        memmap([5, 3, 2], dtype=uint16)
    """
    if not files:
        raise DataError("files must be a list of token files, got none; name one")
    ranges = tuple(_mapped(file) for file in files)
    first = ranges[0]
    for other in ranges[1:]:
        if other.tokens.dtype != first.tokens.dtype:
            raise DataError(
                f"token files must have numbers of one type, got {first.tokens.dtype} in "
                f"'{first.path}' and {other.tokens.dtype} in '{other.path}'; save them alike"
            )
    return TokenFiles(ranges)


def _mapped(path: pathlib.Path) -> TokenRange:
    """Maps one file."""
    if path.suffix.lower() not in (".bin", ".npy"):
        raise DataError(
            f"a token file must end in .bin or .npy, got '{path}'; rename or convert it"
        )
    with opened(path) as file:  # which says why a file cannot be
        found = os.fstat(file.fileno())
        start = file.read(4 * _HEADER)
    if not found.st_size:
        raise DataError(f"a token file must have tokens, got the empty '{path}'; leave it out")
    is_raw = False
    if path.suffix.lower() == ".npy":
        tokens = _mapped_npy(path)
    else:
        header = np.frombuffer(start[: len(start) // 4 * 4], "<i4")
        is_raw = not header.size or int(header[0]) not in _HEADERS
        tokens = _mapped_raw(path, found.st_size) if is_raw else _mapped_llmc(path, header)
    if not tokens.size:
        raise DataError(f"a token file must have tokens, got none in '{path}'; leave it out")
    return TokenRange(path, tokens, 0, is_raw, (found.st_size, found.st_mtime_ns))


def _mapped_npy(path: pathlib.Path) -> np.ndarray:
    tokens = map_array(path, remedy="save it again by np.save")
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise DataError(
            f"a .npy file of tokens must have integers of one axis, got {tokens.dtype} of shape "
            f"{tokens.shape} in '{path}'; save tokens.reshape(-1) as integers"
        )
    return tokens


def _mapped_raw(path: pathlib.Path, size: int) -> np.ndarray:
    if size % 2:
        raise DataError(
            f"a .bin file must have two bytes for each token, got {size:,} bytes in '{path}'; get "
            "it again as a whole, or save tokens of another type as .npy"
        )
    return np.memmap(path, "<u2", mode="r")


def _mapped_llmc(path: pathlib.Path, header: np.ndarray) -> np.ndarray:
    version, dtype = _HEADERS[int(header[0])]
    if header.size < _HEADER or header[1] != version:
        got = f"version {header[1]}" if header.size == _HEADER else f"{4 * header.size} bytes"
        raise DataError(
            f"a .bin file with the header of llm.c must have its 1,024 bytes in version {version}, "
            f"got {got} in '{path}'; get it again, or save the tokens as .npy"
        )
    size, count = path.stat().st_size - 4 * _HEADER, int(header[2])
    if size != count * np.dtype(dtype).itemsize:
        raise DataError(
            f"'{path}' must have the {count:,} tokens that its header counts, got {size:,} "
            f"bytes of {np.dtype(dtype)} behind it; get it again as a whole"
        )
    if not size:  # which cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r", offset=4 * _HEADER)
