"""Manifests: digests of all files of a folder, to detect damage before files are read."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from jaxformer.errors import CheckpointError
from jaxformer.storage.digests import algorithm, files_of
from jaxformer.storage.files import require_answer, write_whole
from jaxformer.storage.json_files import read_json

_MAX_MANIFEST = 64 * 2**20  # bytes: some 500,000 files


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Digests of all files of a folder, by path with slashes, and information on the folder.

    They are SHA-256, but in a bucket MD5, which the bucket itself computes and lists.

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
        files = files_of(folder)
        paths = files.paths(ignore)
        digests = files.digests(dict.fromkeys(paths, files.algorithm))
        if sync:
            files.sync(paths)
        return cls(about, {path: (digest,) for path, digest in digests.items()})

    def damage(
        self, folder: pathlib.Path, *, ignore: Collection[str] = (), others: bool = False
    ) -> str | None:
        """Compares a folder with the manifest: the first damage, for a message, or None.

        `ignore` are paths that it does not cover. With `others`, the folder may have other files
        and links, which are not read.

        Raises:
            StorageError: the folder is in a bucket that does not answer.
        """
        try:
            files = files_of(folder)
            if others:
                paths = [path for path in sorted(self.files) if files.has(path)]
            else:
                paths = files.paths(ignore)
            known = {path: algorithm(*self.files[path][:1]) for path in paths if path in self.files}
            digests, found = files.digests(known), set(paths)
        except CheckpointError as error:
            return str(error)
        except OSError as error:
            require_answer(folder, error)
            return f"{error.filename} cannot be read: {error.strerror}"
        for path in sorted(self.files.keys() | found):
            if path not in found:
                return f"{path} is missing"
            if path not in self.files:
                return f"{path} does not belong to it"
            if digests[path] not in self.files[path]:
                name = {"md5": "MD5", "sha256": "SHA-256"}[known[path]]
                return f"{path} is not the file that was written: its {name} differs"
        return None


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
