"""Scalars for TensorBoard, written in the caller's thread, so that a full disk raises an error."""

import pathlib
import socket
import struct
import time

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import scalar

from jaxformer.storage import append, make_folder, open_to_append

__all__ = ["TensorBoardWriter"]


class TensorBoardWriter:
    """Writes an event file into a folder.

    Args:
        folder: folder of the events, created if missing; not a link.
        purge_step: TensorBoard drops the scalars of earlier files from this step on.

    Raises:
        StorageError: the file cannot be written.
    """

    def __init__(self, folder: pathlib.Path, purge_step: int | None = None) -> None:
        make_folder(folder)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
        self._file = open_to_append(folder / name)
        self._write(Event(file_version="brain.Event:2"))
        if purge_step is not None:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(step=purge_step, session_log=start))

    def add(self, step: int, values: dict[str, float]) -> None:
        """Writes the scalars of a step, by name; raises StorageError if it cannot."""
        for name, value in values.items():
            self._write(Event(step=step, summary=scalar(name, value)))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        sums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
        append(self._file, length + sums[0] + data + sums[1])
