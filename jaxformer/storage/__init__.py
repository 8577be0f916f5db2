"""Atomic writes and checked reads: files that survive crashes, full disks and tampering."""

from jaxformer.storage.buckets import BucketPath, as_path
from jaxformer.storage.draft import DRAFT, discard_draft, drafted, moved_names
from jaxformer.storage.files import (
    append,
    default_cache_dir,
    make_folder,
    open_regular,
    open_to_append,
    read_regular,
    read_whole,
    remove_drafts,
    storage_error,
    write_whole,
)
from jaxformer.storage.json_files import (
    MAX_FILE,
    damaged_download,
    first_line,
    parse_object,
    read_download,
    read_json,
    read_object,
    shown,
    some,
    write_json,
)
from jaxformer.storage.lock import LOCK, run_lock
from jaxformer.storage.manifest import Manifest, read_manifest, sha256, write_manifest

__all__ = [
    "DRAFT", "LOCK", "MAX_FILE", "BucketPath", "Manifest", "append", "as_path", "damaged_download",
    "default_cache_dir", "discard_draft", "drafted", "first_line", "make_folder", "moved_names",
    "open_regular", "open_to_append", "parse_object", "read_download", "read_json", "read_manifest",
    "read_object", "read_regular", "read_whole", "remove_drafts", "run_lock", "sha256", "shown",
    "some", "storage_error", "write_json", "write_manifest", "write_whole",
]  # fmt: skip
