"""Google's buckets: gcsfs, whose requests are sent again for longer during a training."""

import asyncio
import functools
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import fsspec
from gcsfs.core import GCSFileSystem
from gcsfs.retry import HttpError, is_retriable
from google.auth.exceptions import TransportError

from jaxformer.errors import first_line
from jaxformer.storage.file_systems import PATIENCE, given_up, locks, trainings

_IMPATIENCE = 30.0  # seconds for which requests are sent again without a training
_PAUSES = (1.0, 32.0)  # seconds before a request is sent again: the first time, and at most
_TIMEOUT = 30.0  # seconds without a byte of the answer after which a request is sent again
_TOTAL = 300.0  # seconds for a request and its answer
_QUIET = 30.0  # seconds between two lines about buckets that do not answer

# Without the repetitions of gcsfs.
_REQUEST = GCSFileSystem._request.__wrapped__
_GET_FILE = GCSFileSystem._get_file_request.__wrapped__

_said = -_QUIET  # when the last line was printed


class PatientFileSystem(GCSFileSystem):
    """Google's buckets, where a request that fails is sent again for ten minutes of a training.

    gcsfs alone gives up after half a minute, and a checkpoint with it. Before a request that
    changes something is sent again, the locks of this process must still hold.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        timeout = aiohttp.ClientTimeout(_TOTAL, sock_connect=_TIMEOUT, sock_read=_TIMEOUT)
        super().__init__(*args, **{"requests_timeout": timeout, **options})

    async def _request(self, method: str, path: str, *args: Any, **options: Any) -> Any:
        send = functools.partial(_REQUEST, self, method, path, *args, **options)
        place = "/".join(map(str, args)) or path  # bucket and name, or a URL
        return await _sent(send, place, changes=method.upper() not in ("GET", "HEAD"))

    async def _get_file_request(self, path: str, *args: Any, **options: Any) -> Any:
        return await _sent(functools.partial(_GET_FILE, self, path, *args, **options), path)


async def _sent(send: Callable[[], Awaitable[Any]], place: str, *, changes: bool = False) -> Any:
    """The answer to a request, which is sent again while there is none."""
    started, pause = time.monotonic(), _PAUSES[0]
    while True:
        try:
            answer = await send()
        except Exception as error:  # gcsfs and aiohttp raise many kinds
            if not _is_silence(error):
                given_up.clear()
                raise
            waited = time.monotonic() - started
            is_patient = bool(trainings) and not given_up.is_set()
            if waited > (PATIENCE if is_patient else _IMPATIENCE):
                if trainings:
                    given_up.set()
                raise
            if trainings and waited >= _IMPATIENCE:
                _say(f"{place}: the bucket does not answer ({first_line(error)}); trying again")
        else:
            given_up.clear()
            return answer
        await asyncio.sleep(pause + random.random() * pause / 2)
        pause = min(2 * pause, _PAUSES[1])
        for require in list(locks.values()) if changes else ():
            await asyncio.to_thread(require)  # it may wait for a renewal


def _is_silence(error: Exception) -> bool:
    """Whether an error may pass: not one of the request itself, such as a login that has ended."""
    if isinstance(error, HttpError) and error.code == 401:
        return bool(getattr(error.__cause__, "retryable", False))
    return isinstance(error, (TimeoutError, TransportError)) or is_retriable(error)


def _say(line: str) -> None:
    """Prints a line, unless one was printed just now: many requests may wait at once."""
    global _said
    if time.monotonic() - _said >= _QUIET:
        _said = time.monotonic()
        print(line, file=sys.stderr, flush=True)


@functools.cache
def register() -> None:
    """Makes fsspec use it for paths with gs:// and gcs://, also for those of Orbax."""
    for scheme in ("gs", "gcs"):
        fsspec.register_implementation(scheme, PatientFileSystem, clobber=True)
