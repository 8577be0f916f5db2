"""The door for paths: of this machine, or in a bucket, which is an `etils.epath.Path`."""

import hashlib
import importlib.util
import logging
import os
import pathlib
import re
from typing import Any, cast

from jaxformer.errors import ConfigError

_PACKAGES = {"gs": "gcsfs", "s3": "s3fs", "az": "adlfs", "hf": "huggingface_hub"}  # by scheme
_LIKE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+]+://")
# pathlib joins the slashes: str(pathlib.Path("gs://a/b")) is "gs:/a/b".
_URL = re.compile(rf"(?P<scheme>{'|'.join(_PACKAGES)}):/{{1,2}}(?P<key>[^/].*)", re.DOTALL)
# Keys under which file systems state the version of a file.
_VERSIONS = ("generation", "etag", "ETag", "mtime", "LastModified", "blob_id")


def as_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """A path of this machine, or of a URL such as gs://bucket/folder; or ConfigError."""
    text = str(path)
    url = _URL.fullmatch(text)
    if url is None and _LIKE_URL.match(text):
        raise ConfigError(
            "a path in a bucket must be like gs://bucket/folder, or with s3://, az:// or hf://, "
            f"got {text!r}; correct it"
        )
    if url is None:
        return pathlib.Path(path)
    if importlib.util.find_spec(package := _PACKAGES[url["scheme"]]) is None:
        install = '"jaxformer[gcs]"' if package == "gcsfs" else package
        raise ConfigError(f"{text} needs {package}, which is missing; pip install {install}")
    # gcsfs then does not load the client of a second service, for a rare kind of bucket.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    import fsspec.config
    from etils import epath

    for scheme in _PACKAGES:  # listings are not kept: others write to a bucket, too
        fsspec.config.conf.setdefault(scheme, {})["use_listings_cache"] = False
    for name in ("fsspec", "gcsfs"):  # which log tracebacks of what they raise
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # It has the methods of pathlib.Path that this package calls, but is no pathlib.Path.
    return cast(pathlib.Path, epath.Path(f"{url['scheme']}://{url['key']}"))


def in_bucket(path: str | os.PathLike[str]) -> bool:
    """Whether text is a URL, or a path from `as_path` is in a bucket."""
    return not isinstance(path, pathlib.Path) and _URL.fullmatch(str(path)) is not None


def bucket_system(path: str | os.PathLike[str]) -> tuple[Any, str]:
    """The fsspec file system of a path in a bucket, and the path there."""
    import fsspec

    return cast(tuple[Any, str], fsspec.core.url_to_fs(str(as_path(path))))


def real_path(path: str | os.PathLike[str]) -> str:
    """The absolute path without links, or the URL."""
    return str(path) if in_bucket(path := as_path(path)) else os.path.realpath(path)


def lexists(path: pathlib.Path) -> bool:
    """Whether there is a file, a folder, or a link that may lead nowhere."""
    return path.exists() if in_bucket(path) else os.path.lexists(path)


def stamp(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Size of a file in bytes, and a number that changes when it is written; or OSError."""
    if in_bucket(path := as_path(path)):
        system, key = bucket_system(path)
        return stamp_of(system.info(key))
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def stamp_of(info: dict[str, Any]) -> tuple[int, int]:
    """The `stamp` of an object in a bucket, from what its file system lists."""
    version = next(str(info[name]) for name in _VERSIONS if info.get(name))
    digest = hashlib.sha256(version.encode()).digest()
    return int(info["size"]), int.from_bytes(digest[:7])


def bucket_files(pattern: str | os.PathLike[str]) -> list[pathlib.Path]:
    """The files in a bucket that match a pattern of fsspec, sorted."""
    system, key = bucket_system(pattern)
    listing = system.glob(key, detail=True)
    names = [name for name in sorted(listing) if listing[name]["type"] == "file"]
    if "/." not in key:  # as a shell does, and fsspec does not
        names = [name for name in names if "/." not in name]
    return [as_path(f"{str(pattern).partition('://')[0]}://{name}") for name in names]
