"""Filling a folder atomically: from a draft inside it, whose files move out at the end."""

import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator

from jaxformer.errors import CheckpointError
from jaxformer.storage.files import read_whole, storage_error, sync_path, write_whole

DRAFT = f".{'d' * 16}.tmp"
"""Name of the draft; manifests ignore it, as they ignore all drafts."""

_MOVES = "moves.json"


@contextlib.contextmanager
def drafted(folder: pathlib.Path, *, last: str) -> Iterator[pathlib.Path]:
    """Yields a draft folder to write into; at the end, its content moves into `folder`.

    The draft is inside the folder, not next to it. So the folder may be a mount point, and its
    parent need not be writable. While files move, the draft holds the list of their names. If the
    process crashes before the last file has moved, `discard_draft` reads the list and undoes the
    moves.
    """
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


def discard_draft(folder: pathlib.Path, *, last: str) -> None:
    """Removes a draft from a locked folder, and undoes the moves of an incomplete one."""
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
    """Names of the files that move, or have moved, out of the draft in a folder."""
    try:
        names = json.loads(read_whole(folder / DRAFT / _MOVES, limit=2**20))
    except (CheckpointError, ValueError, RecursionError):
        return []  # not written yet, so nothing has moved
    is_plain = isinstance(names, list) and all(
        isinstance(name, str) and os.path.basename(name) == name not in ("", ".", "..")
        for name in names
    )
    return names if is_plain else []
