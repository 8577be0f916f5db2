"""Files in buckets for programs that know only disks: uploads, and copies on this machine."""

import contextlib
import fnmatch
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from jaxformer.storage.files import default_cache_dir, make_folder
from jaxformer.storage.manifest import sha256
from jaxformer.storage.paths import as_path, bucket_system, in_bucket, stamp_of


@contextlib.contextmanager
def written_folder(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder on a disk to write into; for one in a bucket, it is uploaded at the end."""
    if not in_bucket(folder):
        make_folder(folder)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="jaxformer-") as temporary:
        yield (written := pathlib.Path(temporary))
        upload(written, folder)


def upload(
    written: pathlib.Path, folder: pathlib.Path, order: Mapping[str, int] | None = None
) -> None:
    """Uploads all files below a folder; `order` has the places of some, which is 1 otherwise."""
    system, key = bucket_system(folder)
    names = [path.relative_to(written).as_posix() for path in written.rglob("*") if path.is_file()]
    for name in sorted(names, key=lambda name: (order or {}).get(name, 1)):
        system.put_file(str(written / name), f"{key}/{name}")


def on_disk(path: str | os.PathLike[str], patterns: Sequence[str] = ("*",)) -> pathlib.Path:
    """The path itself, or the copy of a file or folder in a bucket, in the user's cache."""
    source = as_path(path)
    if not in_bucket(source):
        return source
    system, key = bucket_system(source)
    is_file = system.info(key)["type"] == "file"
    folder, names = (source.parent, [source.name]) if is_file else (source, patterns)
    stamps = {
        info["name"]: stamp_of(info)
        for info in system.ls(key, detail=True)
        if info["type"] == "file"
        and any(fnmatch.fnmatch(info["name"].rpartition("/")[2], pattern) for pattern in names)
    }
    cache = default_cache_dir() or pathlib.Path(tempfile.gettempdir(), "jaxformer")
    # Each version of the files is copied once; nothing removes older copies.
    copy = cache / "buckets" / sha256(json.dumps([str(folder), stamps]))[:16] / folder.name
    if not copy.exists():
        size = sum(size for size, _ in stamps.values())
        print(f"downloading {size:,} bytes from {source} to {copy}", file=sys.stderr, flush=True)
        make_folder(copy.parent)
        with tempfile.TemporaryDirectory(dir=copy.parent) as temporary:
            for name in stamps:
                system.get_file(name, f"{temporary}/{folder.name}/{name.rpartition('/')[2]}")
            if not copy.exists():  # made by another process meanwhile
                os.rename(f"{temporary}/{folder.name}", copy)
    return copy / source.name if is_file else copy
