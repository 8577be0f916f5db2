import json

import ml_dtypes
import numpy as np
import pytest

from jaxformer.errors import CheckpointError, StorageError
from jaxformer.interop.safetensors import LazyTensor, read_tensors, write_tensor_file
from tests.interop.crafted import ARRAYS, lazy, valid


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(valid())
    return path


def test_tensors_read_are_the_tensors_written(tmp_path):
    write_tensor_file(tmp_path / "a.safetensors", lazy(ARRAYS), {"format": "pt"})
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
    assert (tmp_path / "a.safetensors").read_bytes() == valid()
    tensors = read_tensors(tmp_path / "a.safetensors")
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()} == {
        name: (array.dtype, array.shape) for name, array in ARRAYS.items()
    }
    for name, array in ARRAYS.items():
        again = tensors[name].read()
        assert type(again) is np.ndarray and again.dtype == array.dtype
        assert again.tobytes() == array.tobytes()


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
    tensors = {"a": LazyTensor(array.shape, array.dtype, lambda: array)}
    write_tensor_file(tmp_path / "a.safetensors", tensors, {})
    again = read_tensors(tmp_path / "a.safetensors")["a"].read()
    np.testing.assert_array_equal(again, array)


def test_file_that_is_replaced_while_it_is_open_stays_as_it_was(path):
    tensor = read_tensors(path)["float64"]
    write_tensor_file(path, lazy({"float64": np.zeros(3)}), {})
    np.testing.assert_array_equal(tensor.read(), ARRAYS["float64"])


def test_what_cannot_be_written_leaves_the_file_as_it_was(path, tmp_path):
    with pytest.raises(StorageError, match='cannot be written: Unknown dtype "object"'):
        write_tensor_file(path, lazy({"a": np.array([None])}), {})
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == valid()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged: .*header too small; download it again"),
        (valid()[:-1], "is damaged: .*; download it again"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\n", "; run git lfs pull$"),
    ],
)
def test_damaged_files_are_refused(path, content, message):
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_tensors(path)


def test_dtype_that_numpy_lacks_is_refused(path):
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"12")
    with pytest.raises(CheckpointError, match="dtype of tensor 'a' must be one of .*, got F8_E4M3"):
        read_tensors(path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path, make, message):
    make(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        read_tensors(tmp_path / "model.safetensors")
