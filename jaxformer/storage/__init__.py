"""Atomic writes and checked reads: files that survive crashes, full disks and tampering."""

from jaxformer.errors import first_line, storage_error
from jaxformer.storage.buckets import BucketPath
from jaxformer.storage.digests import file_sizes
from jaxformer.storage.downloads import on_disk
from jaxformer.storage.draft import DRAFT, discard_draft, drafted, moved_names, written_folder
from jaxformer.storage.file_systems import patience
from jaxformer.storage.files import (
    append,
    default_cache_dir,
    lexists,
    make_folder,
    open_regular,
    open_to_append,
    read_regular,
    read_whole,
    remove,
    remove_drafts,
    remove_tree,
    replacing,
    write_whole,
)
from jaxformer.storage.json_files import (
    MAX_FILE,
    damaged_download,
    parse_object,
    read_download,
    read_json,
    read_object,
    shown,
    some,
    write_json,
)
from jaxformer.storage.lock import LOCK, lock_holder, run_lock
from jaxformer.storage.manifest import Manifest, read_manifest, sha256, write_manifest
from jaxformer.storage.paths import PLAIN, as_path, in_bucket, real_path, require_plain, stamp

__all__ = [
    "DRAFT", "LOCK", "MAX_FILE", "PLAIN", "BucketPath", "Manifest", "append", "as_path",
    "damaged_download", "default_cache_dir", "discard_draft", "drafted", "file_sizes", "first_line",
    "in_bucket", "lexists", "lock_holder", "make_folder", "moved_names", "on_disk", "open_regular",
    "open_to_append", "parse_object", "patience", "read_download", "read_json", "read_manifest",
    "read_object", "read_regular", "read_whole", "real_path", "remove", "remove_drafts",
    "remove_tree", "replacing", "require_plain", "run_lock", "sha256", "shown", "some", "stamp",
    "storage_error", "write_json", "write_manifest", "write_whole", "written_folder",
]  # fmt: skip
