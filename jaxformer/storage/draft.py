"""A folder that is filled in one step: from a draft in it, whose files move out at the end."""

import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator

from jaxformer.errors import CheckpointError
from jaxformer.storage.files import read_whole, storage_error, sync_path, write_whole

__all__ = ["DRAFT", "discard_draft", "drafted", "moved_names"]

DRAFT = f".{'d' * 16}.tmp"
"""Name of the draft, which is one of those that manifests leave out."""

_MOVES = "moves.json"


@contextlib.contextmanager
def drafted(folder: pathlib.Path, *, last: str) -> Iterator[pathlib.Path]:
    """Folder to write into, what is in which moves into `folder` at the end.

    The draft lies in the folder itself, not beside it: so the folder may be a mount point, and
    the one above it need not be writable. It is there, with the names of what moves, as long as
    something has moved and the last file has not; so that after a crash `discard_draft` knows
    what to take back.

    Args:
        folder: the folder, locked, with nothing of these names; made where it is missing.
        last: file that moves last: with it, the folder is whole.

    Raises:
        StorageError: something cannot be written.
    """
    discard_draft(folder, last=last)
    draft = folder / DRAFT
    try:
        draft.mkdir(parents=True)
        yield draft
        names = sorted(path.name for path in draft.iterdir())
        write_whole(draft / _MOVES, json.dumps(names))
        # Every file, and every name, is on disk before the first one moves, and every move before
        # the last one: so after a power cut, too, all is there, and whole, if the last file is.
        # Nothing that fills the draft needs to put it on disk itself.
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


def discard_draft(folder: pathlib.Path, *, last: str) -> None:
    """Removes from a folder what is left of a draft, and what has moved out of one that failed.

    Args:
        folder: the folder, locked.
        last: as in `drafted`.
    """
    draft = folder / DRAFT
    if not (folder / last).exists():
        for name in moved_names(folder):
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    shutil.rmtree(draft, ignore_errors=True)


def moved_names(folder: pathlib.Path) -> list[str]:
    """Names of what moves, or has moved, out of the draft in a folder."""
    try:
        names = json.loads(read_whole(folder / DRAFT / _MOVES, limit=2**20))
    except (CheckpointError, ValueError, RecursionError):
        return []  # not written yet, so that nothing has moved
    is_plain = isinstance(names, list) and all(
        isinstance(name, str) and os.path.basename(name) == name not in ("", ".", "..")
        for name in names
    )
    return names if is_plain else []
