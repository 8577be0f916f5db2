"""Records of what was found in files, so that they need not be looked through again."""

import contextlib
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jaxformer.storage import make_folder, write_whole
from jaxformer.text.file_states import file_stamp

__all__ = ["recorded_scan"]

_LAYOUT = 3  # of a record; part of its name
_T = TypeVar("_T")


def recorded_scan(
    files: Sequence[pathlib.Path],
    options: Sequence[Any],
    cache_dir: pathlib.Path | None,
    *,
    scan: Callable[[], _T],
    pack: Callable[[_T], dict[str, Any] | None],
    unpack: Callable[[dict[str, Any]], _T],
) -> _T:
    """Looks through files, or finds what was found in them before.

    They count as the same files where their paths, sizes and times of change are the same.

    Args:
        files: the files.
        options: what else decides what is found; each with a `repr` of its own.
        cache_dir: folder of the records; None where there is none.
        scan: looks through the files.
        pack: makes JSON of what was found; None where it is not worth a record.
        unpack: the inverse; may raise anything for what is damaged.

    Returns:
        What was found.

    Raises:
        StorageError: the record cannot be written.
    """
    if cache_dir is None:
        return scan()
    path = cache_dir / "corpora" / f"{_key(files, options)}.json"
    with contextlib.suppress(Exception):  # whatever is wrong with a record, it is made again
        return unpack(json.loads(path.read_bytes()))
    found = scan()
    if (values := pack(found)) is not None:
        make_folder(path.parent)
        write_whole(path, json.dumps(values))
    return found


def _key(files: Sequence[pathlib.Path], options: Sequence[Any]) -> str:
    digest = hashlib.sha256(repr((_LAYOUT, *options)).encode(errors="surrogateescape"))
    for file in files:
        stamp = os.path.realpath(file), file_stamp(file)
        digest.update(repr(stamp).encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]
