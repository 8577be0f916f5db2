"""Paths that Orbax and TensorStore accept, for folders with any path."""

import contextlib
import os
import pathlib
import re
import tempfile

from jaxformer.errors import StorageError

__all__ = ["PlainPath"]

# Orbax reads brackets as a glob pattern, and TensorStore requires UTF-8.
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")
_LINK = "folder"


class PlainPath:
    """A path of plain characters to a folder: its own, or a link in a temporary folder.

    Args:
        folder: the folder; links in its path are resolved.

    Attributes:
        path: the plain path; valid until `close`.

    Raises:
        StorageError: no temporary folder is writable.

    Example:
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "what [is] this?")
        >>> folder.mkdir()
        >>> plain = PlainPath(folder)
        >>> (plain.path / "a.txt").write_text("here")
        4
        >>> [path.name for path in folder.iterdir()]
        ['a.txt']
        >>> plain.close()
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._temporary: pathlib.Path | None = None
        self.path = pathlib.Path(os.path.realpath(folder))
        if not _PLAIN.fullmatch(str(self.path)):
            self._temporary = _temporary_folder(folder)
            (self._temporary / _LINK).symlink_to(self.path, target_is_directory=True)
            self.path = self._temporary / _LINK

    def close(self) -> None:
        """Removes the link."""
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                (self._temporary / _LINK).unlink()
                self._temporary.rmdir()


def _temporary_folder(folder: pathlib.Path) -> pathlib.Path:
    """Makes a private folder with a plain path, in TMPDIR or a temporary folder of the system."""
    candidates = [os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp", "/dev/shm"]
    plain = [one for one in candidates if os.path.isabs(one) and _PLAIN.fullmatch(one)]
    reason = "TMPDIR has other characters, too"
    for parent in plain:
        try:
            return pathlib.Path(tempfile.mkdtemp(prefix="jaxformer-", dir=parent))
        except OSError as error:
            reason = f"{parent}: {error.strerror}"
    raise StorageError(
        f"{folder} has characters other than A-Z, a-z, 0-9, _ . / and -, so checkpoints need a "
        f"link to it in a temporary folder, which cannot be created ({reason}); set TMPDIR to a "
        "writable folder whose path has only these characters"
    )
