"""Safetensors files, and folders of them."""

import json

import ml_dtypes
import numpy as np
import pytest

from jaxformer.errors import CheckpointError
from jaxformer.interop.safetensors import (
    open_tensors,
    read_tensors,
    write_tensor_file,
    write_tensors,
)
from tests.interop.crafted import ARRAYS, lazy, valid

INDEX = "model.safetensors.index.json"
SECOND = "model-00002-of-00002.safetensors"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(valid())
    return path


@pytest.fixture
def sharded(tmp_path):
    """A folder with tensors a and b in the first shard, and c in the second."""
    arrays = {name: np.arange(3, dtype=np.float32) for name in "abc"}
    write_tensors(tmp_path, lazy(arrays), max_shard_bytes=24)
    return tmp_path


def require_equal(tensors, arrays):
    assert set(tensors) == set(arrays)
    for name, array in arrays.items():
        assert (tensors[name].shape, tensors[name].dtype) == (array.shape, array.dtype)
        again = tensors[name].read()
        assert type(again) is np.ndarray and again.tobytes() == array.tobytes()


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_tensors_read_are_the_tensors_written(tmp_path):
    write_tensors(tmp_path, lazy(ARRAYS))
    assert names_in(tmp_path) == ["model.safetensors"]
    assert (tmp_path / "model.safetensors").read_bytes() == valid(metadata={"format": "pt"})
    require_equal(open_tensors(tmp_path), ARRAYS)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(15, dtype=np.float32).reshape(3, 5).T,
        np.arange(30, dtype=np.int16).reshape(3, 10)[::-1, ::3],
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.broadcast_to(np.float32(1.5), (2, 3)),
        np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3).T,
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ],
)  # fmt: skip
def test_layout_and_byte_order_in_memory_do_not_matter(tmp_path, array):
    write_tensor_file(tmp_path / "a.safetensors", {"a": array}, {})
    again = read_tensors(tmp_path / "a.safetensors")["a"].read()
    np.testing.assert_array_equal(again, array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is damaged: .*header too small; download it again"),
        (valid()[:-1], "is damaged: .*; download it again"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\n", "; run git lfs pull"),
    ],
)
def test_damaged_files_are_refused(path, content, message):
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_tensors(path)


def test_dtype_that_numpy_lacks_is_refused(path):
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"12")
    with pytest.raises(CheckpointError, match="dtype of tensor 'a' must be one of .*, got F8_E4M3"):
        read_tensors(path)


def test_single_file_counts_before_an_index_and_other_files_do_not_count(sharded):
    for name in ("consolidated.safetensors", "pytorch_model.bin", "config.json"):
        (sharded / name).write_text("?")
    assert set(open_tensors(sharded)) == {"a", "b", "c"}
    (sharded / "model.safetensors").write_bytes(valid())
    require_equal(open_tensors(sharded), ARRAYS)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            ["pytorch_model.bin", "notes"],
            "got pytorch_model.bin; a pickle can run .*save_pretrained",
        ),
        (["pytorch_model.bin.index.json"], "got pytorch_model.bin.index.json; a pickle can run "),
        (["other.gguf"], "got other.gguf; download the model into it: hf download .*a b'"),
    ],
)
def test_folder_without_weights_says_what_it_has_and_how_to_get_them(tmp_path, files, message):
    (tmp_path / "a b").mkdir()
    for file in files:
        (tmp_path / "a b" / file).write_text("")
    with pytest.raises(CheckpointError, match=message):
        open_tensors(tmp_path / "a b")


@pytest.mark.parametrize("file", ["x.safetensors", "../model.safetensors"])
def test_shard_that_the_folder_lacks_is_named(sharded, file):
    (sharded.parent / "model.safetensors").write_bytes((sharded / SECOND).read_bytes())
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["d"] = file
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=f"all files that .* names, but {file} is missing"):
        open_tensors(sharded)
