"""Documents to one stream of tokens, and the sequences that it is cut into."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.sources.document_sources import (
    DocumentSource,
    is_token_array,
    read_documents_of,
)
from jaxformer.text.sources.token_scan import document_starts, require_token_ids, scan_tokens
from jaxformer.text.store.mapped_files import require_whole
from jaxformer.text.store.sharded_tokens import ShardedTokens
from jaxformer.text.tokenizers.tokenizer import Tokenizer

__all__ = [
    "IGNORE",
    "PackedDocuments",
    "TokenStream",
    "Windows",
    "build_stream",
    "token_dtype",
]

IGNORE = -1
"""The label of a position without a target."""

_GROUP = 2**21  # characters of the texts that one call encodes


@dataclasses.dataclass(frozen=True, eq=False)
class TokenStream:
    """The tokens of all documents, concatenated.

    Args:
        tokens: integers [tokens]; may be memory-mapped, from several files.
        offsets: int64 [documents], the start of each document, in tokens.

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


def build_stream(
    source: DocumentSource, tokenizer: Tokenizer | None = None, *, field: str = "text"
) -> TokenStream:
    """Makes one stream of tokens from documents.

    If there are several documents and the tokenizer has an end of text, it is appended to each
    document that does not end with it yet. A single document is kept as it is. The source is read
    through `len` and one index at a time.

    Args:
        source: any of

            - texts: a list, or anything indexed that returns a text;
            - token ids of documents: integers [tokens] each, arrays or lists;
            - dicts with a text or token ids under `field`, such as a `datasets.Dataset`;
            - all tokens in one array: integers [tokens], not copied, so they may be memory-mapped.
              A document begins after each end of text of the tokenizer.
        tokenizer: tokenizer that encodes the texts, or that made the tokens. Tokens need none; then
            they are not checked against a vocabulary.
        field: key of the dicts.

    Returns:
        The stream. Its tokens are uint16 if the vocabulary (or, without a tokenizer, the largest id
        plus 1) is at most 65,536, else int32. Tokens in one array keep their type.

    Raises:
        DataError: there are fewer than 2 tokens, an element is none of these, a token is not in the
            vocabulary, or the tokenizer cannot encode a text.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> stream = build_stream(["ab", "c"], byte_tokenizer())
        >>> stream.tokens.tolist(), stream.offsets.tolist()
        ([97, 98, 256, 99, 256], [0, 3])
        >>> rows = [{"input_ids": [97, 98]}, {"input_ids": [99]}]
        >>> build_stream(rows, byte_tokenizer(), field="input_ids").tokens.tolist()
        [97, 98, 256, 99, 256]
        >>> build_stream(stream.tokens, byte_tokenizer()).offsets.tolist()
        [0, 3]
    """
    end = None if tokenizer is None else tokenizer.end_of_text
    vocab_size = None if tokenizer is None else tokenizer.vocab_size
    if is_token_array(source):
        scan = scan_tokens(source, vocab_size=vocab_size, end_of_text=end, name="the tokens")
        return TokenStream(source, document_starts(scan.ends, source.size))
    encoded = list(_encoded(source, tokenizer, field))
    if len(encoded) > 1 and end is not None:
        encoded = [ids if ids.size and ids[-1] == end else np.append(ids, end) for ids in encoded]
    if tokenizer is None:
        is_small = all(ids.max(initial=0) < 2**16 for ids in encoded)
        dtype = np.dtype(np.uint16 if is_small else np.int32)
    else:
        dtype = token_dtype(tokenizer)
    tokens = np.concatenate([np.zeros(0, dtype), *encoded], dtype=dtype, casting="unsafe")
    offsets = np.cumsum([0, *(ids.size for ids in encoded)], dtype=np.int64)[:-1]
    return TokenStream(tokens, offsets)


def _encoded(
    source: DocumentSource, tokenizer: Tokenizer | None, field: str
) -> Iterator[np.ndarray]:
    """Yields the token ids of each document; texts are encoded in groups."""
    vocab_size = None if tokenizer is None else tokenizer.vocab_size
    texts: list[str] = []
    size = 0
    for index, document in enumerate(read_documents_of(source, field)):
        if isinstance(document, str):
            if tokenizer is None:
                raise DataError(
                    f"texts need a tokenizer, got none for element {index}, {document[:20]!r}; "
                    "pass tokenizer="
                )
            texts.append(document)
            size += len(document)
            if size < _GROUP:
                continue
        if texts and tokenizer is not None:
            yield from tokenizer.encode_documents(texts)
            texts, size = [], 0
        if not isinstance(document, str):
            require_token_ids(document, vocab_size, f"element {index}")
            yield document
    if texts and tokenizer is not None:
        yield from tokenizer.encode_documents(texts)


def token_dtype(tokenizer: Tokenizer) -> np.dtype:
    """Type of stored tokens; uint16, if possible, halves file and memory."""
    return np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32)


class Windows:
    """Cuts a stream into sequences of one length; each token except the first is predicted once.

    Random access: `len(windows)` and `windows[i]`, a dict of

    - tokens: int32 [length], starting at i * length;
    - labels: int32 [length], the token after each.

    The last sequence is padded with token 0 and label `IGNORE`.

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
        # A plain view: slicing a np.memmap itself is slow.
        tokens = stream.tokens
        self._tokens = tokens.view(np.ndarray) if isinstance(tokens, np.ndarray) else tokens

    @property
    def unpredicted(self) -> np.ndarray:
        """Indices of tokens that are never a target: int64 `[tokens]`; here only the first."""
        return np.zeros(1, np.int64)

    def __len__(self) -> int:
        return -(-(self.stream.tokens.size - 1) // self.length)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return {name: rows[0] for name, rows in self.gather([index]).items()}

    def gather(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """Sequences by index: `tokens` and `labels`, int32 [rows, length].

        Args:
            indices: indices of the sequences.

        Raises:
            IndexError: an index is negative, or not less than the length.
            DataError: a file that the stream is mapped from was truncated.
        """
        starts = self._starts(indices)
        require_whole(self._tokens)  # once for all rows; tokens in several files ask for each
        # One token more, for the last label. Kept in the stored type, and converted once for all
        # rows.
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
        """Starts of sequences in the stream, in tokens: int64 [rows]."""
        for index in indices:
            if not 0 <= index < len(self):
                raise IndexError(f"index must be at least 0 and less than {len(self)}, got {index}")
        return np.asarray(indices, np.int64) * self.length

    def _sizes(self, starts: np.ndarray) -> np.ndarray:
        """Numbers of tokens in sequences, without padding: int64 [rows]."""
        return np.minimum(self.length, self._tokens.size - 1 - starts)


class PackedDocuments(Windows):
    """Cuts a stream as `Windows` does, but separates the documents of a sequence.

    Besides tokens and labels, `packed[i]` has

    - segment_ids: int32 [length], 1 for the first document of the sequence, then 2 and so on; 0 in
      padding;
    - positions: int32 [length], from 0 in each document of the sequence; 0 in padding.

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
        """The result of `Windows.gather`, with segments and positions."""
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
        """Where documents begin after the first token of a sequence: bool [rows, length + 1]."""
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
