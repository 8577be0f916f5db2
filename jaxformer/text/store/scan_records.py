"""Records of file scans, so that unchanged files are not scanned again."""

import contextlib
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jaxformer.storage import make_folder, write_whole
from jaxformer.text.sources.file_states import file_stamp

__all__ = ["recorded_scan"]

_LAYOUT = 3  # version of a record's layout; part of its name
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
    """Scans files, or loads the record of an earlier scan.

    A record is used if paths, sizes and modification times of the files are the same.

    Args:
        files: the files.
        options: other inputs of the scan; their `repr`s must tell them apart.
        cache_dir: folder for the records; None for no records.
        scan: scans the files.
        pack: converts the result to JSON values; None if it is not worth a record.
        unpack: the inverse; may raise anything for a damaged record.

    Returns:
        The result of the scan.

    Raises:
        StorageError: the record cannot be written.
    """
    if cache_dir is None:
        return scan()
    path = cache_dir / "corpora" / f"{_key(files, options)}.json"
    with contextlib.suppress(Exception):  # a record with any fault is made again
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
