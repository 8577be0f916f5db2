"""The lock of a run folder in a bucket: a file that names its holder, and is renewed."""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from jaxformer.errors import CheckpointError, ConfigError, StorageError, first_line
from jaxformer.storage.buckets import BucketPath
from jaxformer.storage.file_systems import PATIENCE, given_up, locks, say_waiting
from jaxformer.storage.paths import require_plain

LEASE = 45.0  # seconds that a lock holds after it was renewed
RENEWAL = 10.0  # seconds between two renewals
_POLL = 1.0  # seconds between two looks at the lock of another process, and after a failure
_DENIED = ("PERMISSION_DENIED", "UNAUTHENTICATED")  # in TensorStore's errors
_TIMEOUT = 10.0  # seconds for an answer of the bucket; three fit into a lease

DISK_LOCK = b"process "
"""How the lock of a folder on a disk begins, which may have been copied to a bucket."""

BUCKET_LOCK = b'{"holder": '
"""How the lock of a folder in a bucket begins, which may have been copied to a disk."""

_threads: dict[str, int] = {}
"""Threads of this process that hold the locks of folders, by their URLs."""


@contextlib.contextmanager
def run_lease(folder: BucketPath, name: str) -> Iterator[None]:
    """Locks a run folder in a bucket, by a file `name` in it; the thread may lock it again.

    The file is written under the condition that it has not changed since it was read, and renewed
    every 10 seconds. Another process takes the lock if it has seen it unchanged for 45 seconds.
    Then whatever this process would change in the folder raises StorageError instead.

    Raises:
        CheckpointError: another process holds the lock.
        StorageError: the bucket does not answer.
    """
    if _threads.get(str(folder)) == threading.get_ident():
        yield
        return
    lease = Lease(folder, name)
    lease.take()
    _threads[str(folder)], locks[str(folder)] = threading.get_ident(), lease.require
    try:
        with lease.renewed():
            yield
    finally:
        del _threads[str(folder)], locks[str(folder)]
        lease.release()


def being_trained(folder: pathlib.Path, holder: str) -> CheckpointError:
    """The error for a folder that another process has locked."""
    return CheckpointError(
        f"{folder} is being trained by {holder}; wait until it ends, stop it with kill and its "
        "process number (it saves first), or choose another folder"
    )


def lease_holder(path: BucketPath) -> str:
    """Who holds the lock with this path; an empty text if nobody does."""
    try:
        return _Record.parse(path.read_bytes()).holder
    except OSError:
        return ""


@dataclasses.dataclass(frozen=True)
class _Record:
    """Content of the file: the holder, its token, and when the lease ends, in seconds since 1970.

    Clocks of machines differ, so the end is only for a lock that was left long ago.
    """

    holder: str
    token: str
    ends: float

    @classmethod
    def parse(cls, data: bytes) -> "_Record":
        """Reads it; a lock that was copied from a disk has ended, any other file never does."""
        if not data or data.startswith(DISK_LOCK):
            return cls("", "", 0.0)
        try:
            values = json.loads(data)
            return cls(str(values["holder"]), str(values["token"]), float(values["ends"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return cls("another program, or a damaged lock", "", float("inf"))

    def to_bytes(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()


class Lease:
    """The lock of one folder."""

    def __init__(self, folder: BucketPath, name: str) -> None:
        since = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
        self._holder = f"process {os.getpid()} on {socket.gethostname()}, since {since}"
        self._folder, self._name, self._token = folder, name, secrets.token_hex(8)
        self._store: Any = None
        self._generation: Any = None  # of the file that this process has written
        self._renewing = threading.Lock()
        self._valid_until = 0.0  # by the clock of this machine
        self._lost_to: str | None = None

    def take(self) -> None:
        """Takes the lock, after waiting for a lease that nobody renews."""
        self._store = _store(self._folder)
        self._require_bucket()
        first = found = self._read()
        since, is_announced = time.monotonic(), False
        while found.state == "value":
            record = _Record.parse(found.value)
            is_renewed = found.stamp.generation != first.stamp.generation
            if is_renewed or record.ends == float("inf"):
                raise being_trained(self._folder, record.holder)
            if time.monotonic() - since > LEASE or record.ends + LEASE < time.time():
                break
            if not is_announced:
                print(
                    f"{self._folder} is locked by {record.holder}; waiting up to {LEASE:.0f} "
                    "seconds for a sign of it",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
                is_announced = True
            time.sleep(_POLL)
            found = self._read()
        if not self._write(found.stamp.generation):
            raise being_trained(self._folder, self._holder_now())

    def require(self) -> None:
        """Raises StorageError if the lock is lost, or cannot be renewed for minutes."""
        while time.monotonic() >= self._valid_until:
            try:
                self.renew()
            except StorageError as error:
                if self._lost_to is not None or any(kind in str(error) for kind in _DENIED):
                    raise
                if time.monotonic() - self._valid_until > PATIENCE:
                    given_up.set()
                    raise
                say_waiting(f"{self._folder}: its lock cannot be renewed")
                time.sleep(_POLL)
        if self._lost_to is not None:
            raise self._lost()

    def renew(self) -> None:
        """Renews the lease; StorageError if it is lost, or the bucket does not answer."""
        with self._renewing:
            if self._lost_to is None and not self._write(self._generation):
                self._lost_to = self._holder_now()
            if self._lost_to is not None:
                raise self._lost()

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Renews the lease now and then, in a thread."""
        ended = threading.Event()

        def renew() -> None:
            pause = RENEWAL
            while not ended.wait(pause) and self._lost_to is None:
                try:
                    self.renew()
                    pause = RENEWAL
                except StorageError:  # raised again by `require`
                    pause = _POLL

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def release(self) -> None:
        """Removes the file, unless another process has taken the lock."""
        with contextlib.suppress(Exception):
            self._store.write(self._name, None, if_equal=self._generation).result(_TIMEOUT)

    def _require_bucket(self) -> None:
        """Raises StorageError for a missing bucket, for which TensorStore would wait."""
        bucket = self._folder.bucket
        try:
            list(bucket.iterdir())
        except FileNotFoundError:
            raise StorageError(
                f"there is no bucket {bucket}; correct its name, or create it with: gcloud storage "
                f"buckets create {bucket}"
            ) from None
        except OSError:  # such as no right to list it
            pass

    def _write(self, generation: Any) -> bool:
        """Writes the file if it still has this generation; returns whether it had."""
        started = time.monotonic()
        record = _Record(self._holder, self._token, time.time() + LEASE)
        try:
            write = self._store.write(self._name, record.to_bytes(), if_equal=generation)
            written = write.result(_TIMEOUT)
        except Exception as error:  # TensorStore raises many kinds
            raise self._no_answer(error) from None
        if not written.generation:
            # A write whose answer was lost may have changed the generation.
            found = self._read()
            if found.state != "value" or _Record.parse(found.value).token != self._token:
                return False
            self._generation = found.stamp.generation
            return self._write(self._generation)
        self._generation, self._valid_until = written.generation, started + LEASE
        return True

    def _read(self) -> Any:
        try:
            return self._store.read(self._name).result(_TIMEOUT)
        except Exception as error:
            raise self._no_answer(error) from None

    def _holder_now(self) -> str:
        """Who holds the lock now, asked through TensorStore, whose answer has a time limit."""
        with contextlib.suppress(StorageError):
            found = self._read()
            if found.state == "value" and (holder := _Record.parse(found.value).holder):
                return holder
        return "another process"

    def _lost(self) -> StorageError:
        return StorageError(
            f"{self._folder} is now being trained by {self._lost_to}, which took its lock after "
            f"{LEASE:.0f} seconds without a sign of this process; this training stops"
        )

    def _no_answer(self, error: Exception) -> StorageError:
        return StorageError(
            f"{self._folder / self._name} cannot be written: {first_line(error)[:300]}; check the "
            "bucket's name, your right to write to it and the network, and try again"
        )


def _store(folder: BucketPath) -> Any:
    """TensorStore's key-value store of a folder: gcsfs knows no conditions on writing."""
    if folder.scheme not in ("gs", "gcs"):
        raise ConfigError(
            f"a run folder must be on a disk or in a bucket gs://, got {folder}; Orbax saves "
            "checkpoints in no other kind of bucket"
        )
    require_plain(folder)
    import tensorstore

    bucket, _, path = folder.key.partition("/")
    spec = {"driver": "gcs", "bucket": bucket, "path": f"{path}/" if path else ""}
    return tensorstore.KvStore.open(spec).result()
