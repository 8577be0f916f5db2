"""Tables of text: rows of named columns, read from files, split into training and validation."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self

from jaxformer.errors import DataError
from jaxformer.text.sources.holdout import Holdout, text_bytes, text_draws
from jaxformer.text.tables.column_files import read_columns
from jaxformer.text.tables.row_counts import RowCounts

Row = tuple[str, Sequence[str]]
"""A row of a file: its line, such as "17", and its columns."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of text in named columns, with the line that each was read from.

    A kind of table is a frozen dataclass with one tuple of strings per column, in the order of the
    columns in a file. Examples are `Pairs` and `Labelled`.

    Attributes:
        unit: plural name of the rows, such as "pairs".
        layout: format of a line of a file, such as "source, tab, target".
        inputs: columns in which training and validation must not share a text.
        categories: columns with few distinct texts, such as labels.

    Args:
        lines: line of each row, such as "17"; 1, 2, 3 and so on if not given.

    Raises:
        DataError: the columns differ in length.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Tagged(Table):
        ...     unit = "sentences"
        ...     layout = "words, tab, tags"
        ...     inputs = ("words",)
        ...     words: tuple[str, ...]
        ...     tags: tuple[str, ...]
        >>> tagged = Tagged(words=("A dog runs", "He sleeps"), tags=("DET N V", "PRON V"))
        >>> len(tagged), tagged.lines, tagged.take([1]).tags
        (2, ('1', '2'), ('PRON V',))
    """

    unit: ClassVar[str]
    layout: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]]
    categories: ClassVar[tuple[str, ...]] = ()

    lines: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        columns = {name: getattr(self, name) for name in self.column_names()}
        rows = next(map(len, columns.values()), 0)
        object.__setattr__(self, "lines", self.lines or tuple(map(str, range(1, rows + 1))))
        require_same_length(**columns, lines=self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    @classmethod
    def read(cls, paths: Sequence[str], **options: Any) -> tuple[Self, RowCounts]:
        r"""Reads the rows of TSV files: one row per line, columns separated by tabs; or CSV files.

        A first line with the names of all columns, such as text and label, is a header: columns may
        then be in any order, with others between them. Texts are stripped. A row with an empty
        column, or with too few or too many columns, is dropped; the counts say how many and where.

        Args:
            paths: the files, read one after the other.
            **options: options of `rows`, if the kind of table has any.

        Returns:
            The table, with at least one row, and the counts of rows read and dropped.

        Raises:
            DataError: there is no path, a file is missing, damaged or not UTF-8, a CSV file has
                other columns and no header, or no row is left.

        Example:
            >>> import pathlib, tempfile
            >>> from jaxformer.text import Labelled
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = pathlib.Path(folder, "a.tsv").write_text("Great!\tgood\nBoring. bad\n")
            ...     labelled, counts = Labelled.read([f"{folder}/a.tsv"])
            >>> labelled.texts, labelled.labels, str(counts)
            (('Great!',), ('good',), '2 texts read, 1 kept; 1 misaligned (line 2)')
        """
        kept, counts = cls.of_rows(cls.rows(paths, **options))
        if kept is None:
            got = " and ".join(f"'{file}'" for file in paths)
            raise DataError(
                f"at least one of the {cls.unit} must be usable, got {got}: {counts}; "
                f"{cls._remedy(paths)}"
            )
        return kept, counts

    @classmethod
    def rows(cls, paths: Sequence[str]) -> Iterator[Row]:
        """Reads files row by row. Override it to read another file format.

        Args:
            paths: the files, read one after the other.

        Yields:
            The line of a row, as in `lines`, and its columns. Their number may be wrong, and they
            need not be stripped; the caller handles both.

        Raises:
            DataError: there is no path, or a file is missing, damaged or not UTF-8.
        """
        if isinstance(paths, str) or not paths:
            raise DataError(f"paths must be a list of TSV files, got {paths!r}; name one")
        for path in paths:
            file = f"{path}:" if len(paths) > 1 else ""
            names = [name.removesuffix("s") for name in cls.column_names()]
            for i, columns in read_columns(path, names, may_be_quoted=bool(cls.categories)):
                yield f"{file}{i}", columns

    def keys(self) -> list[bytes]:
        """The text of each row that decides its side: that of the first of `inputs`."""
        texts: Sequence[str] = getattr(self, self.inputs[0])
        return [text_bytes(text) for text in texts]

    def records(self) -> Iterator[Row]:
        """Line and columns of each row."""
        return zip(self.lines, zip(*self.columns, strict=True), strict=True)

    def input_texts(self) -> list[set[str]]:
        """The texts of each of the columns `inputs`."""
        return [set(getattr(self, name)) for name in self.inputs]

    def for_training(
        self, holdout: Holdout, known: Sequence[set[str]]
    ) -> tuple[list[int], list[int]]:
        """Indices of the training rows, and of those dropped as they repeat a known text.

        `known` are texts of the validation rows, as in `input_texts`.
        """
        kept: list[int] = []
        repeated: list[int] = []
        rows = zip(*(getattr(self, name) for name in self.inputs), strict=True)
        for index, (key, texts) in enumerate(zip(self.keys(), rows, strict=True)):
            if holdout.has(text_draws(key)[0]):
                continue
            is_known = any(text in column for text, column in zip(texts, known, strict=True))
            (repeated if is_known else kept).append(index)
        return kept, repeated

    def take(self, indices: Iterable[int]) -> Self:
        """Selects rows.

        Args:
            indices: indices of the rows, in any order.

        Returns:
            A table of these rows, in the order of the indices.
        """
        chosen = list(indices)
        fields = {name: getattr(self, name) for name in (*self.column_names(), "lines")}
        return dataclasses.replace(
            self, **{name: tuple(field[i] for i in chosen) for name, field in fields.items()}
        )

    def all_texts(self) -> Iterator[str]:
        """All texts that a tokenizer encodes."""
        return itertools.chain.from_iterable(self.columns)

    @classmethod
    def row_of(cls, text: str) -> tuple[str, ...]:
        """A row with this text in every column."""
        return (text,) * len(cls.column_names())

    @property
    def columns(self) -> list[tuple[str, ...]]:
        """The columns, in order."""
        return [getattr(self, name) for name in self.column_names()]

    @classmethod
    def column_names(cls) -> list[str]:
        """Names of the columns, in order."""
        return [field.name for field in dataclasses.fields(cls) if field.name != "lines"]

    @classmethod
    def _remedy(cls, paths: Sequence[str]) -> str:
        """End of an error message: the required format of a line."""
        return f"each line must be {cls.layout}"

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> tuple[Self | None, RowCounts]:
        """Makes a table of the rows that have text in every column.

        Args:
            rows: line and columns of each row; texts are stripped.

        Returns:
            The table (None if no row is usable), and the counts of rows read and dropped.
        """
        names = cls.column_names()
        kept: list[tuple[str, ...]] = []
        dropped: dict[str, list[str]] = {"empty": [], "misaligned": []}
        read = 0
        for line, columns in rows:
            read += 1
            texts = [column.strip() for column in columns]
            if len(texts) != len(names):
                dropped["misaligned"].append(line)
            elif all(texts):
                kept.append((line, *texts))
            else:
                dropped["empty"].append(line)
        counts = RowCounts(cls.unit, read)
        for reason, where in dropped.items():
            counts = counts.drop(reason, where)
        if not kept:
            return None, counts
        lines, *texts_by_column = zip(*kept, strict=True)
        return cls(lines=lines, **dict(zip(names, texts_by_column, strict=True))), counts


def take_rows(rows: Iterator[Row], size: int) -> list[Row]:
    """The next rows, of about `size` bytes."""
    chunk = []
    while size > 0 and (row := next(rows, None)) is not None:
        chunk.append(row)
        size -= row_size(row)
    return chunk


def row_size(row: Row) -> int:
    """Bytes of a row in a file; at least 1, since a row without columns takes memory, too."""
    return 1 + sum(len(text_bytes(column)) + 1 for column in row[1])


def require_same_length(**columns: Sequence[Any]) -> None:
    """Raises DataError if columns differ in length."""
    if len({len(column) for column in columns.values()}) > 1:
        got = ", ".join(f"{len(column)} {name}" for name, column in columns.items())
        raise DataError(f"columns must have the same number of rows, got {got}; align them")


def count_shared(training: Sequence[str], validation: Sequence[str]) -> int:
    """Counts the validation texts that also occur in training.

    Args:
        training: training texts, such as the sources of pairs, or the texts of a classifier.
        validation: validation texts.

    Returns:
        Number of elements of `validation` that are in `training`, repetitions included.

    Example:
        >>> count_shared(["A dog.", "A cat."], ["A cat.", "A cow.", "A cat."])
        2
    """
    known = set(training)
    return sum(text in known for text in validation)
