"""Filling a folder from a draft, whose files move there at the end."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator

from jaxformer.storage.buckets import upload
from jaxformer.storage.files import make_folder, remove, sync
from jaxformer.storage.paths import in_bucket

DRAFT = ".run.draft"
"""Name of the draft; manifests ignore it, as they ignore all drafts."""


@contextlib.contextmanager
def drafted(folder: pathlib.Path, *, last: str, first: str = "") -> Iterator[pathlib.Path]:
    """Yields a draft folder; at the end its files move into `folder`, `last` after the others."""
    with contextlib.ExitStack() as stack:
        if in_bucket(folder):
            draft = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            draft = folder / DRAFT
            stack.callback(remove, draft)
            remove(draft)  # of a killed process
            make_folder(draft)
        yield draft
        order = {first: 0, last: 2}
        if in_bucket(folder):
            upload(draft, folder, order)
            return
        for path in draft.rglob("*"):
            if path.is_file():
                sync(path)
        for name in sorted(os.listdir(draft), key=lambda name: order.get(name, 1)):
            os.replace(draft / name, folder / name)
