"""Safetensors files and folders of them: tensors are read when they are needed."""

import functools
import json
import math
import os
import pathlib
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import huggingface_hub
import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.storage import (
    damaged_download,
    on_disk,
    read_object,
    replacing,
    shown,
    some,
    write_whole,
)

_LFS_POINTER = b"version https://git-lfs"
# Those that the package reads as arrays of NumPy.
_DTYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "U16": np.uint16,
    "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I32": np.int32, "U32": np.uint32,
    "F32": np.float32, "C64": np.complex64, "F64": np.float64, "I64": np.int64, "U64": np.uint64,
}  # fmt: skip
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = {"pytorch_model.bin", "pytorch_model.bin.index.json"}


class Tensor(NamedTuple):
    """A tensor that is read or computed when it is needed."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], np.ndarray]  # a copy of its data
    path: pathlib.Path | None = None  # of the file that has it

    @property
    def nbytes(self) -> int:
        """Size of the tensor in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_tensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Tensors of a file by name, none of them read; CheckpointError if it is damaged."""
    path = on_disk(path)
    try:
        file = safe_open(path, "numpy")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}; pass a safetensors file") from error
    except SafetensorError as error:
        with open(path, "rb") as start:
            is_pointer = start.read(len(_LFS_POINTER)) == _LFS_POINTER
        reason = "it is a Git LFS pointer; run git lfs pull" if is_pointer else error
        raise damaged_download(path, reason) from error
    tensors = {}
    for name in file.keys():
        entry = file.get_slice(name)
        code, shape = entry.get_dtype(), tuple(entry.get_shape())
        if code not in _DTYPES:
            raise CheckpointError(
                f"{path}: the dtype of tensor {shown(name)} must be one of {', '.join(_DTYPES)}, "
                f"got {code}; convert the tensor, or use another version of the model"
            )
        read = functools.partial(file.get_tensor, name)
        tensors[name] = Tensor(shape, np.dtype(_DTYPES[code]), read, path)
    return tensors


def write_tensor_file(
    path: pathlib.Path, tensors: Mapping[str, npt.ArrayLike], metadata: Mapping[str, str]
) -> None:
    """Writes a file whole or not at all."""
    # The package writes the memory of an array as it lies, in whatever order.
    arrays = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    with replacing(path) as draft:
        save_file(arrays, draft, dict(metadata))


def open_tensors(folder: pathlib.Path) -> dict[str, Tensor]:
    """Opens the weights of a Hugging Face model folder, without reading any data."""
    entries = {path.name for path in folder.iterdir()}
    if _SINGLE in entries:  # counts before an index, as in transformers
        return read_tensors(folder / _SINGLE)
    if _INDEX not in entries:
        pickles = sorted(entries & _PICKLES)
        remedy = (
            "a pickle can run arbitrary code, so it is not loaded; if you trust it, load it with "
            "transformers, and save it with save_pretrained"
            if pickles
            else "download the model into it: hf download OWNER/MODEL --local-dir "
            + shlex.quote(str(folder))
        )
        raise CheckpointError(
            f"{folder} must have {_SINGLE} or {_INDEX}, got "
            f"{some(pickles or sorted(entries)) or 'no files'}; {remedy}"
        )
    weight_map: dict[str, str] = read_object(folder / _INDEX).get("weight_map", {})
    files = sorted(set(weight_map.values()))
    if missing := [file for file in files if file not in entries]:
        raise CheckpointError(
            f"{folder} must have all files that {_INDEX} names, but {some(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing; download them, too"
        )
    shards = {file: read_tensors(folder / file) for file in files}
    return {name: shards[file][name] for name, file in weight_map.items() if name in shards[file]}


def write_tensors(
    folder: pathlib.Path, tensors: Mapping[str, Tensor], *, max_shard_bytes: int = 5_000_000_000
) -> None:
    """Writes `model.safetensors`, or shards in the order of the tensors and then their index."""
    split = huggingface_hub.split_state_dict_into_shards_factory(
        dict(tensors),
        get_storage_size=lambda tensor: tensor.nbytes,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=max_shard_bytes,
    )
    for file, names in split.filename_to_tensors.items():
        shard = {name: tensors[name].read() for name in names}
        write_tensor_file(folder / file, shard, {"format": "pt"})  # as transformers requires
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        write_whole(folder / _INDEX, json.dumps(index, indent=2, sort_keys=True) + "\n")


def require_no_weights(folder: pathlib.Path) -> None:
    """Raises ConfigError if a folder already has weights."""
    if weights := sorted(path.name for path in folder.glob("model*.safetensors*")):
        raise ConfigError(
            f"{folder} must not contain weights, got {weights[0]}; remove them, or write to "
            "another folder"
        )
