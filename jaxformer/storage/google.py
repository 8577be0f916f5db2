"""Google's buckets: gcsfs, with patience while a run is trained. Needs gcsfs."""

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import fsspec
import gcsfs
from gcsfs.retry import is_retriable

from jaxformer.errors import first_line
from jaxformer.storage.file_systems import PATIENCE, locks

_TIMEOUT = 30.0  # seconds without a byte after which a request is sent again; gcsfs waits for 300
_PAUSE = 5.0  # seconds before a request that gcsfs has given up, after half a minute, is sent again

_given_up = threading.Event()
"""Set from giving a bucket up until an answer: what an ending training still asks waits no more."""


class PatientFileSystem(gcsfs.GCSFileSystem):
    """Google's buckets, where a request is sent again for ten minutes while a run is locked.

    gcsfs alone gives up after half a minute, and a checkpoint with it. A request that changes
    something is sent again only if all locks of this process still hold.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT, sock_read=_TIMEOUT)
        super().__init__(*args, **{"requests_timeout": timeout, **options})

    async def _request(self, method: str, path: str, *args: Any, **options: Any) -> Any:
        def send() -> Any:
            return super(PatientFileSystem, self)._request(method, path, *args, **options)

        return await _patiently(send, changes=method.upper() not in ("GET", "HEAD"))

    async def _get_file_request(self, *args: Any, **options: Any) -> Any:
        def send() -> Any:
            return super(PatientFileSystem, self)._get_file_request(*args, **options)

        return await _patiently(send, changes=False)


async def _patiently(send: Callable[[], Awaitable[Any]], *, changes: bool) -> Any:
    started = time.monotonic()
    while True:
        try:
            answer = await send()
        except Exception as error:  # gcsfs and aiohttp raise many kinds
            if not locks or not is_retriable(error):
                raise
            if _given_up.is_set() or time.monotonic() - started > PATIENCE:
                _given_up.set()
                raise
            line = f"a bucket does not answer ({first_line(error)}); trying again"
            print(line, file=sys.stderr, flush=True)
        else:
            _given_up.clear()
            return answer
        await asyncio.sleep(_PAUSE)
        for require in list(locks.values()) if changes else ():
            await asyncio.to_thread(require)  # it may wait for a renewal


def register() -> None:
    """Makes fsspec use it for paths with gs:// and gcs://, also for those of Orbax."""
    for scheme in ("gs", "gcs"):
        fsspec.register_implementation(scheme, PatientFileSystem, clobber=True)
