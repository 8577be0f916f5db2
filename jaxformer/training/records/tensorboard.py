"""Events for TensorBoard. tensorboardX imports torch where it is installed, which takes seconds."""

import struct
import time
from collections.abc import Mapping
from typing import Any

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import scalar

from jaxformer.storage import append


class EventWriter:
    """Appends scalars to a new file of events.

    Args:
        file: file from `open_to_append`.
        start_step: step that the run resumes from; TensorBoard drops later scalars of other files.
    """

    def __init__(self, file: Any, start_step: int) -> None:
        self._file = file
        self._write(Event(file_version="brain.Event:2"))
        if start_step:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(step=start_step + 1, session_log=start))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the scalars of a step."""
        for name, value in values.items():
            self._write(Event(step=step, summary=scalar(name, value)))

    def _write(self, event: Event) -> None:
        """Writes in the caller's thread, so that a full disk is an error."""
        event.wall_time = time.time()
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        sums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
        append(self._file, length + sums[0] + data + sums[1])
