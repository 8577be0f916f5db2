"""Signals of a process that jaxformer owns, and the message of a stopped one."""

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from jaxformer.stopping.signals import Stopped, StopSignals


def saved_note(step: int | None = None, folder: str | os.PathLike[str] = "") -> str:
    """Message of a stopped training: its saved step, if any, and how to resume it."""
    if not step:
        return "before the first step; repeat the command to start again"
    return f"at step {step}, saved in {folder}; repeat the command to resume"


_process: StopSignals | None = None
"""Signals of this process, if jaxformer owns it."""


def is_cut_short() -> bool:
    """Whether a signal has cut this process short, which may be the cause of an error.

    A library that `Stopped` passes through may turn it into another error, or skip a result.
    """
    return _process is not None and _process.has_raised


def install() -> StopSignals:
    """Catches the signals of this process from now on; for the command line.

    All work runs inside `cut_short` of the result. There, a signal raises `Stopped` in the main
    thread at any point, except inside `finishing`.
    """
    global _process
    _process = StopSignals(owns_process=True)
    report, show = sys.unraisablehook, sys.excepthook

    def report_others(unraisable: Any) -> None:
        # Python raised Stopped where nothing can catch it, such as in __del__.
        if not issubclass(unraisable.exc_type, Stopped):
            report(unraisable)

    def show_others(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        # C code that cannot import NumPy prints the cause before it raises ImportError.
        if not issubclass(kind, Stopped):
            show(kind, error, trace)

    sys.unraisablehook, sys.excepthook = report_others, show_others
    _process.catch()
    _process.watch()
    atexit.register(_process.end)  # registered first, so it runs last
    return _process


def say_stopped(number: int, note: str) -> None:
    """Writes once that a signal has stopped a command; `note` as in `StopSignals.note`."""
    signals = StopSignals() if _process is None else _process
    signals.note = note
    signals.say(number)


@contextlib.contextmanager
def finishing(answer: str = "") -> Iterator[StopSignals]:
    """Context for work that continues after the first signal until it can stop; writes `answer`."""
    is_main = threading.current_thread() is threading.main_thread()
    if _process is not None and is_main:
        signals = _process
        signals.finish_first()
        signals.answer = answer
        try:
            yield signals
        finally:
            signals.answer = ""
            signals.may_cut_short()
        return
    signals = StopSignals()
    signals.answer = answer
    signals.catch()
    if is_main:
        signals.watch()
    try:
        yield signals
    finally:
        signals.restore()
