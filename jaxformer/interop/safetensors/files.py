"""One safetensors file, by the package `safetensors`: tensors are read when they are needed."""

import math
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxformer.errors import CheckpointError, StorageError
from jaxformer.storage import damaged_download, on_disk, replacing, shown

_LFS_POINTER = b"version https://git-lfs"
# Those that the package reads as arrays of NumPy.
_DTYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "U16": np.uint16,
    "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I32": np.int32, "U32": np.uint32,
    "F32": np.float32, "C64": np.complex64, "F64": np.float64, "I64": np.int64, "U64": np.uint64,
}  # fmt: skip


class Tensor(NamedTuple):
    """A tensor of an open file."""

    path: pathlib.Path
    file: Any
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def read(self) -> np.ndarray:
        """A copy of its data."""
        array: np.ndarray = self.file.get_tensor(self.name)
        return array


def read_tensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Tensors of a file by name, none of them read; CheckpointError if it is damaged."""
    path = on_disk(path)
    try:
        with open(path, "rb") as start:
            if start.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise CheckpointError(
                    f"{path} is a Git LFS pointer, not the file itself; run git lfs pull"
                )
        file = safe_open(path, "numpy")
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"{path} cannot be read: {reason}; fix that, and try again") from None
    except SafetensorError as error:
        raise damaged_download(path, error) from error
    tensors = {}
    for name in file.keys():
        entry = file.get_slice(name)
        code, shape = entry.get_dtype(), tuple(entry.get_shape())
        if code not in _DTYPES:
            raise CheckpointError(
                f"{path}: the dtype of tensor {shown(name)} must be one of {', '.join(_DTYPES)}, "
                f"got {code}; convert the tensor, or use another version of the model"
            )
        tensors[name] = Tensor(path, file, name, np.dtype(_DTYPES[code]), shape)
    return tensors


class LazyTensor(NamedTuple):
    """A tensor that is computed when its file is written: `produce` returns it."""

    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    produce: Callable[[], npt.ArrayLike]

    @property
    def nbytes(self) -> int:
        """Size of the tensor in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def write_tensor_file(
    path: pathlib.Path, tensors: Mapping[str, LazyTensor], metadata: Mapping[str, str]
) -> None:
    """Writes a file whole or not at all; its tensors are in memory together."""
    # The package writes the memory of an array as it lies, in whatever order.
    arrays = {name: np.asarray(tensor.produce(), order="C") for name, tensor in tensors.items()}
    with replacing(path) as draft:
        try:
            save_file(arrays, draft, dict(metadata))
        except SafetensorError as error:
            raise StorageError(f"{path} cannot be written: {error}") from error
