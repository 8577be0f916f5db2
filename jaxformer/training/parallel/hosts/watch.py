"""Watches the processes of a job, so that none waits for a dead one."""

import contextlib
import ctypes
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import jax

from jaxformer.stopping.ending import exit_now, write_line
from jaxformer.training.parallel.hosts.messages import store

_GRACE = 1.0  # seconds for a process to find the same error as another by itself
_LEAVING = 10.0  # seconds for a process to end after an error
_KEY = "jaxformer/watch"
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


class HostWatch:
    """Sends heartbeats to the other processes of a job, and ends this one if another is gone.

    If a process fails, the others hang in a collective, which only the end of their own process can
    interrupt. So the watch prints a line and ends the process, with the exit status of the process
    that failed, or 1 if heartbeats stopped.
    """

    def __init__(self, timeout: float, note: Callable[[], str]) -> None:
        self._timeout, self._note = timeout, note
        self._tick = min(1.0, timeout / 10)
        self._own, self._count = jax.process_index(), jax.process_count()
        self._stopped, self._leaving = threading.Event(), threading.Event()
        self._status = 1
        self._answered = time.monotonic()
        # Last heartbeat and its time of arrival, by process.
        self._last = {index: ("{}", self._answered) for index in range(self._count)}
        self._aborts = contextlib.ExitStack()
        self._aborts.enter_context(on_abort(self.say_lost))
        self._thread = threading.Thread(target=self._watch, daemon=True, name="hosts")
        self._thread.start()

    def fail(self, status: int, why: str) -> None:
        """Tells the other processes that this one ends with an error, so that they end, too."""
        self._status = status
        self._leaving.set()
        message = json.dumps({"status": status, "why": why[:1000], "host": socket.gethostname()})
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            store().key_value_set(f"{_KEY}/failed/{self._own}", message)
            # The first process serves the store, and must wait until the others have read this.
            deadline = time.monotonic() + 5 * self._tick + _GRACE
            while self._own == 0 and time.monotonic() < deadline:
                if len(store().key_value_dir_get(f"{_KEY}/heard/")) >= self._count - 1:
                    return
                time.sleep(self._tick / 5)

    def wait_for_verdict(self) -> None:
        """Waits until a dead process would be noticed; it may have caused an error of this one."""
        time.sleep(self._timeout + 3 * self._tick)

    def finish(self) -> None:
        """Waits until the first process has finished its work, then ends the watch."""
        if self._own == 0:
            store().key_value_set(f"{_KEY}/finished/0", "")
        while not store().key_value_dir_get(f"{_KEY}/finished/"):
            time.sleep(self._tick / 2)
        self._stopped.set()
        self._thread.join()
        self._aborts.close()

    def leave(self) -> None:
        """Ends the process without JAX's final barrier, unless all have finished."""
        if not self._stopped.is_set():
            exit_now(self._status)

    def say_lost(self) -> NoReturn:
        """Ends this process because another one is gone; called when JAX aborts, too."""
        who = "process 0" if self._own else "a process"
        self._end(1, f"{who} of the {self._count} is gone, or its host does not answer")

    def _watch(self) -> None:
        number = 0
        while not self._stopped.wait(self._tick):
            if self._leaving.is_set():
                if self._stopped.wait(_LEAVING):
                    return
                self.leave()
            number += 1
            try:
                self._look(number)
            except jax.errors.JaxRuntimeError:
                if time.monotonic() - self._answered > self._timeout and not self._stopped.is_set():
                    self.say_lost()
            else:
                self._answered = time.monotonic()

    def _look(self, number: int) -> None:
        """Sends a heartbeat, and checks the other processes."""
        life = json.dumps({"number": number, "host": socket.gethostname()})
        store().key_value_set(f"{_KEY}/alive/{self._own}", life, allow_overwrite=True)
        for key, message in sorted(store().key_value_dir_get(f"{_KEY}/failed/")):
            process = int(key.rpartition("/")[2])
            if process != self._own:
                self._follow(process, json.loads(message))
        if self._own == 0:
            self._look_for_dead()

    def _follow(self, process: int, failure: dict[str, object]) -> None:
        """Ends this process after another one failed, unless it is ending already."""
        ends_itself = self._leaving.wait(_GRACE)
        if not ends_itself:
            who = f"process {process} of {self._count}, on {failure['host']}, has ended"
            if process == 0 and failure.get("dead"):
                who = "the job has ended"
            self._status = int(str(failure["status"]))
            self._say(f"{who}: {failure['why']}")
            self._leaving.set()
        # Process 0 stays until all have read this: without its store, JAX aborts the others.
        store().key_value_set(f"{_KEY}/heard/{self._own}", "", allow_overwrite=True)
        if not ends_itself:
            exit_now(self._status)

    def _look_for_dead(self) -> None:
        now = time.monotonic()
        for key, life in store().key_value_dir_get(f"{_KEY}/alive/"):
            process = int(key.rpartition("/")[2])
            if self._last[process][0] != life:
                self._last[process] = life, now
        for process, (life, since) in self._last.items():
            if now - since > self._timeout:
                host = json.loads(life).get("host", "an unknown host")
                why = (
                    f"process {process} of {self._count}, on {host}, has given no sign of life for "
                    f"{self._timeout:.0f} s and is considered dead"
                )
                message = {"status": 1, "why": why, "host": socket.gethostname(), "dead": True}
                store().key_value_set(f"{_KEY}/failed/0", json.dumps(message))
                if self._count > 2:
                    time.sleep(3 * self._tick)  # until the others have read it from the store
                self._end(1, why)

    def _end(self, status: int, why: str) -> NoReturn:
        if self._leaving.is_set():  # it has already said why
            exit_now(self._status)
        self._say(why)
        exit_now(status)

    def _say(self, why: str) -> None:
        note = self._note()
        write_line(f"jaxformer: error: {why}{'; ' if note else ''}{note}")


@contextlib.contextmanager
def on_abort(end: Callable[[], object]) -> Iterator[None]:
    """Calls `end`, which should end the process, in the thread that aborts, before a core dump."""
    # Python's own signal handlers would come too late: they run in the main thread, which may be
    # in C++ code, and an abort does not wait for it. This one runs at once: an abort is an ordinary
    # call and interrupts nothing. If `end` returns, the abort continues.
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    handler = _HANDLER(lambda _: end() and None)
    before = libc.signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        libc.signal(signal.SIGABRT, before)
