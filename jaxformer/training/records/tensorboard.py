"""Scalars for TensorBoard, written by its own package where that is installed."""

import importlib.util
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from jaxformer.storage import in_bucket


def open_events(folder: pathlib.Path, start_step: int) -> Any:
    """Writer of events in `folder/tensorboard`; None without its package, and in a bucket."""
    if importlib.util.find_spec("tensorboard") is None or in_bucket(folder):
        return None
    from tensorboard.compat.proto import event_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder / "tensorboard"))
    if start_step:  # TensorBoard then drops the later scalars of other files
        log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        start = event_pb2.Event(wall_time=time.time(), step=start_step + 1, session_log=log)
        writer.add_event(start)
    return writer


def add_scalars(writer: Any, step: int, values: Mapping[str, float]) -> None:
    """Writes the scalars of a step."""
    from tensorboard.compat.proto import event_pb2, summary_pb2

    scalars = [summary_pb2.Summary.Value(tag=name, simple_value=v) for name, v in values.items()]
    summary = summary_pb2.Summary(value=scalars)
    writer.add_event(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))
