"""Tensors of safetensors files, memory-mapped."""

import mmap
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxformer.config.checks import suggestion
from jaxformer.errors import CheckpointError
from jaxformer.interop.safetensors.header import Header, TensorEntry, read_header
from jaxformer.storage import open_regular, shown, some

__all__ = ["TensorFiles"]


class TensorFiles:
    """Tensors of safetensors files; headers are checked on opening, data is read on request.

    Open files may be replaced, but not truncated or overwritten: reading past the end of a mapped
    file kills the process. On a CPU, JAX uses the mapped bytes without a copy if it can.

    Args:
        paths: paths of the files; links are followed.

    Raises:
        CheckpointError: a file cannot be read or is damaged, or two files have the same tensor.

    Example:
        >>> import tempfile
        >>> from jaxformer.interop.safetensors.safetensors_files import LazyTensor, write_tensors
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> paths = write_tensors(folder, {"scale": LazyTensor.of(np.float32([1, 2]))})
        >>> tensors = TensorFiles(paths)
        >>> tensors.names, tensors.shape("scale"), tensors.dtype("scale")
        (('scale',), (2,), dtype('float32'))
        >>> tensors.read("scale")
        array([1., 2.], dtype=float32)
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self._places: dict[str, tuple[pathlib.Path, TensorEntry, mmap.mmap]] = {}
        metadata: list[dict[str, str]] = []
        for path in map(pathlib.Path, paths):
            header, data = _map(path)
            for name, entry in header.entries.items():
                if name in self._places:
                    raise CheckpointError(
                        f"a tensor must be in one file, got {shown(name)} in {path} and in "
                        f"{self._places[name][0]}; download the files again"
                    )
                self._places[name] = path, entry, data
            metadata.append(header.metadata)
        self._metadata = {
            key: text
            for key, text in (metadata[0] if metadata else {}).items()
            if all(other.get(key) == text for other in metadata)
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tensors, file by file, in the order of their data."""
        return tuple(self._places)

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata that all files share, such as {"format": "pt"}."""
        return dict(self._metadata)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def path(self, name: str) -> pathlib.Path:
        """Path of a tensor's file; CheckpointError if there is no such tensor."""
        return self._place(name)[0]

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor; CheckpointError if there is no such tensor."""
        return self._place(name)[1].shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """Dtype of a tensor; CheckpointError if there is no such tensor."""
        return self._place(name)[1].dtype

    def read(self, name: str) -> np.ndarray:
        """A tensor as a read-only view of its file, which loads only the pages that are used.

        The file stays mapped as long as the array exists. If its header was not padded, the view
        is not aligned; NumPy and JAX support that.

        Raises:
            CheckpointError: there is no such tensor, or a boolean is neither 0 nor 1.
        """
        path, entry, data = self._place(name)
        array: np.ndarray = np.ndarray(entry.shape, entry.dtype, data, entry.begin)
        # Operations disagree on whether other bytes are true.
        if entry.dtype == np.bool_ and (array.view(np.uint8) > 1).any():
            raise CheckpointError(
                f"{path} is damaged: tensor {shown(name)} of BOOL must have bytes 0 and 1 only; "
                "download the file again"
            )
        return array

    def release(self, name: str) -> None:
        """Frees the mapped pages of a tensor, which count as process memory; they can be reread."""
        _, entry, data = self._place(name)
        page = mmap.PAGESIZE
        start, stop = -(-entry.begin // page) * page, entry.end // page * page
        if start < stop and hasattr(mmap, "MADV_DONTNEED"):
            data.madvise(mmap.MADV_DONTNEED, start, stop - start)

    def _place(self, name: str) -> tuple[pathlib.Path, TensorEntry, mmap.mmap]:
        if name not in self._places:
            files = {str(path) for path, _, _ in self._places.values()}
            raise CheckpointError(
                f"{some(sorted(files))} must have tensor {shown(name)}, but does not"
                f"{suggestion(name, self._places)}"
            )
        return self._places[name]


def _map(path: pathlib.Path) -> tuple[Header, mmap.mmap]:
    """Header and bytes of a file, from one open file: the path may change meanwhile."""
    try:
        with open_regular(path) as file:
            header = read_header(path, file)
            return header, mmap.mmap(file.fileno(), header.size, access=mmap.ACCESS_READ)
    except CheckpointError:
        raise
    except (OSError, ValueError) as error:  # ValueError: it became shorter
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{path} cannot be read: {reason}; fix that, and try again") from None
