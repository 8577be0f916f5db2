"""Google's buckets: gcsfs, whose requests are sent again for longer during a training."""

import asyncio
import functools
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import fsspec
from gcsfs.core import GCSFileSystem
from gcsfs.retry import HttpError, is_retriable
from google.auth.exceptions import TransportError

from jaxformer.errors import first_line
from jaxformer.storage.file_systems import PATIENCE, given_up, locks, say_waiting, trainings

_IMPATIENCE = 60.0  # seconds for which requests are sent again without a training
_SILENT = 15.0  # seconds after which a training says that it waits
_PAUSES = (1.0, 32.0)  # seconds before a request is sent again: the first time, and at most
_TIMEOUT = 30.0  # seconds without a byte of the answer after which a request is sent again
_UPLOAD = 300.0  # seconds for a request that changes something, of 50 MiB at most, and its answer

# Without the repetitions of gcsfs.
_REQUEST, _GET_FILE = (
    getattr(method, "__wrapped__", method)
    for method in (GCSFileSystem._request, GCSFileSystem._get_file_request)
)


class PatientFileSystem(GCSFileSystem):
    """Google's buckets, where a request that fails is sent again for ten minutes of a training.

    gcsfs alone gives up after half a minute, and a checkpoint with it. Before a request that
    changes something is sent again, the locks of this process must still hold.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        timeout = aiohttp.ClientTimeout(None, sock_connect=_TIMEOUT, sock_read=_TIMEOUT)
        super().__init__(*args, **{"requests_timeout": timeout, **options})

    async def _request(self, method: str, path: str, *args: Any, **options: Any) -> Any:
        send = functools.partial(_REQUEST, self, method, path, *args, **options)
        place = "/".join(map(str, args)) or path  # bucket and name, or a URL
        if method.upper() in ("GET", "HEAD"):
            return await _sent(send, place)
        # The limits of aiohttp count from the end of an upload.
        required = list(locks.values())
        return await _sent(lambda: asyncio.wait_for(send(), _UPLOAD), place, required)

    async def _get_file_request(self, path: str, *args: Any, **options: Any) -> Any:
        return await _sent(functools.partial(_GET_FILE, self, path, *args, **options), path)


async def _sent(
    send: Callable[[], Awaitable[Any]], place: str, required: Sequence[Callable[[], None]] = ()
) -> Any:
    """The answer to a request, which is sent again while there is none.

    Before that, the functions of `required` are called, which raise if a lock is lost.
    """
    started, pause = time.monotonic(), _PAUSES[0]
    while True:
        try:
            answer = await send()
        except Exception as error:  # gcsfs and aiohttp raise many kinds
            if (longest := _patience_with(error)) == 0:
                given_up.clear()
                raise
            waited = time.monotonic() - started
            if not trainings or given_up.is_set():
                longest = min(longest, _IMPATIENCE)
            if waited > longest:
                if trainings:
                    given_up.set()
                raise
            if trainings and waited >= _SILENT:
                say_waiting(f"{place}: the bucket does not answer ({first_line(error)})")
        else:
            given_up.clear()
            return answer
        await asyncio.sleep(pause + random.random() * pause / 2)
        pause = min(2 * pause, _PAUSES[1])
        for require in required:
            await asyncio.to_thread(require)  # it may wait for a renewal


def _patience_with(error: Exception) -> float:
    """Seconds for which a request is sent again after an error; 0 for one of the request itself."""
    if isinstance(error, HttpError) and error.code == 401:
        if (cause := error.__cause__) is None:  # said by the bucket: a new token may help
            return _IMPATIENCE
        no_answer = isinstance(cause.__cause__, TransportError)  # to the login
        return PATIENCE if no_answer or getattr(cause, "retryable", False) else 0.0
    passes = isinstance(error, (TimeoutError, TransportError)) or is_retriable(error)
    return PATIENCE if passes else 0.0


@functools.cache
def register() -> None:
    """Makes fsspec use it for paths with gs:// and gcs://, also for those of Orbax."""
    for scheme in ("gs", "gcs"):
        fsspec.register_implementation(scheme, PatientFileSystem, clobber=True)
