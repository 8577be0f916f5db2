"""SIGINT and SIGTERM: the first one lets training save and end."""

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME = 0.5  # seconds; `timeout` sends its signal to the process, and then to the process group


class StopRequest:
    """Context that records the first SIGINT or SIGTERM; the second goes to the old handlers."""

    def __init__(self, *, is_shared: bool = False) -> None:
        self.received: signal.Signals | None = None
        self._is_shared = is_shared
        self._received_at = 0.0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            # Where all processes of a job stop together, JAX handles SIGTERM; SIGINT becomes one.
            for number in _SIGNALS[:1] if self._is_shared else _SIGNALS:
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            # None stands for a handler that was not installed from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous = {}

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._received_at = signal.Signals(number), time.monotonic()
            name, action = self.received.name, "stopping after this step; once more ends it now"
            # print could be interrupted within itself.
            os.write(2, f"jaxformer: {name}: {action}\n".encode())
            if self._is_shared:
                signal.raise_signal(signal.SIGTERM)
        elif time.monotonic() - self._received_at > _SAME:
            self.__exit__()
            signal.raise_signal(number)
