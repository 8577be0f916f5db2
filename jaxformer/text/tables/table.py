"""Tables of text: rows of named columns, read from files."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self

from jaxformer.errors import DataError
from jaxformer.text.sources.files import text_files
from jaxformer.text.sources.records import Counts, Row, read_columns


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of text in named columns, with the line that each was read from.

    A kind of table is a frozen dataclass with one tuple of strings per column, in the order of the
    columns in a file. Examples are `Pairs` and `Labelled`.

    Attributes:
        unit: plural name of the rows, such as "pairs".
        layout: format of a line of a file, such as "source, tab, target".
        inputs: columns of which training and validation should not share a text; that of the first
            decides on which side a row is.
        categories: columns with few distinct texts, such as labels.
        is_cut: whether a row may be cut to split it, as a long text is.

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
    is_cut: ClassVar[bool] = False

    lines: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        columns = {name: getattr(self, name) for name in self.column_names()}
        rows = next(map(len, columns.values()), 0)
        object.__setattr__(self, "lines", self.lines or tuple(map(str, range(1, rows + 1))))
        require_same_length(**columns, lines=self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    @classmethod
    def read(cls, paths: Sequence[str], **options: Any) -> tuple[Self, Counts]:
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
        counts, groups = Counts(cls.unit), cls.groups(paths)
        rows = itertools.chain.from_iterable(
            cls.rows_of(group, len(groups) > 1, **options) for group in groups
        )
        table = cls.of_rows(cls.clean(rows, counts))
        if table is None:
            got = " and ".join(f"'{file}'" for file in paths)
            raise DataError(
                f"at least one of the {cls.unit} must be usable, got {got}: {counts}; "
                f"each line must be {cls.layout}"
            )
        return table, counts

    @classmethod
    def groups(cls, paths: Sequence[str]) -> list[list[str]]:
        """The files of paths and patterns, in groups that are read together: each alone."""
        return [[str(file)] for file in text_files(paths)]

    @classmethod
    def rows(cls, paths: Sequence[str]) -> Iterator[Row]:
        """Reads one of the `groups` of files row by row. Override it to read another file format.

        Args:
            paths: the file.

        Yields:
            The rows. The number of columns may be wrong, and they need not be stripped; the caller
            handles both.

        Raises:
            DataError: a file is missing, damaged or not UTF-8.
        """
        return read_columns(paths[0], [name.removesuffix("s") for name in cls.column_names()])

    @classmethod
    def rows_of(cls, paths: Sequence[str], is_named: bool, **options: Any) -> Iterator[Row]:
        """The `rows` of files, with the name of the file before the line if `is_named`."""
        rows = cls.rows(paths, **options)
        if not is_named:
            return rows
        return (row._replace(line=f"{paths[0]}:{row.line}") for row in rows)

    @classmethod
    def clean(cls, rows: Iterable[Row], counts: Counts) -> Iterator[Row]:
        """Yields the rows with text in every column, stripped, and counts the others."""
        size = len(cls.column_names())
        for row in rows:
            counts.read += 1
            columns = tuple(column.strip() for column in row.columns)
            if len(columns) != size:
                counts.drop("misaligned", row.line)
            elif not all(columns):
                counts.drop("empty", row.line)
            else:
                yield row._replace(columns=columns)

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> Self | None:
        """Makes a table of rows as they are; None if there are none."""
        if not (rows := list(rows)):
            return None
        columns = zip(*(row.columns for row in rows), strict=True)
        return cls(*map(tuple, columns), lines=tuple(row.line for row in rows))

    def records(self) -> Iterator[Row]:
        """The rows."""
        return map(Row, self.lines, zip(*self.columns, strict=True))

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

    @property
    def columns(self) -> list[tuple[str, ...]]:
        """The columns, in order."""
        return [getattr(self, name) for name in self.column_names()]

    @classmethod
    def column_names(cls) -> list[str]:
        """Names of the columns, in order."""
        return [field.name for field in dataclasses.fields(cls) if field.name != "lines"]


def text_bytes(text: str) -> bytes:
    """A text in UTF-8; a half of a surrogate pair is reported when it is encoded as tokens."""
    return text.encode(errors="surrogatepass")


def row_size(row: Row) -> int:
    """Bytes of the texts of a row, in UTF-8."""
    return sum(len(text_bytes(column)) for column in row.columns)


def require_same_length(**columns: Sequence[Any]) -> None:
    """Raises DataError if columns differ in length."""
    if len({len(column) for column in columns.values()}) > 1:
        got = ", ".join(f"{len(column)} {name}" for name, column in columns.items())
        raise DataError(f"columns must have the same number of rows, got {got}; align them")
