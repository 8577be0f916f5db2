"""Google Cloud Storage on this machine: gcp-storage-emulator, with faults.

The package answers one request at a time, leaves out the generation of what it returns, and takes a
carriage return at the end of an upload for a part of the boundary after it; all are mended here.
"""

import contextlib
import functools
import http.server
import logging
import re
import secrets
import threading
import urllib.parse
from collections.abc import Callable, Iterator

from gcp_storage_emulator import server as emulator
from gcp_storage_emulator.exceptions import NotFound

logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)  # each missing file
_OBJECT = re.compile(r".*/b/(?P<bucket>[^/]+)/o/(?P<name>.+)")
_decode_raw_data = emulator._decode_raw_data


def _decode_upload(data: bytes | None, handler: "_Handler") -> bytes | None:
    """The body of a request; in uploads of gcsfs, the line before the last boundary ends in CRLF.

    gcsfs ends lines with LF, before which the parser takes a carriage return of the content away.
    """
    body: bytes | None = _decode_raw_data(data, handler)
    if body and handler.headers.get("Content-Type", "").startswith("multipart/related"):
        content, _, boundary = body.rpartition(b"\n--")
        return content + b"\r\n--" + boundary
    return body


emulator._decode_raw_data = _decode_upload


class _Handler(emulator.RequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # which would hold every answer back for 40 ms

    def __init__(self, store: "Emulator", *arguments: object) -> None:
        self._store = store
        super().__init__(store.storage, *arguments)

    def _handle(self, method: Callable[[], None]) -> None:
        if status := self._store.fault(self.command, self.path):
            return self._refuse(status)
        if "/moveTo/" in self.path:
            return self._refuse(400)  # the package has no moves; gcsfs then copies
        with self._store.lock:
            method()
        return None

    def _generation(self) -> str:
        """Generation of the object of the request; 0 if there is none."""
        if not (match := _OBJECT.fullmatch(urllib.parse.urlparse(self.path).path)):
            return "0"
        try:
            name = urllib.parse.unquote(match["name"])
            return str(self.storage.get_file_obj(match["bucket"], name)["generation"])
        except NotFound:
            return "0"

    def _refuse(self, status: int) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)  # or else it would be taken for the next request
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def end_headers(self) -> None:
        """Adds the generation, by which TensorStore knows what it has read."""
        if self.command == "GET":
            self.send_header("x-goog-generation", self._generation())
        super().end_headers()

    def do_GET(self) -> None:
        self._handle(super().do_GET)

    def do_POST(self) -> None:
        self._handle(super().do_POST)

    def do_PUT(self) -> None:
        self._handle(super().do_PUT)

    def do_DELETE(self) -> None:
        self._handle(super().do_DELETE)


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Says nothing of clients that close a connection."""


class Emulator:
    """A server with empty buckets; `fault(method, path)` may return a status to refuse with."""

    def __init__(self, port: int = 0) -> None:
        self.storage = emulator.Server("127.0.0.1", 0, True)._storage
        self.lock = threading.Lock()
        self.fault: Callable[[str, str], int | None] = lambda *_: None
        self._server = _Server(("127.0.0.1", port), functools.partial(_Handler, self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def add_bucket(self, name: str | None = None) -> str:
        """Makes an empty bucket, unless there is one of that name; returns its name."""
        name = name or f"bucket-{secrets.token_hex(4)}"
        emulator.buckets.create_bucket(name, self.storage)
        return name

    def contents(self, bucket: str) -> dict[str, bytes]:
        """All objects of a bucket, by name."""
        names = list(self.storage.objects.get(bucket, {}))
        return {name: self.storage.get_file(bucket, name) for name in names}

    def environment(self) -> dict[str, str]:
        """Variables by which gcsfs and TensorStore find it."""
        return {"STORAGE_EMULATOR_HOST": self.url, "TENSORSTORE_GCS_HTTP_URL": self.url}

    @contextlib.contextmanager
    def running(self) -> Iterator["Emulator"]:
        """Serves in a thread."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
