"""Token streams to sequences of one length, with or without borders between documents."""

from collections.abc import Sequence

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.store.arrays import IGNORE, TokenStream, gather_spans


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
        return {name: rows[0] for name, rows in self.gather([index]).items()}

    def gather(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """Sequences by index: `tokens` and `labels`, int32 [rows, length]."""
        starts = self._starts(indices)
        tokens, labels = self._spans(starts)
        return self._begun({"tokens": tokens, "labels": labels})

    def _starts(self, indices: Sequence[int]) -> np.ndarray:
        """Starts of sequences in the stream, in tokens: int64 [rows]."""
        for index in indices:
            if not 0 <= index < len(self):
                raise IndexError(f"index must be at least 0 and less than {len(self)}, got {index}")
        return np.asarray(indices, np.int64) * self._stride

    def _sizes(self, starts: np.ndarray) -> np.ndarray:
        """Numbers of tokens of the stream in sequences: int64 [rows]."""
        return np.minimum(self._stride, self.stream.tokens.size - 1 - starts)

    def _spans(self, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and labels of the stream in sequences: int32 [rows, stride] each."""
        values = self.stream.tokens
        # One token more, for the last label. Kept in the stored type, and converted once for all
        # rows.
        spans = np.zeros((starts.size, self._stride + 1), values.dtype)
        ends = np.minimum(starts + self._stride + 1, values.size)
        gather_spans(values, starts, ends, spans)
        tokens, labels = spans[:, :-1].astype(np.int32), spans[:, 1:].astype(np.int32)
        sizes = self._sizes(starts)
        for row in np.flatnonzero(sizes < self._stride):
            tokens[row, sizes[row] :] = 0
            labels[row, sizes[row] :] = IGNORE
        for place, token in enumerate(self._before):  # of documents
            begins = self._begins(starts - place)[:, 1:]
            labels[begins & (labels == token)] = IGNORE
        return tokens, labels

    def _begins(self, starts: np.ndarray) -> np.ndarray:
        """Marks starts of documents after the first token of a row: bool [rows, stride + 1]."""
        offsets = self.stream.offsets
        first, last = (
            np.searchsorted(offsets, at, side="right")
            for at in (starts, starts + self._sizes(starts))
        )
        counts = last - first
        # Row and index of each document that begins in one of the sequences.
        rows = np.repeat(np.arange(starts.size), counts)
        documents = np.arange(rows.size) + np.repeat(last - np.cumsum(counts), counts)
        begins = np.zeros((starts.size, self._stride + 1), bool)
        begins[rows, offsets[documents] - starts[rows]] = True
        return begins

    def _shifts(self, tokens: np.ndarray) -> np.ndarray:
        """Number of tokens to add to the front of rows [rows, stride]: int64 [rows]."""
        size = self._before.size
        return size * np.any(tokens[:, :size] != self._before, axis=1)

    def _begun(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Arrays [rows, length]: adds `before` to those that begin within a document."""
        if self._stride == self.length:
            return rows
        shifts = self._shifts(rows["tokens"])
        columns = shifts[:, None] + np.arange(self._stride)
        begun = {}
        for name, values in rows.items():
            padding = IGNORE if name == "labels" else 0
            begun[name] = np.full((shifts.size, self.length), padding, np.int32)
            np.put_along_axis(begun[name], columns, values, axis=1)
        begun["tokens"][shifts > 0, : self._before.size] = self._before
        return begun


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

    def gather(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """The result of `Windows.gather`, with segments and positions."""
        starts = self._starts(indices)
        tokens, labels = self._spans(starts)
        begins, sizes = self._begins(starts), self._sizes(starts)
        labels[begins[:, 1:]] = IGNORE  # the first token of another document
        segment_ids = np.cumsum(begins[:, :-1], axis=1, dtype=np.int32) + 1
        for row in np.flatnonzero(sizes < self._stride):
            segment_ids[row, sizes[row] :] = 0
        rows = self._begun({"tokens": tokens, "labels": labels, "segment_ids": segment_ids})
        segment_ids = rows["segment_ids"]
        segment_ids[:, : self._before.size] = 1
        order = np.arange(self.length, dtype=np.int32)
        is_next = np.diff(segment_ids, axis=1, prepend=1) != 0
        positions = order - np.maximum.accumulate(np.where(is_next, order, 0), axis=1)
        return {**rows, "positions": np.where(segment_ids == 0, np.int32(0), positions)}


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

    def gather(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """The result of `Windows.gather`, with `lengths`, int32 [rows]."""
        starts = self._starts(indices)
        tokens, labels = self._spans(starts)
        rows = self._begun({"tokens": tokens, "labels": labels})
        lengths, size = self._shifts(tokens) + self._sizes(starts), self._after.size
        for row, length in enumerate(lengths if size else ()):
            if np.any(rows["tokens"][row, length - size : length] != self._after):
                rows["tokens"][row, length : length + size] = self._after
                lengths[row] += size
        return {**rows, "lengths": lengths.astype(np.int32)}
