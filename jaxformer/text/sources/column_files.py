"""Rows of TSV and CSV files, whose columns a header may name."""

import csv
import pathlib
from collections.abc import Iterator, Sequence

from jaxformer.errors import DataError
from jaxformer.storage import as_path
from jaxformer.text.sources.files import PACKED, read_lines


def read_columns(
    path: str, names: Sequence[str], *, may_be_quoted: bool
) -> Iterator[tuple[int, Sequence[str]]]:
    """Yields the line number and the columns of each row.

    A first line with all names is a header, in any case and order: it is skipped, and columns with
    other names are left out. A file whose name ends in `.csv` is CSV. Others are TSV without
    quotes; `may_be_quoted` reads quotes as in CSV if the first line has them.

    Raises:
        DataError: the file cannot be read, or is not CSV.
    """
    file = as_path(path)
    if is_csv := _is_csv(file):
        rows = _parsed(file, ",")
    else:
        rows = ((i, line.split("\t")) for i, line in enumerate(read_lines(file), 1))
    if (first := next(rows, None)) is None:
        return
    if not is_csv and may_be_quoted and _is_quoted(first[1]):
        rows = _parsed(file, "\t")
        first = next(rows)
    header = [column.strip().lower() for column in first[1]]
    if set(names) <= set(header):
        places = [header.index(name) for name in names]
        for line, columns in rows:
            yield line, [columns[i] for i in places] if len(columns) == len(header) else ()
        return
    if is_csv and len(header) != len(names):
        raise DataError(
            f"a CSV file must have a header with {' and '.join(names)}, got the columns "
            f"{first[1][:8]} in '{file}'; name the columns in its first line"
        )
    yield first
    yield from rows


def _is_csv(file: pathlib.Path) -> bool:
    name = file.name.lower()
    return name.removesuffix(next(filter(name.endswith, PACKED), "")).endswith(".csv")


def _is_quoted(columns: Sequence[str]) -> bool:
    """Whether the first column of a line begins with a quote, and the last is in quotes."""
    first, last = columns[0], columns[-1]
    return first.startswith('"') and last.startswith('"') and last.endswith('"') and last != '"'


def _parsed(file: pathlib.Path, delimiter: str) -> Iterator[tuple[int, Sequence[str]]]:
    """Rows with columns that may be in quotes, and then contain delimiters and line breaks."""
    reader = csv.reader((f"{line}\n" for line in read_lines(file)), delimiter=delimiter)
    try:
        for columns in reader:
            if columns:  # not a blank line
                yield reader.line_num, columns
    except csv.Error as error:
        raise DataError(
            f"a row must be CSV, got {error} in '{file}', line {reader.line_num}; fix it"
        ) from None
