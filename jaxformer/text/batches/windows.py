"""Token streams to sequences of one length, with or without borders between documents."""

from collections.abc import Sequence

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.store.arrays import IGNORE, TokenStream


class Windows:
    """Cuts a stream into sequences of one length; each token except the first is predicted once.

    Random access: `len(windows)` and `windows[i]`, a dict of

    - tokens: int32 [length], starting at i * length (less with `before`);
    - labels: int32 [length], the token after each.

    The last sequence is padded with token 0 and label `IGNORE`.

    If the model reads special tokens before every text, pass them as `before`: a sequence that
    begins within a document gets them, too, since it is all that the model sees. They are never
    predicted, at the start of a sequence or of a document of the stream.

    Args:
        stream: stream to cut.
        length: length of a sequence, in tokens.
        before: ids that the model reads before every text, such as a start token.

    Raises:
        DataError: the length leaves no room for a token of text.

    Example:
        >>> windows = Windows(TokenStream(np.array([5, 6, 7, 8]), np.array([0])), length=2)
        >>> len(windows), windows[1]["tokens"], windows[1]["labels"]
        (2, array([7, 0], dtype=int32), array([ 8, -1], dtype=int32))
        >>> stream = TokenStream(np.array([1, 6, 7, 8, 9]), np.array([0]))
        >>> windows = Windows(stream, length=3, before=[1])
        >>> windows[1]["tokens"], windows[1]["labels"]
        (array([1, 7, 8], dtype=int32), array([-1,  8,  9], dtype=int32))
    """

    def __init__(self, stream: TokenStream, length: int, *, before: Sequence[int] = ()) -> None:
        if length <= len(before):
            raise DataError(f"length must be at least {1 + len(before)}, got {length}; try 256")
        self.stream = stream
        self.length = length
        self._before = np.array(before, np.int32)
        self._stride = length - len(before)  # tokens of the stream in a sequence

    @property
    def unpredicted(self) -> np.ndarray:
        """Indices of tokens that are never a target: int64 `[tokens]`; here only the first."""
        return np.zeros(1, np.int64)

    def __len__(self) -> int:
        return -(-(self.stream.tokens.size - 1) // self._stride)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        tokens, labels = self._span(*self._place(index))
        return self._row(tokens, labels=labels)

    def _place(self, index: int) -> tuple[int, int]:
        """Start of a sequence in the stream, and the number of its tokens there."""
        if not 0 <= index < len(self):
            raise IndexError(f"index must be at least 0 and less than {len(self)}, got {index}")
        start = index * self._stride
        return start, min(self._stride, self.stream.tokens.size - 1 - start)

    def _span(self, start: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and labels of the stream: int32 [size] each."""
        span = np.array(self.stream.tokens[start : start + size + 1], np.int32)
        tokens, labels = span[:-1], span[1:].copy()
        for place, token in enumerate(self._before):  # of documents
            begins = self._begins(start - place, size)[1:]
            labels[begins & (labels == token)] = IGNORE
        return tokens, labels

    def _begins(self, start: int, size: int) -> np.ndarray:
        """Marks starts of documents after the first token: bool [size + 1]."""
        offsets = self.stream.offsets
        first, last = np.searchsorted(offsets, [start, start + size], side="right")
        begins = np.zeros(size + 1, bool)
        begins[offsets[first:last] - start] = True
        return begins

    def _shift(self, tokens: np.ndarray) -> int:
        """Number of tokens to add to the front of the tokens [size] of a sequence."""
        size = self._before.size
        return 0 if np.array_equal(tokens[:size], self._before) else size

    def _row(self, tokens: np.ndarray, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        """Pads arrays [size] to [length]; adds `before` to those that begin within a document."""
        shift = self._shift(tokens)
        row = {}
        for name, values in {"tokens": tokens, **arrays}.items():
            row[name] = np.full(self.length, IGNORE if name == "labels" else 0, np.int32)
            row[name][shift : shift + values.size] = values
        row["tokens"][:shift] = self._before[:shift]
        return row


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
        before: ids that the model reads before every text, as in `Windows`.

    Raises:
        DataError: the length leaves no room for a token of text.

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

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        start, size = self._place(index)
        tokens, labels = self._span(start, size)
        begins = self._begins(start, size)
        labels[begins[1:]] = IGNORE  # the first token of another document
        row = self._row(tokens, labels=labels, segment_ids=np.cumsum(begins[:-1]) + 1)
        segment_ids = row["segment_ids"]
        segment_ids[: self._shift(tokens)] = 1
        order = np.arange(self.length, dtype=np.int32)
        is_next = np.diff(segment_ids, prepend=1) != 0
        positions = order - np.maximum.accumulate(np.where(is_next, order, 0))
        return {**row, "positions": np.where(segment_ids == 0, np.int32(0), positions)}


class WindowsWithLengths(Windows):
    """Windows with `lengths`, as for an encoder; `after` ends every sequence, as [SEP] does."""

    def __init__(
        self,
        stream: TokenStream,
        length: int,
        *,
        before: Sequence[int] = (),
        after: Sequence[int] = (),
    ) -> None:
        super().__init__(stream, length, before=[*before, *after])  # there is room for both
        self._before, self._after = np.array(before, np.int32), np.array(after, np.int32)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        """The result of `Windows`, with `lengths`, int32 []."""
        tokens, labels = self._span(*self._place(index))
        row, length = self._row(tokens, labels=labels), self._shift(tokens) + tokens.size
        size = self._after.size
        if size and np.any(row["tokens"][length - size : length] != self._after):
            row["tokens"][length : length + size] = self._after
            length += size
        return {**row, "lengths": np.array(length, np.int32)}
