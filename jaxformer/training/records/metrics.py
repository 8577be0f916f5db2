"""Metrics of a run: one JSON object per line."""

import contextlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jaxformer.storage import append, in_bucket, lexists, read_whole, write_whole
from jaxformer.training.records.trackers import Log, trackers

_FILE = "metrics.jsonl"


class MetricsWriter:
    """Appends records to `metrics.jsonl` in a run folder, without those after `start_step`.

    While it is open, TensorBoard and the tools that `log_to` names get the records, too, and the
    tools the settings. Nothing is written without a folder.
    """

    def __init__(
        self,
        folder: pathlib.Path | None,
        start_step: int = 0,
        *,
        log_to: Sequence[str] = (),
        settings: Mapping[str, Any] = MappingProxyType({}),
        writes: bool = True,
    ) -> None:
        self._path: pathlib.Path | None = None
        self._trackers: contextlib.AbstractContextManager[list[Log]] = contextlib.nullcontext([])
        self._logs: list[Log] = []
        self.records: list[dict[str, Any]] = []  # of all steps so far
        if writes and folder is not None:
            self.records = [r for r in read_metrics(folder) if r["step"] <= start_step]
            self._path = folder / _FILE
            write_whole(self._path, _lines(self.records))
            self._trackers = trackers(log_to, folder, settings, tuple(self.records))

    def __enter__(self) -> "MetricsWriter":
        self._logs = self._trackers.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._logs = []
        try:
            self.flush()
        finally:
            self._path = None
            self._trackers.__exit__(*error)

    def flush(self) -> None:
        """Returns when all that was written is stored, also in a bucket, which cannot append."""
        if self._path is not None and in_bucket(self._path):
            write_whole(self._path, _lines(self.records))

    def write(self, step: int, **values: float) -> None:
        """Writes the metrics after a number of optimizer steps."""
        self.records.append({"step": step, **values})
        if self._path is not None and not in_bucket(self._path):
            append(self._path, _lines(self.records[-1:]))
        for log in self._logs:
            log(step, values)


def _lines(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def read_metrics(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the records of a run; skips a last line that a crash cut short.

    Args:
        folder: the run folder.

    Returns:
        One dict per record, in order; an empty list if the file does not exist.

    Raises:
        CheckpointError: the file is a link, or cannot be read.
    """
    path = folder / _FILE
    if not lexists(path):
        return []
    *lines, _ = read_whole(path).split(b"\n")
    return [json.loads(line) for line in lines]
