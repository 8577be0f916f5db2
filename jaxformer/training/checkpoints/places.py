"""Where checkpoints are saved: how incomplete ones are told apart, and removed."""

import contextlib
import os
import pathlib
import re
import shutil
from typing import Any

from jaxformer.storage import BucketPath, make_folder, remove_tree, require_plain
from jaxformer.training.checkpoints.orbax import PlainPath

MANIFEST = "manifest.json"
"""Name of the manifest in the folder of a checkpoint."""

_DRAFT = ".orbax-checkpoint-tmp"  # Orbax's suffix of an incomplete checkpoint
_COMMITTED = "commit_success.txt"  # Orbax's mark of a complete checkpoint in a bucket
_STEP = re.compile(r"0|[1-9][0-9]*")


def place_of(folder: pathlib.Path) -> "Place":
    """The place of a folder of checkpoints."""
    return BucketPlace(folder) if isinstance(folder, BucketPath) else Place(folder)


class Place:
    """A folder of checkpoints on a disk: a checkpoint gets its name when it is complete.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def make(self) -> None:
        """Makes the folder if it is missing; StorageError if that fails."""
        make_folder(self.folder)

    def open(self) -> Any:
        """Returns an object whose `path` Orbax can take until its `close` is called."""
        return PlainPath(self.folder)

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints in order, including damaged ones."""
        return sorted(int(name) for name in os.listdir(self.folder) if _STEP.fullmatch(name))

    def draft(self, step: int) -> pathlib.Path:
        """Folder of a checkpoint while it is being saved."""
        return self.folder / f"{step}{_DRAFT}"

    def remove_drafts(self) -> None:
        """Removes what killed processes have left."""
        for draft in self.folder.glob(f"*{_DRAFT}"):
            remove_tree(draft)

    def remove(self, step: int) -> None:
        """Removes a checkpoint; after a crash, the rest of it is a draft."""
        old = self.folder / f"{step}.old{_DRAFT}"
        try:
            os.rename(self.folder / str(step), old)
        except OSError:
            return  # one checkpoint more stays
        remove_tree(old)

    def require_lock(self) -> None:
        """Raises StorageError if the lock of the run is lost, as it can be in a bucket."""

    def free(self) -> int | None:
        """Free bytes; None for no limit. OSError if it is unknown."""
        return shutil.disk_usage(self.folder).free


class BucketPlace(Place):
    """A folder of checkpoints in a bucket, where they have their names from the start.

    One is complete when it has a manifest and the mark that Orbax writes last.
    """

    folder: BucketPath

    def make(self) -> None:
        """Checks that Orbax can take the path."""
        require_plain(self.folder)

    def open(self) -> Any:
        """As described in `Place`."""
        return _Opened(self.folder)

    def steps(self) -> list[int]:
        """As described in `Place`."""
        return [step for step in self._begun() if self._is_complete(step)]

    def draft(self, step: int) -> pathlib.Path:
        """The folder itself."""
        return self.folder / str(step)

    def remove_drafts(self) -> None:
        """As described in `Place`."""
        for step in self._begun():
            if not self._is_complete(step):
                (self.folder / str(step)).remove_tree()

    def remove(self, step: int) -> None:
        """As described in `Place`; StorageError if the lock of the run is lost."""
        with contextlib.suppress(OSError):  # one checkpoint more stays
            (self.folder / str(step) / MANIFEST).unlink(missing_ok=True)
            (self.folder / str(step)).remove_tree()

    def require_lock(self) -> None:
        """As described in `Place`."""
        self.folder.require_lock()

    def _begun(self) -> list[int]:
        """Steps of which there are files, in order."""
        names = (path.name for path in self.folder.iterdir()) if self.folder.is_dir() else ()
        return sorted(int(name) for name in names if _STEP.fullmatch(name))

    def _is_complete(self, step: int) -> bool:
        folder = self.folder / str(step)
        return (folder / MANIFEST).is_file() and (folder / _COMMITTED).is_file()

    def free(self) -> None:
        """None: a bucket has no limit."""


class _Opened:
    """Path of a folder in a bucket for Orbax."""

    def __init__(self, folder: BucketPath) -> None:
        from etils import epath

        self.path = epath.Path(str(folder))

    def close(self) -> None:
        """Does nothing."""
