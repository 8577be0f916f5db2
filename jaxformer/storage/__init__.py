"""Files on a disk or in a bucket: written whole or not at all, digested, and locked."""

from jaxformer.storage.buckets import on_disk, written_folder
from jaxformer.storage.draft import DRAFT, drafted
from jaxformer.storage.files import (
    append,
    default_cache_dir,
    make_folder,
    open_regular,
    read_regular,
    read_whole,
    remove,
    remove_drafts,
    replacing,
    write_whole,
)
from jaxformer.storage.json_files import (
    damaged_download,
    read_json,
    read_object,
    shown,
    some,
    write_json,
)
from jaxformer.storage.lock import HOLDER, LOCK, lock_holder, run_lock
from jaxformer.storage.manifest import (
    Manifest,
    file_digest,
    files_below,
    read_manifest,
    sha256,
    write_manifest,
)
from jaxformer.storage.paths import as_path, bucket_files, in_bucket, lexists, real_path, stamp

__all__ = [
    "DRAFT", "HOLDER", "LOCK", "Manifest", "append", "as_path", "bucket_files", "damaged_download",
    "default_cache_dir", "drafted", "file_digest", "files_below", "in_bucket",
    "lexists", "lock_holder", "make_folder", "on_disk", "open_regular",
    "read_json", "read_manifest", "read_object", "read_regular", "read_whole", "real_path",
    "remove", "remove_drafts", "replacing", "run_lock", "sha256", "shown", "some", "stamp",
    "write_json", "write_manifest", "write_whole", "written_folder",
]  # fmt: skip
