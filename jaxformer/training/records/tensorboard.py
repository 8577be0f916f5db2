"""Events for TensorBoard, written without its packages, some of which import torch for seconds."""

import functools
import struct
import time
from collections.abc import Mapping
from typing import Any

from jaxformer.storage import append
from jaxformer.training.protobuf import Messages

# The fields that are written of TensorFlow's protocol buffers (tensorflow: core/util/event.proto,
# core/framework/summary.proto): their numbers and types.
_MESSAGES = Messages(
    {
        "Event": {
            "wall_time": (1, "double"),
            "step": (2, "int64"),
            "file_version": (3, "string"),
            "summary": (5, "Summary"),
            "session_log": (7, "SessionLog"),
        },
        "Summary": {"value": (1, "Value")},
        "Value": {"tag": (1, "string"), "simple_value": (2, "float")},
        "SessionLog": {"status": (1, "int64")},
    },
    frozenset({"value"}),
)
_START = 1  # status of a session
_CASTAGNOLI = 0x82F63B78  # polynomial of CRC-32C, with its bits in reverse
_MASK = 0xA282EAD8  # added to checksums of TensorFlow's records


class EventWriter:
    """Appends scalars to a new file of events.

    Args:
        file: file from `open_to_append`.
        start_step: step that the run resumes from; TensorBoard drops later scalars of other files.
    """

    def __init__(self, file: Any, start_step: int) -> None:
        self._file = file
        self._write(file_version="brain.Event:2")
        if start_step:
            self._write(step=start_step + 1, session_log=_MESSAGES["SessionLog"](status=_START))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the scalars of a step."""
        for name, value in values.items():
            scalar = _MESSAGES["Value"](tag=name, simple_value=value)
            self._write(step=step, summary=_MESSAGES["Summary"](value=[scalar]))

    def _write(self, **fields: Any) -> None:
        """Writes in the caller's thread, so that a full disk is an error."""
        data = _MESSAGES["Event"](wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(data))
        append(self._file, length + _masked_crc32c(length) + data + _masked_crc32c(data))


def _masked_crc32c(data: bytes) -> bytes:
    """Checksum of a part of a record of TensorFlow."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest = _table()[(rest ^ byte) & 0xFF] ^ (rest >> 8)
    checksum = rest ^ 0xFFFFFFFF
    rotated = (checksum >> 15 | checksum << 17) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + _MASK) & 0xFFFFFFFF)


@functools.cache
def _table() -> list[int]:
    """What each byte contributes to a CRC-32C."""
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (_CASTAGNOLI if value & 1 else 0) for value in table]
    return table
