"""Reaction to SIGINT and SIGTERM in the main thread."""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from jaxformer.stopping.ending import exit_now, flush, write_line

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds. A signal so soon after the first counts as the same one: `timeout` sends it to the
# process, and then to the process group.
_TWICE = 0.2
_GRACE = 2.0  # seconds that the main thread gets to return from C++, such as from compiling
_LEAVING_GRACE = 5.0  # seconds that Python gets to exit
_TICK = 0.05  # seconds


class Stopped(BaseException):
    """Raised in the main thread if the first signal cuts work short.

    Not an `Exception`, so that no code mistakes it for a failure.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


class StopSignals:
    """Handles SIGINT and SIGTERM: the first one cuts work short, or is only recorded.

    Python runs signal handlers in the main thread, between two Python instructions: never while
    that thread compiles. So a watcher, a thread, answers a signal at once. If jaxformer owns the
    process (the command line), the watcher also ends it if the main thread does not return in time,
    and a second signal ends it at once. In any other process, the previous handlers get the second
    signal.

    Attributes:
        received: the first signal; None before it.
        has_raised: whether `Stopped` was raised and has not been handled yet.
        note: text after "stopped by SIGTERM": what is saved, and how to resume.
        answer: text to write when the first signal arrives.
        owns_process: whether jaxformer owns the process.
        exit_status: exit status after a signal; None if Python chooses it.
    """

    def __init__(self, *, owns_process: bool = False) -> None:
        self.received: signal.Signals | None = None
        self.note = self.answer = ""
        self.exit_status: int | None = None
        self.owns_process = owns_process
        self._raises = False  # whether a signal cuts short the main thread's work
        self.has_raised = False
        self._leaving = False
        self._since = time.monotonic()  # when _raises or _leaving last changed
        self._received_at = 0.0
        self._save: Callable[[], None] | None = None
        self._taken_over = False  # the watcher ends the process; the main thread only waits
        self._said = False
        self._changing = threading.Lock()
        self._previous: dict[signal.Signals, Any] = {}
        self._wakeup: tuple[int, int] | None = None  # pipe of the watcher, and previous descriptor

    def cut_short(
        self, function: Callable[..., T], *args: Any, save: Callable[[], None] | None = None
    ) -> T:
        """Calls a function that a signal may cut short, by raising `Stopped`, with no effect then.

        `save` is called by the watcher before it ends the process, if the main thread is stuck.
        """
        self._save, self._since = save, time.monotonic()
        self._raises = True
        try:
            # Handlers raise from here on, but a signal may have come earlier.
            if self.received is not None:
                raise Stopped(self.received)
            return function(*args)
        except Exception:
            if self.received is None or not self.has_raised:
                raise
            raise Stopped(self.received) from None  # a library turned Stopped into it
        finally:
            self.finish_first()

    def finish_first(self) -> None:
        """From here on, a signal is only recorded, in `received`."""
        self._raises = self.has_raised = False
        with self._changing:
            if not self._taken_over:
                self._save = None
        if self._taken_over:  # the watcher is saving, so nothing may change here
            threading.Event().wait()
        self._since = time.monotonic()

    def may_cut_short(self) -> None:
        """From here on, a signal raises `Stopped`, if jaxformer owns the process."""
        self._since = time.monotonic()
        self._raises = self.owns_process

    def leave(self) -> None:
        """From here on, a signal ends the process at once, without an exception."""
        self._leaving = True
        self._since = time.monotonic()

    def end(self) -> None:
        """Ends a process that a signal has stopped, after all other exit handlers.

        C++ code that was cut short may crash when Python tears down its modules.
        """
        if self.exit_status is not None:
            flush()
            exit_now(self.exit_status)

    def say(self, number: int) -> None:
        """Writes once that a signal has stopped the process."""
        with self._changing:
            said, self._said = self._said, True
        if said:
            return
        if self.note:
            name = signal.Signals(number).name
            write_line(f"jaxformer: stopped by {name} {self.note}")
        elif os.isatty(2):
            write_line("")  # after the ^C that the terminal shows

    def catch(self) -> None:
        """Installs the handlers; does nothing outside the main thread, where Python forbids it."""
        for number in _SIGNALS:
            with contextlib.suppress(ValueError):
                self._previous[number] = signal.signal(number, self._receive)

    def restore(self) -> None:
        """Restores the handlers from before `catch`."""
        for number, handler in self._previous.items():
            # None means a handler that was not installed from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous = {}
        if self._wakeup is not None:
            signal.set_wakeup_fd(self._wakeup[1])
            os.close(self._wakeup[0])  # ends the watcher
            self._wakeup = None

    def watch(self) -> None:
        """Starts the watcher; call it in the main thread."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        self._wakeup = write, signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(read,), daemon=True, name="signals").start()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.received is not None:
            if now - self._received_at < _TWICE:
                return
            if self.owns_process:
                exit_now(128 + number)
            self.restore()
            signal.raise_signal(number)
            return
        self._received_at = now
        self.received = signal.Signals(number)
        if self._leaving:
            exit_now(128 + number)
        if self._raises and _is_importing(frame):
            # An exception while a C++ module is initialized may crash the process.
            if self._save is None:
                self._save_and_end(number)
            return  # the watcher saves
        if self._raises:
            self.has_raised = True
            raise Stopped(number)

    def _watch(self, descriptor: int) -> None:
        """Waits for signals, which C code writes to the pipe whatever the main thread does."""
        first, came = 0, 0.0
        while True:
            if select.select([descriptor], [], [], _TICK if first else None)[0]:
                if not (numbers := os.read(descriptor, 64)):
                    os.close(descriptor)
                    return
                for number in numbers:
                    if number not in _SIGNALS:
                        continue
                    if not first:
                        first, came = number, time.monotonic()
                        if self.answer:
                            write_line(f"jaxformer: {signal.Signals(number).name}: {self.answer}")
                    elif time.monotonic() - came > _TWICE and self.owns_process:
                        exit_now(128 + number)
            if first and self.owns_process and not self._taken_over:
                self._end_if_stuck(first, came)

    def _end_if_stuck(self, number: int, came: float) -> None:
        """Ends the process if the main thread did not return in time."""
        waited = time.monotonic() - max(came, self._since)
        if self._leaving:
            if waited > _LEAVING_GRACE:
                exit_now(128 + number)
            return
        if waited < _GRACE:
            return
        with self._changing:
            if not self._raises:
                return
            self._taken_over = True
        # In a separate thread, so that a second signal still ends the process at once.
        threading.Thread(target=self._save_and_end, args=(number,), daemon=True).start()

    def _save_and_end(self, number: int) -> None:
        try:
            if self._save is not None:
                self._save()
        except Exception as error:  # any error: the process ends here in any case
            self.note = f"{self.note}; later steps cannot be saved: {error}"
        self.say(number)
        exit_now(128 + number)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a frame, or one of its callers, is importing a module."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
