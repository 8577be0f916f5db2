"""Token streams to sequences of one length, with or without borders between documents."""

from collections.abc import Sequence

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.store.ragged import IGNORE, TokenStream, gather_spans


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
        values = self.stream.tokens
        # One token more, for the last label. Kept in the stored type, and converted once for all
        # rows.
        spans = np.zeros((starts.size, self.length + 1), values.dtype)
        ends = np.minimum(starts + self.length + 1, values.size)
        gather_spans(values, starts, ends, spans)
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
        return np.minimum(self.length, self.stream.tokens.size - 1 - starts)


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
        """Marks starts of documents after the first token of a row: bool [rows, length + 1]."""
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
