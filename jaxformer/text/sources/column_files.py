"""Columns of Parquet and Arrow files, and the folders of Hugging Face datasets."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from jaxformer.errors import ConfigError, DataError
from jaxformer.storage import first_line

__all__ = ["COLUMN_SUFFIXES", "dataset_files", "read_column"]

COLUMN_SUFFIXES = (".parquet", ".arrow")

_ROWS = 256  # rows of a Parquet file read at a time


def read_column(file: pathlib.Path, field: str, setting: str = "") -> Iterator[Any]:
    """Reads a column of a Parquet or Arrow file row by row; a text that is not UTF-8 is bytes.

    An Arrow file is in the stream or the file format. `setting` names the config key in messages.
    """
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError:
        raise ConfigError(
            f"'{file}' needs pyarrow, which is missing; pip install \"jaxformer[data]\""
        ) from None
    library: Any = ipc
    kind = "Arrow" if file.name.lower().endswith(".arrow") else "Parquet"
    try:
        if kind == "Parquet":
            table: Any = parquet.ParquetFile(file)
            _require_column(file, field, setting, table.schema_arrow.names)
            for batch in table.iter_batches(batch_size=_ROWS, columns=[field]):
                yield from _values(batch.column(0))
            return
        with pyarrow.OSFile(str(file)) as source:
            is_file = source.read(6) == b"ARROW1"
            source.seek(0)
            reader = library.open_file(source) if is_file else library.open_stream(source)
            _require_column(file, field, setting, reader.schema.names)
            batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
            for batch in batches:
                yield from _values(batch.column(field))
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"'{file}' cannot be read as {kind}: {first_line(error)}") from None


def _values(column: Any) -> Iterator[Any]:
    """Values of a column of a batch."""
    try:
        yield from column.to_pylist()
        return
    except UnicodeDecodeError:
        pass
    for value in column:
        try:
            yield value.as_py()
        except UnicodeDecodeError as error:
            yield error.object


def _require_column(file: pathlib.Path, field: str, setting: str, names: list[str]) -> None:
    if field not in names:
        raise DataError(
            f"'{file}' must have the column {field!r}{setting}, got {', '.join(names[:8])}"
        )


def dataset_files(folder: pathlib.Path) -> list[pathlib.Path] | None:
    """Files of a Hugging Face dataset saved by `save_to_disk`, in order; None for other folders."""
    if (folder / "dataset_dict.json").is_file():
        names = sorted(path.parent.name for path in folder.glob("*/state.json"))
        raise DataError(
            f"'{folder}' is a dataset with the splits {', '.join(names)}; name one, such as "
            f"'{folder / (names or ['train'])[0]}'"
        )
    state = folder / "state.json"
    if not state.is_file():
        return None
    try:
        values = json.loads(state.read_bytes())
        files = [folder / pathlib.PurePath(one["filename"]).name for one in values["_data_files"]]
        indices = values.get("_indices_files")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"'{state}' is not valid: {error!r}; save the dataset again") from None
    if indices:
        raise DataError(
            f"'{folder}' is a selection of another dataset; save it after flatten_indices()"
        )
    return files
