"""From documents to one stream of tokens, its cache on disk, and the sequences it is cut into."""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import tempfile
import warnings
import zlib
from collections.abc import Sequence

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.sharded_tokens import ShardedTokens
from jaxformer.text.tokenizers import Tokenizer

__all__ = [
    "IGNORE",
    "PackedDocuments",
    "TokenStream",
    "Windows",
    "build_stream",
    "cached_stream",
    "default_cache_dir",
    "token_dtype",
]

IGNORE = -1
"""The label of a position where nothing is to be predicted."""


@dataclasses.dataclass(frozen=True, eq=False)
class TokenStream:
    """The tokens of all documents, one after the other.

    Args:
        tokens: uint16 or int32 [tokens]; may be memory-mapped, and in several files.
        offsets: int64 [documents], where each document starts, in tokens.

    Raises:
        DataError: there are fewer than 2 tokens, too few to predict one.

    Example:
        >>> TokenStream(np.array([5, 3, 2], np.uint16), np.array([0, 2])).tokens.size
        3
    """

    tokens: np.ndarray | ShardedTokens
    offsets: np.ndarray

    def __post_init__(self) -> None:
        if self.tokens.size < 2:
            raise DataError(
                f"a stream must have at least 2 tokens, got {self.tokens.size} from "
                f"{self.offsets.size} documents; add text"
            )


def build_stream(documents: Sequence[str], tokenizer: Tokenizer) -> TokenStream:
    """Encodes documents into one stream.

    Where there are several documents, each is followed by the end of text if the tokenizer has
    one; a single document is encoded as it is.

    Args:
        documents: the texts.
        tokenizer: tokenizer that encodes them.

    Returns:
        The stream; its tokens are uint16 if the vocabulary has at most 65,536 tokens, else int32.

    Raises:
        DataError: the documents have fewer than 2 tokens, or the tokenizer cannot encode one.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> stream = build_stream(["ab", "c"], byte_tokenizer())
        >>> stream.tokens.tolist(), stream.offsets.tolist()
        ([97, 98, 256, 99, 256], [0, 3])
    """
    encoded = tokenizer.encode_documents(documents)
    if len(documents) > 1 and tokenizer.end_of_text is not None:
        encoded = [np.append(tokens, tokenizer.end_of_text) for tokens in encoded]
    lengths = [tokens.size for tokens in encoded]
    dtype = token_dtype(tokenizer)
    tokens = np.concatenate([np.zeros(0, dtype), *encoded], dtype=dtype, casting="unsafe")
    offsets = np.cumsum([0, *lengths], dtype=np.int64)[:-1]
    return TokenStream(tokens, offsets)


def token_dtype(tokenizer: Tokenizer) -> np.dtype:
    """Type of stored tokens: the smaller one halves their file, and what of it is in memory."""
    return np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32)


def default_cache_dir() -> pathlib.Path | None:
    """Returns the folder for cached tokens: `$XDG_CACHE_HOME/jaxformer`, else `~/.cache/jaxformer`.

    Returns:
        The folder, which need not be there; None where the user has no home folder, either.

    Example:
        >>> default_cache_dir().name
        'jaxformer'
    """
    try:
        home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    except RuntimeError:  # neither HOME nor an entry among the users
        return None
    return pathlib.Path(home) / "jaxformer"


def cached_stream(
    documents: Sequence[str], tokenizer: Tokenizer, cache_dir: pathlib.Path | None
) -> TokenStream:
    """`build_stream` with a cache on disk, by the documents and the tokenizer.

    Any number of processes may do so at once. Files that are damaged are made again. Where there
    is no cache, or it cannot be written to, a warning says so, and the tokens are in memory.

    Args:
        documents: the texts.
        tokenizer: tokenizer that encodes them.
        cache_dir: a folder for the files, such as `default_cache_dir()`; made if missing. None
            where there is none.

    Returns:
        The stream, its tokens memory-mapped where they are cached.

    Raises:
        DataError: as for `build_stream`.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cached_stream(["ab"], byte_tokenizer(), pathlib.Path(folder)).tokens.tolist()
        [97, 98]
    """
    if cache_dir is None:
        _warn_of_no_cache("there is no home folder")
        return build_stream(documents, tokenizer)
    key = _key(documents, tokenizer)
    if (cached := _read_cache(cache_dir, key)) is not None:
        return cached
    stream = build_stream(documents, tokenizer)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        _write(cache_dir / f"{key}.tokens.npy", np.asarray(stream.tokens))
        _write(cache_dir / f"{key}.index.npy", np.append(_checksum(stream), stream.offsets))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        with contextlib.suppress(OSError, ValueError):
            (cache_dir / f"{key}.tokens.npy").unlink()  # of no use alone, on a disk that is full
        _warn_of_no_cache(f"{cache_dir}: {getattr(error, 'strerror', None) or error}")
        return stream
    # Mapped, as the next call will have it; or as it is, if another process has removed the files.
    return _read_cache(cache_dir, key) or stream


def _warn_of_no_cache(reason: str) -> None:
    """Warns the caller of `cached_stream`, which goes on."""
    warnings.warn(
        f"tokens are kept in memory, and made again by the next start, since they cannot be cached "
        f"({reason}); set XDG_CACHE_HOME to a folder that can be written to",
        stacklevel=3,
    )


def _key(documents: Sequence[str], tokenizer: Tokenizer) -> str:
    """Hashes all that a stream depends on; "surrogatepass" leaves the complaint to the encoder."""
    digest = hashlib.sha256()
    for text in (tokenizer.to_json(), *documents):
        data = text.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _read_cache(cache_dir: pathlib.Path, key: str) -> TokenStream | None:
    """Maps the files of a stream, or returns None where they are missing or damaged."""
    try:
        # Unlike np.load, these close a file that they cannot read.
        tokens = np.lib.format.open_memmap(cache_dir / f"{key}.tokens.npy", mode="r")
        index = np.lib.format.open_memmap(cache_dir / f"{key}.index.npy", mode="r")
        stream = TokenStream(tokens, index[1:])
        return stream if index[0] == _checksum(stream) else None
    except Exception:  # NumPy raises half a dozen kinds, depending on which bytes are wrong.
        return None


def _checksum(stream: TokenStream) -> int:
    return zlib.crc32(stream.offsets.data, zlib.crc32(np.asarray(stream.tokens).data))


def _write(path: pathlib.Path, array: np.ndarray) -> None:
    """Writes a file that is at no time there in part."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
        try:
            np.save(file, array)
            file.flush()
            # On disk before it has its name: a crash then leaves the old file or the whole new one.
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


class Windows:
    """Cuts a stream into sequences of one length; each token but the first is predicted once.

    Random access: `len(windows)` and `windows[i]`, a dict of

    - tokens: int32 [length], those from i * length on;
    - labels: int32 [length], the token after each.

    The last sequence is filled up with token 0 and label `IGNORE`.

    Args:
        stream: stream to cut.
        length: length of a sequence, in tokens.

    Raises:
        DataError: the length is less than 1.

    Example:
        >>> windows = Windows(TokenStream(np.array([5, 6, 7, 8]), np.array([0])), length=2)
        >>> len(windows), windows[1]["tokens"], windows[1]["labels"]
        (2, array([7, 0], dtype=int32), array([ 8, -1], dtype=int32))
    """

    def __init__(self, stream: TokenStream, length: int) -> None:
        if length < 1:
            raise DataError(f"length must be at least 1 token, got {length}; try 256")
        self.stream = stream
        self.length = length
        # A plain view of a memory map, whose own class makes every slice slow.
        tokens = stream.tokens
        self._tokens = tokens.view(np.ndarray) if isinstance(tokens, np.ndarray) else tokens

    @property
    def unpredicted(self) -> np.ndarray:
        """Indices of tokens that are never a target: int64 `[tokens]`, here of the first alone."""
        return np.zeros(1, np.int64)

    def __len__(self) -> int:
        return -(-(self.stream.tokens.size - 1) // self.length)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return {name: rows[0] for name, rows in self.gather([index]).items()}

    def gather(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """Sequences of these indices: `tokens` and `labels`, int32 [rows, length].

        Args:
            indices: of the sequences.

        Raises:
            IndexError: an index is negative, or not less than the length.
        """
        starts = self._starts(indices)
        # With the label of the last token, and in the type of the stored tokens: it is converted
        # once, for all rows.
        spans = np.zeros((starts.size, self.length + 1), self._tokens.dtype)
        for span, start in zip(spans, starts.tolist(), strict=True):
            found = self._tokens[start : start + self.length + 1]
            span[: found.size] = found
        tokens, labels = spans[:, :-1].astype(np.int32), spans[:, 1:].astype(np.int32)
        sizes = self._sizes(starts)
        for row in np.flatnonzero(sizes < self.length):
            tokens[row, sizes[row] :] = 0
            labels[row, sizes[row] :] = IGNORE
        return {"tokens": tokens, "labels": labels}

    def _starts(self, indices: Sequence[int]) -> np.ndarray:
        """Where sequences start in the stream, in tokens: int64 [rows]."""
        for index in indices:
            if not 0 <= index < len(self):
                raise IndexError(f"index must be at least 0 and less than {len(self)}, got {index}")
        return np.asarray(indices, np.int64) * self.length

    def _sizes(self, starts: np.ndarray) -> np.ndarray:
        """How many tokens sequences have before they are filled up: int64 [rows]."""
        return np.minimum(self.length, self._tokens.size - 1 - starts)


class PackedDocuments(Windows):
    """Cuts a stream as `Windows` does, but keeps the documents in a sequence apart.

    Beside tokens and labels, `packed[i]` has

    - segment_ids: int32 [length], 1 for the first document of the sequence, then 2 and so on; 0
      where the sequence is filled up;
    - positions: int32 [length], from 0 in each document of the sequence; 0 where filled up.

    No label crosses from one document to the next: the last token of each has label `IGNORE`.

    Args:
        stream: stream to cut.
        length: length of a sequence, in tokens.

    Raises:
        DataError: the length is less than 1.

    Example:
        >>> packed = PackedDocuments(TokenStream(np.arange(10, 16), np.array([0, 2])), length=5)
        >>> packed[0]["segment_ids"], packed[0]["positions"]
        (array([1, 1, 2, 2, 2], dtype=int32), array([0, 1, 0, 1, 2], dtype=int32))
        >>> packed[0]["labels"]
        array([11, -1, 13, 14, 15], dtype=int32)
    """

    @property
    def unpredicted(self) -> np.ndarray:
        """Indices of tokens that are never a target: the first of each document."""
        return self.stream.offsets

    def gather(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """Sequences as `Windows.gather` gives them, with their segments and positions."""
        rows = super().gather(indices)
        starts = self._starts(indices)
        sizes = self._sizes(starts)
        begins = self._begins(starts, sizes)
        rows["labels"][begins[:, 1:]] = IGNORE  # the first token of another document
        begins = begins[:, :-1]
        order = np.arange(self.length, dtype=np.int32)
        segment_ids = np.cumsum(begins, axis=1, dtype=np.int32)
        segment_ids += 1
        positions = order - np.maximum.accumulate(np.where(begins, order, 0), axis=1)
        for row in np.flatnonzero(sizes < self.length):
            segment_ids[row, sizes[row] :] = 0
            positions[row, sizes[row] :] = 0
        return {**rows, "segment_ids": segment_ids, "positions": positions}

    def _begins(self, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Where documents begin behind the first token of sequences: bool [rows, length + 1]."""
        offsets = self.stream.offsets
        first, last = (
            np.searchsorted(offsets, at, side="right") for at in (starts, starts + sizes)
        )
        counts = last - first
        # Row and index of each document that begins in one of the sequences.
        rows = np.repeat(np.arange(starts.size), counts)
        documents = np.arange(rows.size) + np.repeat(last - np.cumsum(counts), counts)
        begins = np.zeros((starts.size, self.length + 1), bool)
        begins[rows, offsets[documents] - starts[rows]] = True
        return begins
