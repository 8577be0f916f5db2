"""A handler for aborts by JAX's C++ code, such as when the first process of a job is gone."""

import contextlib
import ctypes
import signal
from collections.abc import Callable, Iterator

__all__ = ["on_abort"]

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


@contextlib.contextmanager
def on_abort(end: Callable[[], object]) -> Iterator[None]:
    """Calls `end`, which should end the process, in the thread that aborts, before a core dump.

    Python's own signal handlers would come too late: they run in the main thread, which may be in
    C++ code, and an abort does not wait for it. This one runs at once: an abort is an ordinary call
    and interrupts nothing. If `end` returns, the abort continues.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    handler = _HANDLER(lambda _: end() and None)
    before = libc.signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        libc.signal(signal.SIGABRT, before)
