"""Manifests: SHA-256 of every file of a folder, to detect damage before files are read."""

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import stat
from collections.abc import Collection, Mapping
from typing import Any

from jaxformer.errors import CheckpointError
from jaxformer.storage.files import is_draft, sync_path, write_whole
from jaxformer.storage.json_files import read_json

_MAX_MANIFEST = 64 * 2**20  # bytes: some 500,000 files
_HASHING_THREADS = 4  # hashlib releases the GIL


@dataclasses.dataclass(frozen=True)
class Manifest:
    """SHA-256 of every file of a folder, by path with slashes, and information on the folder.

    The information is JSON values, such as the version that wrote it. A file that is being replaced
    has several valid digests.
    """

    about: Mapping[str, Any]
    files: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(
        cls,
        folder: pathlib.Path,
        about: Mapping[str, Any],
        *,
        ignore: Collection[str] = (),
        sync: bool = False,
    ) -> "Manifest":
        """Makes the manifest of a folder of regular files; `sync` also syncs them to disk."""
        paths = _regular_files(folder, ignore)
        digests = _digests(folder, paths, sync=sync)
        if sync:
            for parent in {os.path.dirname(path) for path in paths} | {""}:
                sync_path(folder / parent)
        return cls(about, {path: (digest,) for path, digest in digests.items()})

    def damage(
        self, folder: pathlib.Path, *, ignore: Collection[str] = (), others: bool = False
    ) -> str | None:
        """Compares a folder with the manifest: the first damage, for a message, or None.

        `ignore` are paths that it does not cover. With `others`, the folder may have other files
        and links, which are not read.
        """
        try:
            if others:
                paths = [path for path in sorted(self.files) if _lies_in(folder, path)]
            else:
                paths = _regular_files(folder, ignore)
            found = _digests(folder, paths)
        except CheckpointError as error:
            return str(error)
        except OSError as error:
            return f"{error.filename} cannot be read: {error.strerror}"
        for path in sorted(self.files.keys() | found.keys()):
            if path not in found:
                return f"{path} is missing"
            if path not in self.files:
                return f"{path} does not belong to it"
            if found[path] not in self.files[path]:
                return f"{path} is not the file that was written: its SHA-256 differs"
        return None


def _regular_files(folder: pathlib.Path, ignore: Collection[str]) -> list[str]:
    """Paths of all files below a folder, sorted; does not follow links."""
    found: list[str] = []
    folders = [""]
    while folders:
        prefix = folders.pop()
        with os.scandir(folder / prefix) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if path in ignore or is_draft(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{path}/")
                elif entry.is_file(follow_symlinks=False):
                    found.append(path)
                else:
                    kind = "a link" if entry.is_symlink() else "not a regular file"
                    raise CheckpointError(f"{path} is {kind}")
    return sorted(found)


def _lies_in(folder: pathlib.Path, path: str) -> bool:
    """Whether a folder has a regular file at a path; CheckpointError for a link or the like."""
    parts = path.split("/")
    if ".." in parts or os.path.isabs(path):
        raise CheckpointError(f"{path} is not in the folder")
    for end in range(1, len(parts) + 1):
        part = "/".join(parts[:end])
        try:
            mode = os.lstat(folder / part).st_mode
        except FileNotFoundError:
            return False
        if not (stat.S_ISREG(mode) if part == path else stat.S_ISDIR(mode)):
            kind = "a link" if stat.S_ISLNK(mode) else "not a regular file"
            raise CheckpointError(f"{part} is {kind}")
    return True


def _digests(folder: pathlib.Path, paths: Collection[str], *, sync: bool = False) -> dict[str, str]:
    """SHA-256 of files in a folder, by path; OSError if a file cannot be read."""
    with concurrent.futures.ThreadPoolExecutor(_HASHING_THREADS) as threads:
        digests = threads.map(lambda path: _digest(folder / path, sync), paths)
        return dict(zip(paths, digests, strict=True))


def _digest(path: pathlib.Path, sync: bool) -> str:
    """SHA-256 of a file, in hexadecimal; with sync, also syncs it to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sync:
            os.fsync(descriptor)
        return digest


def write_manifest(path: pathlib.Path, manifest: Manifest) -> None:
    """Writes a manifest as JSON, with its own SHA-256."""
    values = {"about": dict(manifest.about), "files": {k: [*v] for k, v in manifest.files.items()}}
    text = json.dumps({**values, "sha256": _json_digest(values)}, indent=0)
    write_whole(path, text + "\n")


def read_manifest(path: pathlib.Path) -> Manifest:
    """Reads a manifest; CheckpointError if it is missing or damaged."""

    def made(values: Any) -> Manifest:
        digest = values.pop("sha256")
        if digest != _json_digest(values):
            raise ValueError("its SHA-256 differs")
        files = {str(name): tuple(map(str, digests)) for name, digests in values["files"].items()}
        return Manifest(dict(values["about"]), files)

    return read_json(path, made, limit=_MAX_MANIFEST, damaged="{path} is damaged: {error}")


def _json_digest(values: Any) -> str:
    """SHA-256 of JSON values, independent of spaces and the order of keys."""
    return sha256(json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True))


def sha256(content: str | bytes) -> str:
    """SHA-256 of text (as UTF-8) or bytes, in hexadecimal."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()
