"""Manifests: SHA-256 of all files of a folder, to detect damage before files are read."""

import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from jaxformer.storage.files import is_draft, open_regular, write_whole
from jaxformer.storage.json_files import read_json
from jaxformer.storage.paths import bucket_system, in_bucket

_THREADS = 4  # hashlib releases the GIL


@dataclasses.dataclass(frozen=True)
class Manifest:
    """SHA-256 of all files of a folder, by path with slashes, and JSON values on the folder."""

    about: Mapping[str, Any]
    files: Mapping[str, tuple[str, ...]]  # several digests while a file is being replaced

    @classmethod
    def of(
        cls, folder: pathlib.Path, about: Mapping[str, Any], *, ignore: Collection[str] = ()
    ) -> "Manifest":
        """Makes the manifest of a folder."""
        digests = _digests(folder, files_below(folder, ignore))
        return cls(about, {path: (digest,) for path, digest in digests.items()})

    def damage(
        self, folder: pathlib.Path, *, ignore: Collection[str] = (), may_have_more: bool = False
    ) -> str | None:
        """First damage of a folder, for a message; None if there is none."""
        paths = files_below(folder, ignore)
        if missing := sorted(self.files.keys() - set(paths)):
            return f"{missing[0]} is missing"
        if not may_have_more and (surplus := sorted(set(paths) - self.files.keys())):
            return f"{surplus[0]} does not belong to it"
        try:
            digests = _digests(folder, sorted(self.files))
        except OSError as error:
            return f"{error.filename} cannot be read: {error.strerror}"
        for path, digest in digests.items():
            if digest not in self.files[path]:
                return f"{path} is not the file that was written: its SHA-256 differs"
        return None


def files_below(folder: pathlib.Path, ignore: Collection[str] = ()) -> list[str]:
    """Paths of all files below a folder, sorted, without drafts and those of names to `ignore`."""
    if in_bucket(folder):
        system, key = bucket_system(folder)
        paths = [path.removeprefix(f"{key}/") for path in system.find(key)]
    else:
        paths = [
            pathlib.Path(parent, name).relative_to(folder).as_posix()
            for parent, _, names in os.walk(folder)
            for name in names
        ]
    return sorted(
        path
        for path in paths
        if path.partition("/")[0] not in ignore and not any(map(is_draft, path.split("/")))
    )


def file_digest(path: pathlib.Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digests(folder: pathlib.Path, paths: Collection[str]) -> dict[str, str]:
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as threads:
        digests = threads.map(lambda path: file_digest(folder / path), paths)
        return dict(zip(paths, digests, strict=True))


def write_manifest(path: pathlib.Path, manifest: Manifest) -> None:
    """Writes a manifest as JSON, with its own SHA-256."""
    values = {"about": dict(manifest.about), "files": {k: [*v] for k, v in manifest.files.items()}}
    text = json.dumps({**values, "sha256": _json_digest(values)}, indent=0)
    write_whole(path, text + "\n")


def read_manifest(path: pathlib.Path) -> Manifest:
    """Reads a manifest; CheckpointError if it is missing or damaged."""

    def parse(values: Any) -> Manifest:
        digest = values.pop("sha256")
        if digest != _json_digest(values):
            raise ValueError("its SHA-256 differs")
        files = {str(name): tuple(map(str, digests)) for name, digests in values["files"].items()}
        return Manifest(dict(values["about"]), files)

    return read_json(path, parse)


def _json_digest(values: Any) -> str:
    """SHA-256 of JSON values, independent of spaces and the order of keys."""
    return sha256(json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True))


def sha256(content: str | bytes) -> str:
    """SHA-256 of text (as UTF-8) or bytes, in hexadecimal."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()
