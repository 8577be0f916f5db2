"""One reading of all rows of a corpus: holdout, samples, counts, and the hash of the content."""

import dataclasses
import hashlib
import heapq
from collections.abc import Callable, Iterator
from typing import Any

from jaxformer.errors import DataError
from jaxformer.text.corpora.holdout import HoldoutCounter, text_draws
from jaxformer.text.sources.counts import Counts, Errors
from jaxformer.text.sources.records import Row
from jaxformer.text.tables.table import Table, text_bytes

_SAMPLE = 2**25  # bytes of training text that are kept, to train a tokenizer on
_VALIDATION = 2**26  # bytes of validation rows that are kept, at most
_LINES = 2**18  # bytes of validation text that are kept beyond the sample, for prompts
_FEW = 64  # rows that are kept as candidates for validation, whatever their numbers
_REPORTED = 2**20  # bytes between two reports of progress


class Scan:
    """Reads the rows of groups of files; `result` has what is known of them then.

    Of documents, the fraction for validation is of the bytes, else of the rows.
    """

    def __init__(self, table: type[Table], fraction: float, errors: Errors = "strict") -> None:
        if not 0 <= fraction < 1:
            raise DataError(
                "validation_fraction must be at least 0 and less than 1, got "
                f"{fraction}; 0.1 holds out a tenth"
            )
        names = table.column_names()
        self.counts = Counts(table.unit, errors=errors)
        self._table, self._fraction, self._num_rows, self._num_bytes = table, fraction, 0, 0
        self._key = names.index(table.inputs[0])
        self._counter, self._sample = HoldoutCounter(fraction), _EvenSample(_SAMPLE)
        # The rows that may be for validation: the holdout is known at the end.
        self._held_out = _EvenSample(_LINES if table.is_cut else _VALIDATION)
        self._distinct: dict[int, set[str]] = {
            names.index(name): set() for name in table.categories
        }
        kind = table.__module__, table.__qualname__, errors, fraction
        self._digest = hashlib.sha256(repr(kind).encode())

    def read(
        self, group: int, rows: Iterator[Row], on_progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Reads the rows of a group of files."""
        done = reported = 0
        for row in self._table.clean(rows, self.counts):
            texts = [text_bytes(column) for column in row.columns]
            sizes = list(map(len, texts))
            self._digest.update(repr((group, row.is_start, sizes)).encode())
            self._digest.update(b"".join(texts))
            size = sum(sizes)
            done += size
            self._draw(row, texts[self._key], size)
            for place, distinct in self._distinct.items():
                distinct.add(row.columns[place])
            if done - reported >= _REPORTED:
                reported = done
                on_progress(done)
        self._num_bytes += done

    def _draw(self, row: Row, text: bytes, size: int) -> None:
        side, number = text_draws(text)
        self._num_rows += 1
        self._counter.add(side, size if self._table.is_cut else 1)
        self._sample.add(row, size, number)
        # Of many rows, the holdout is far below twice the fraction.
        if side < max(2 * self._fraction, _FEW / self._num_rows):
            self._held_out.add(row, size, side)

    def result(self, source: str) -> dict[str, Any]:
        """Values of JSON: the arguments of a `Corpus`; `source` is for messages."""
        holdout = self._counter.holdout(cuts=self._table.is_cut)

        def sides(sample: "_EvenSample") -> tuple[list[Row], list[Row]]:
            parts = [part for row in sample.rows for part in holdout.parts(row, self._key)]
            return [row for row, held in parts if not held], [row for row, held in parts if held]

        training, validation = sides(self._sample)
        if not self._sample.is_complete:
            rest, validation = sides(self._held_out)
            if not self._table.is_cut and not self._held_out.is_complete and not rest:
                raise DataError(
                    f"{self._table.unit} for validation must be at most {_VALIDATION:,} bytes, got "
                    f"more with validation_fraction={self._fraction}; lower it, or name "
                    "data.validation_paths"
                )
        self._require_text("training", training, source)
        if self._fraction:
            self._require_text("validation", validation, source)
        names = self._table.column_names()
        return {
            "holdout": holdout, "counts": dataclasses.asdict(self.counts),
            "num_bytes": self._num_bytes, "fingerprint": self._digest.hexdigest(),
            "train": training, "validation": validation,
            "is_sampled": not self._sample.is_complete,
            "distinct": {names[place]: sorted(texts) for place, texts in self._distinct.items()},
        }  # fmt: skip

    def _require_text(self, side: str, rows: list[Row], source: str) -> None:
        """Raises DataError if a side is empty."""
        table = self._table
        if any(row.columns[0].strip() for row in rows):
            return
        layout = "" if table.is_cut else f"{table.remedy(())}; "
        raise DataError(
            f"both sides of a split must have {table.unit}, got an empty {side} side with "
            f"validation_fraction={self._fraction} from {source}, {self._num_bytes:,} bytes of "
            f"text: {self.counts}; {layout}add data, or change the fraction"
        )


class _EvenSample:
    """Uniform sample of at most `size` bytes: keeps the rows with the smallest numbers."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._drawn: list[tuple[float, int, int, Row]] = []  # a heap, the largest number first
        self._added = 0

    def add(self, row: Row, size: int, number: float) -> None:
        """Offers a row of `size` bytes."""
        heapq.heappush(self._drawn, (-number, self._added, size, row))
        self._added += 1
        self._left -= size
        while self._left < 0 and len(self._drawn) > 1:
            self._left += heapq.heappop(self._drawn)[2]

    @property
    def is_complete(self) -> bool:
        """Whether it has every row that was offered."""
        return len(self._drawn) == self._added

    @property
    def rows(self) -> Iterator[Row]:
        """The sample, in the order of the offers."""
        return (row for *_, row in sorted(self._drawn, key=lambda drawn: drawn[1]))
