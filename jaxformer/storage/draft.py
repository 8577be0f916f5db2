"""Filling a folder atomically: from a draft inside it, whose files move out at the end."""

import contextlib
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator

from jaxformer.errors import CheckpointError
from jaxformer.storage.buckets import BucketPath
from jaxformer.storage.files import (
    lexists,
    make_folder,
    read_whole,
    remove_tree,
    storage_error,
    sync_path,
    write_whole,
)
from jaxformer.storage.paths import in_bucket

DRAFT = f".{'d' * 16}.tmp"
"""Name of the draft; manifests ignore it, as they ignore all drafts."""

_MOVES = "moves.json"


@contextlib.contextmanager
def drafted(folder: pathlib.Path, *, last: str) -> Iterator[pathlib.Path]:
    """Yields a draft folder to write into; at the end, its content moves into `folder`.

    The draft is inside the folder, not next to it. So the folder may be a mount point, and its
    parent need not be writable. While files move, the draft holds the list of their names. If the
    process crashes before the last file has moved, `discard_draft` reads the list and undoes the
    moves. For a folder in a bucket, the draft is on this machine, and its files are uploaded.
    """
    if isinstance(folder, BucketPath):
        with _uploaded(folder, last) as draft:
            yield draft
        return
    discard_draft(folder, last=last)
    draft = folder / DRAFT
    try:
        draft.mkdir(parents=True)
        yield draft
        names = sorted(path.name for path in draft.iterdir())
        write_whole(draft / _MOVES, json.dumps(names))
        # Sync all files and names before the first move, and all moves before the last. So even
        # after a power cut, the folder is complete if the last file exists. Code that fills the
        # draft need not sync anything.
        for path in (*draft.rglob("*"), draft):
            sync_path(path)
        for name in sorted(names, key=lambda name: name == last):
            if name == last:
                sync_path(folder)
            os.rename(draft / name, folder / name)
        sync_path(folder)
    except OSError as error:
        raise storage_error(folder, error) from None
    finally:
        discard_draft(folder, last=last)


@contextlib.contextmanager
def _uploaded(folder: BucketPath, last: str) -> Iterator[pathlib.Path]:
    """`drafted` for a folder in a bucket."""
    discard_draft(folder, last=last)
    with tempfile.TemporaryDirectory(prefix="jaxformer-") as temporary:
        draft = pathlib.Path(temporary)
        yield draft
        names = sorted(path.name for path in draft.iterdir())
        try:
            write_whole(folder / DRAFT / _MOVES, json.dumps(names))
            _upload(draft, folder, last)
        finally:
            with contextlib.suppress(OSError):  # then the next attempt does it
                discard_draft(folder, last=last)


@contextlib.contextmanager
def written_folder(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder for programs that write to disks only: it, made if it is missing.

    For a folder in a bucket, it is a temporary one, whose files are uploaded at the end.

    Raises:
        StorageError: the folder cannot be made, or a file not be uploaded.
    """
    if not isinstance(folder, BucketPath):
        make_folder(folder)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="jaxformer-") as temporary:
        yield (written := pathlib.Path(temporary))
        _upload(written, folder)


def _upload(written: pathlib.Path, folder: BucketPath, last: str = "") -> None:
    """Uploads all files below a folder; `last` is the name of the last one."""
    files = [path for path in sorted(written.rglob("*")) if path.is_file()]
    try:
        for path in sorted(files, key=lambda path: path == written / last):
            (folder / path.relative_to(written).as_posix()).upload(path)
    except OSError as error:
        raise storage_error(folder, error) from None


def discard_draft(folder: pathlib.Path, *, last: str) -> None:
    """Removes a draft from a locked folder, and undoes the moves of an incomplete one."""
    draft = folder / DRAFT
    if not (folder / last).exists():
        for name in moved_names(folder):
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                remove_tree(path, ignore_errors=False)
            else:
                path.unlink(missing_ok=True)
    remove_tree(draft)


def moved_names(folder: pathlib.Path) -> list[str]:
    """Names of the files that move, or have moved, out of the draft in a folder."""
    try:
        names = json.loads(read_whole(folder / DRAFT / _MOVES, limit=2**20))
    except CheckpointError:
        if in_bucket(folder) and lexists(folder / DRAFT / _MOVES):
            raise  # it is there, and cannot be read now
        return []  # not written yet, so nothing has moved
    except (ValueError, RecursionError):
        return []
    is_plain = isinstance(names, list) and all(
        isinstance(name, str) and os.path.basename(name) == name not in ("", ".", "..")
        for name in names
    )
    return names if is_plain else []
