"""Agreement of the processes of a job on the step to stop at when one of them gets a signal."""

import contextlib
import itertools
import threading
from collections.abc import Iterator

import jax

from jaxformer.stopping import StopSignals
from jaxformer.training.parallel.hosts.messages import store, try_get

_TICK = 0.2  # seconds between checks for signals of any process

_numbers = itertools.count(1)


class StopAgreement:
    """Whether to stop: all processes of a job ask at the same places and get the same answer.

    A step needs all processes, so none may stop alone. Every process counts its calls of `reached`.
    After a signal to any process, a thread of each publishes its count and holds its next call back
    until all have done so. All then stop at the first call that none has made yet. Until then, a
    call costs a comparison: no message, and no wait for a device.
    """

    def __init__(self, signals: StopSignals, process: int, num_processes: int, key: str) -> None:
        self._signals, self._process, self._key = signals, process, key
        self._num_processes = num_processes
        self._asking = threading.Lock()
        self._closed = threading.Event()
        self._count, self._told = 0, False
        self._requested = False
        self._number = 0
        self._stop_at: int | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True, name="stop agreement")
        if num_processes > 1:
            self._thread.start()

    def request(self) -> None:
        """Makes all processes stop as after a signal."""
        self._requested = True

    def reached(self) -> int | None:
        """The signal that stops the run, 0 if `request` does, or None to continue."""
        if self._num_processes == 1:
            return self._asked()
        with self._asking:
            self._count += 1
            return None if self._stop_at is None or self._count < self._stop_at else self._number

    def _asked(self) -> int | None:
        """As `reached`, for this process alone."""
        return 0 if self._requested and not self._signals.received else self._signals.received

    def close(self) -> None:
        """Ends the agreement for this process."""
        if self._num_processes == 1:
            return
        self._closed.set()
        # Others may wait for this process's count; its thread may be publishing it just now.
        with contextlib.suppress(jax.errors.JaxRuntimeError), self._asking:
            self._tell()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            store().key_value_set(f"{self._key}/counts/{self._process}", str(self._count))

    def _watch(self) -> None:
        asked = False
        # If the store is gone, so is the first process, which ends this one, too.
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            while not self._closed.wait(_TICK):
                received = self._asked()
                if received is not None and not asked:
                    asked = True
                    key = f"{self._key}/asked/{self._process}"
                    store().key_value_set(key, str(int(received)))
                number = try_get(f"{self._key}/asked")
                if number is not None:
                    self._agree(int(number))
                    return

    def _agree(self, number: int) -> None:
        with self._asking:
            self._tell()
            while not self._closed.is_set():
                counts = store().key_value_dir_get(f"{self._key}/counts/")
                if len(counts) == self._num_processes:
                    self._number = number
                    self._stop_at = max(int(count) for _, count in counts) + 1
                    return
                self._closed.wait(_TICK / 10)


@contextlib.contextmanager
def stop_agreement(signals: StopSignals, *, is_shared: bool) -> Iterator[StopAgreement]:
    """Agreement of all processes of the job, which enter it in the same order, or of this one."""
    number = next(_numbers) if is_shared else 0
    num_processes = jax.process_count() if is_shared else 1
    agreement = StopAgreement(
        signals, jax.process_index(), num_processes, f"jaxformer/stop/{number}"
    )
    try:
        yield agreement
    finally:
        agreement.close()
