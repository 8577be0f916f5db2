"""The Hugging Face Hub on this machine: repositories of files, as far as huggingface_hub asks."""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator

_API = re.compile(
    r"/api/(?P<kind>datasets|models)/(?P<name>[^/]+/[^/]+)(/(?P<what>[^/]+)/?(?P<rest>.*))?"
)
_FILE = re.compile(r"/((?P<kind>datasets)/)?(?P<name>[^/]+/[^/]+)/resolve/(?P<rest>.+)")


class Hub:
    """Repositories such as "datasets/owner/name": all commits, each with its files by path."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}

    def commit(self, repository: str, files: dict[str, bytes]) -> str:
        """Adds files to the newest commit of a repository; returns the new commit."""
        commits = self.commits.setdefault(repository, {})
        files = {**next(reversed(commits.values()), {}), **files}
        commit = hashlib.sha1(repr((sorted(files.items()), len(commits))).encode()).hexdigest()
        commits[commit] = files
        return commit

    def files(self, repository: str, revision: str = "main") -> dict[str, bytes] | None:
        """Files of a revision; None if there is none."""
        commits = self.commits.get(repository, {})
        return commits.get(self.newest(repository) if revision == "main" else revision)

    def newest(self, repository: str) -> str:
        """The newest commit of a repository."""
        return next(reversed(self.commits.get(repository, {"": {}})))

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Serves the repositories; yields the URL."""
        handler = type("Handler", (_Handler,), {"hub": self})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()


def _entry(path: str, content: bytes) -> dict[str, object]:
    return {
        "type": "file", "path": path, "size": len(content),
        "oid": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
    }  # fmt: skip


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        """Nothing is printed."""

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value: object) -> None:
        self._answer(200, json.dumps(value).encode(), Content_Type="application/json")

    def _missing(self, code: str) -> None:
        self._answer(404, b"{}", X_Error_Code=code, X_Error_Message=f"{code} of {self.path}")

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        if (match := _FILE.fullmatch(path)) is not None:
            return self._file(f"{match['kind'] or 'models'}/{match['name']}", match["rest"])
        if (match := _API.fullmatch(path)) is None:
            return self._missing("EntryNotFound")
        repository, rest = f"{match['kind']}/{match['name']}", match["rest"] or "main"
        revision, _, folder = rest.partition("/")
        if repository not in self.hub.commits:
            return self._missing("RepoNotFound")
        files = self.hub.files(repository, revision)
        if files is None:
            return self._missing("RevisionNotFound")
        if match["what"] == "tree":
            return self._tree(files, folder)
        siblings = [{"rfilename": name} for name in files]
        sha = self.hub.newest(repository) if revision == "main" else revision
        return self._json({"id": match["name"], "sha": sha, "siblings": siblings, "tags": []})

    do_HEAD = do_GET

    def _tree(self, files: dict[str, bytes], folder: str) -> None:
        prefix = f"{folder}/" if folder else ""
        inside = {path: files[path] for path in files if path.startswith(prefix)}
        if not inside:
            return self._missing("EntryNotFound")
        recursive = "recursive=true" in self.path.lower()
        folders = {prefix + path.removeprefix(prefix).split("/")[0] for path in inside}
        entries = [
            _entry(path, content)
            for path, content in inside.items()
            if recursive or path in folders
        ]
        entries += [
            {"type": "directory", "path": path, "oid": "0" * 40} for path in folders - {*inside}
        ]
        return self._json(entries)

    def _file(self, repository: str, rest: str) -> None:
        revision, _, path = rest.partition("/")
        files = self.hub.files(repository, revision)
        if files is None or path not in files:
            return self._missing("EntryNotFound" if files else "RevisionNotFound")
        content = files[path]
        headers = {
            "ETag": f'"{_entry(path, content)["oid"]}"', "Accept_Ranges": "bytes",
            "X_Repo_Commit": self.hub.newest(repository) if revision == "main" else revision,
        }  # fmt: skip
        if (span := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))) is None:
            return self._answer(200, content, **headers)
        start, end = int(span[1]), min(int(span[2] or len(content)), len(content) - 1)
        headers["Content_Range"] = f"bytes {start}-{end}/{len(content)}"
        return self._answer(206, content[start : end + 1], **headers)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "Authorization" not in self.headers:
            return self._answer(403, b"{}")
        if self.path == "/api/repos/create":
            values = json.loads(body)
            name = (
                values["name"]
                if "/" in values["name"]
                else f"{values['organization']}/{values['name']}"
            )
            self.hub.commits.setdefault(f"{values.get('type', 'model')}s/{name}", {"0" * 40: {}})
            return self._json({"url": f"http://{self.headers['Host']}/{name}", "id": name})
        if self.path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        match = _API.fullmatch(urllib.parse.unquote(urllib.parse.urlparse(self.path).path))
        if match is None or f"{match['kind']}/{match['name']}" not in self.hub.commits:
            return self._missing("RepoNotFound")
        repository = f"{match['kind']}/{match['name']}"
        if match["what"] == "paths-info":
            values = urllib.parse.parse_qs(body.decode())
            files = self.hub.files(repository, match["rest"]) or {}
            return self._json(
                [_entry(path, files[path]) for path in values["paths"] if path in files]
            )
        if match["what"] == "preupload":
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            return self._json(
                {"files": [{"path": file["path"], **modes} for file in json.loads(body)["files"]]}
            )
        lines = [json.loads(line) for line in body.splitlines()]
        uploads = [line["value"] for line in lines if line["key"] == "file"]
        commit = self.hub.commit(
            repository, {file["path"]: base64.b64decode(file["content"]) for file in uploads}
        )
        url = f"http://{self.headers['Host']}/{match['name']}/commit/{commit}"
        return self._json(
            {"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""}
        )
