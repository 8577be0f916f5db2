"""Files that survive a crash, a full disk and a stranger: written whole, checked when read."""

from jaxformer.storage.files import (
    append,
    make_folder,
    open_regular,
    open_to_append,
    read_regular,
    read_whole,
    remove_drafts,
    storage_error,
    sync_path,
    write_whole,
)
from jaxformer.storage.manifest import Manifest, read_manifest, sha256, write_manifest

__all__ = [
    "Manifest",
    "append",
    "make_folder",
    "open_regular",
    "open_to_append",
    "read_manifest",
    "read_regular",
    "read_whole",
    "remove_drafts",
    "sha256",
    "storage_error",
    "sync_path",
    "write_manifest",
    "write_whole",
]
