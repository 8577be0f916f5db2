"""One reading of all rows of a corpus: holdout, samples, counts, and the hash of the content."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from jaxformer.errors import DataError
from jaxformer.text.corpora.holdout import Sample, Scanner
from jaxformer.text.sources.record_files import BadRecords
from jaxformer.text.tables.counts import Counts
from jaxformer.text.tables.table import Row, Table, text_bytes

_SAMPLE = 2**25  # bytes of training text that are kept, to train a tokenizer on
_VALIDATION = 2**26  # bytes of validation rows that are kept, at most
_LINES = 2**18  # bytes of validation text that are kept beyond the sample, for prompts
_DISTINCT = 10_000  # distinct texts of a column that are listed, such as labels
_REPORTED = 2**20  # bytes between two reports of progress


class Scan:
    """Reads the rows of groups of files; `result` has what is known of them then."""

    def __init__(
        self, table: type[Table], fraction: float, bad: BadRecords, *, characters: bool
    ) -> None:
        names = table.column_names()
        self._table, self._fraction, self._bad, self._characters = table, fraction, bad, characters
        self._scanner = Scanner(
            fraction, key=names.index(table.inputs[0]), is_cut=table.is_cut, sample=_SAMPLE,
            held_out=_LINES if table.is_cut else _VALIDATION,
        )  # fmt: skip
        self._categories = {name: names.index(name) for name in table.categories}
        self._distinct: dict[str, set[str]] = {name: set() for name in table.categories}
        self._counts, self._num_bytes, self._seen = Counts(table.unit), 0, set[str]()
        kind = table.__module__, table.__qualname__, bad.errors, fraction
        self._digest = hashlib.sha256(repr(kind).encode())

    def read(
        self, group: int, rows: Iterator[Row], on_progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Reads the rows of a group of files."""
        done = reported = 0
        for row in self._table.clean(rows, self._counts):
            texts = [text_bytes(column) for column in row.columns]
            sizes = list(map(len, texts))
            self._digest.update(repr((group, row.is_start, sizes)).encode())
            self._digest.update(b"".join(texts))
            size = sum(sizes)
            done += size
            self._scanner.add(row, size)
            for name, place in self._categories.items():
                if len(self._distinct[name]) <= _DISTINCT:
                    self._distinct[name].add(row.columns[place])
            if self._characters:
                self._seen.update(*self._table.texts_of(row.columns))
            if done - reported >= _REPORTED:
                reported = done
                on_progress(done)
        self._num_bytes += done

    def result(self, source: str) -> dict[str, Any]:
        """The arguments of a `Corpus`, except options, files and rows; `source` is for messages."""
        table, sample = self._table, self._scanner.finish()
        self._require_sides(sample, source)
        if self._characters and sample.is_sampled:
            sample.training.append(Row("", table.row_of("".join(sorted(self._seen)))))
        return {
            "table": table, "errors": self._bad.errors, "validation_fraction": self._fraction,
            "holdout": sample.holdout, "counts": self._counts, "num_bytes": self._num_bytes,
            "skipped": self._bad.count, "skipped_shown": tuple(self._bad.shown),
            "fingerprint": self._digest.hexdigest(), "train": table.of_rows(sample.training),
            "validation": table.of_rows(sample.validation), "is_sampled": sample.is_sampled,
            "distinct": {
                name: tuple(sorted(texts)) if len(texts) <= _DISTINCT else None
                for name, texts in self._distinct.items()
            },
        }  # fmt: skip

    def _require_sides(self, sample: Sample, source: str) -> None:
        """Raises DataError if a side is empty, or has too many rows for validation."""
        table, fraction = self._table, self._fraction
        if sample.is_cut and not table.is_cut:
            raise DataError(
                f"{table.unit} for validation must be at most {_VALIDATION:,} bytes, got more with "
                f"validation_fraction={fraction}; lower it, or name data.validation_paths"
            )
        sides = {"training": sample.training}
        if fraction:
            sides["validation"] = sample.validation
        for side, rows in sides.items():
            if not any(row.columns[0].strip() for row in rows):
                layout = "" if table.is_cut else f"{table.remedy(())}; "
                raise DataError(
                    f"both sides of a split must have {table.unit}, got an empty {side} side with "
                    f"validation_fraction={fraction} from {source}, {self._num_bytes:,} bytes of "
                    f"text: {self._counts}; {layout}add data, or change the fraction"
                )
