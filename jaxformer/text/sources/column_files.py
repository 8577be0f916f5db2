"""Rows of TSV and CSV files, whose columns a header may name."""

import csv
from collections.abc import Iterator, Sequence

from jaxformer.errors import DataError
from jaxformer.storage import as_path
from jaxformer.text.sources.files import read_lines, unpacked_name
from jaxformer.text.sources.records import Row


def read_columns(path: str, names: Sequence[str]) -> Iterator[Row]:
    """Yields the rows of a file: CSV if its name ends in `.csv`, else TSV without quotes.

    A first line with all names is a header, in any case and order: it is skipped, and columns with
    other names are left out.

    Raises:
        DataError: the file cannot be read, or is not CSV.
    """
    file = as_path(path)
    rows: Iterator[Row] = (
        Row(str(i), line.split("\t")) for i, line in enumerate(read_lines(file), 1)
    )
    if is_csv := unpacked_name(file).endswith(".csv"):
        rows = _parsed(path)
    if (first := next(rows, None)) is None:
        return
    header = [column.strip().lower() for column in first.columns]
    if set(names) <= set(header):
        places = [header.index(name) for name in names]
        for line, columns, _ in rows:
            yield Row(line, [columns[i] for i in places] if len(columns) == len(header) else ())
        return
    if is_csv and len(header) != len(names):
        raise DataError(
            f"a CSV file must have a header with {' and '.join(names)}, got the columns "
            f"{first.columns[:8]} in '{file}'; name the columns in its first line"
        )
    yield first
    yield from rows


def _parsed(path: str) -> Iterator[Row]:
    """Rows of CSV, whose columns may be in quotes, and then contain commas and line breaks."""
    reader = csv.reader(f"{line}\n" for line in read_lines(as_path(path)))
    try:
        for columns in reader:
            if columns:  # not a blank line
                yield Row(str(reader.line_num), columns)
    except csv.Error as error:
        raise DataError(
            f"{path}:{reader.line_num}: a row must be CSV, got {error}; fix it"
        ) from None
