"""What is done where JAX's C++ aborts the process, as it does when the first process is gone."""

import contextlib
import ctypes
import signal
from collections.abc import Callable, Iterator

__all__ = ["on_abort"]

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


@contextlib.contextmanager
def on_abort(end: Callable[[], object]) -> Iterator[None]:
    """Calls a function in the thread that aborts, in place of a core dump.

    Python's own handlers would come too late: they run in the main thread, which an abort does not
    wait for, and may be in C++ itself. This one runs at once, as an abort is no interruption of the
    code that calls it.

    Args:
        end: ends the process; where it returns, the abort goes on.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    handler = _HANDLER(lambda _: end() and None)
    before = libc.signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        libc.signal(signal.SIGABRT, before)
