import re

import jax
import numpy as np
import pytest

from jaxformer.errors import CheckpointError
from jaxformer.interop.safetensors import TensorFiles
from jaxformer.interop.safetensors.header import make_header
from jaxformer.storage import write_whole
from tests.interop.crafted import ARRAYS, craft, entry, mutated


def write(path, arrays, metadata=None):
    start, names = make_header({name: (a.dtype, a.shape) for name, a in arrays.items()}, metadata)
    path.write_bytes(start + b"".join(arrays[name].tobytes() for name in names))
    return path


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "model.safetensors", ARRAYS, {"format": "pt"})


def test_tensors_read_are_the_tensors_written(path):
    tensors = TensorFiles([str(path)])
    assert set(tensors.names) == set(ARRAYS)
    for name, array in ARRAYS.items():
        found = tensors.read(name)
        assert type(found) is np.ndarray and name in tensors
        assert (tensors.shape(name), tensors.dtype(name)) == (array.shape, array.dtype)
        assert (found.shape, found.dtype) == (array.shape, array.dtype)
        assert found.tobytes() == array.tobytes()
    assert tensors.metadata == {"format": "pt"} and tensors.path("bool") == path


def test_tensors_are_read_only_views_of_one_map(path):
    tensors = TensorFiles([path])
    first, second = tensors.read("float32"), tensors.read("float32")
    assert np.shares_memory(first, second) and not first.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        first.flags.writeable = True


def test_tensors_that_are_donated_leave_the_file_as_it_was(tmp_path):
    # JAX uses a map as it lies on a CPU, where it is aligned to 64 bytes.
    arrays, padding = {"a": np.arange(32, dtype=np.float32)}, 0
    while len(make_header({"a": (np.float32, (32,))}, {"x": "x" * padding})[0]) % 64:
        padding += 8
    path = write(tmp_path / "model.safetensors", arrays, {"x": "x" * padding})
    view = TensorFiles([path]).read("a")
    array = jax.device_put(view, jax.devices()[0])
    assert array.unsafe_buffer_pointer() == view.ctypes.data
    changed = jax.jit(lambda x: x * 2, donate_argnums=0)(array)
    np.testing.assert_array_equal(changed, 2 * arrays["a"])
    np.testing.assert_array_equal(view, arrays["a"])


def test_tensors_that_are_not_aligned_are_read(tmp_path):
    header = {"a": entry("U8", [1], [0, 1]), "b": entry("BF16", [3], [1, 7])}
    header["c"] = entry("F64", [2], [7, 23])
    data = b"\1" + ARRAYS["bfloat16"].tobytes()[:6] + np.array([1.5, -2.5]).tobytes()
    (tmp_path / "x.safetensors").write_bytes(craft(header, data))
    tensors = TensorFiles([tmp_path / "x.safetensors"])
    assert not (tensors.read("b").flags.aligned and tensors.read("c").flags.aligned)
    np.testing.assert_array_equal(tensors.read("b").astype(np.float32), [0, 1, 2])
    np.testing.assert_array_equal(jax.numpy.asarray(tensors.read("b"), np.float32), [0, 1, 2])
    np.testing.assert_array_equal(tensors.read("c")[None].T @ np.ones((1, 1)), [[1.5], [-2.5]])


def test_file_that_is_replaced_while_it_is_open_stays_as_it_was(path):
    tensors = TensorFiles([path])
    before = tensors.read("float64")
    write_whole(path, b"other")
    np.testing.assert_array_equal(tensors.read("float64"), ARRAYS["float64"])
    np.testing.assert_array_equal(before, ARRAYS["float64"])


def test_metadata_is_what_all_files_say_alike(tmp_path):
    for name, metadata in {
        "a": {"format": "pt", "part": "1", "of": "a"},
        "b": {"part": "2", "format": "pt"},
    }.items():
        write(tmp_path / name, {name: ARRAYS["int8"]}, metadata)
    assert TensorFiles([tmp_path / "a", tmp_path / "b"]).metadata == {"format": "pt"}
    write(tmp_path / "c", {"c": ARRAYS["int8"]})
    assert TensorFiles([tmp_path / name for name in "abc"]).metadata == {}
    assert TensorFiles([]).metadata == {} and TensorFiles([]).names == ()


def test_tensor_in_two_files_is_refused(tmp_path):
    for name in "ab":
        write(tmp_path / name, {"x": ARRAYS["int8"]})
    with pytest.raises(CheckpointError, match="in one file, got 'x' in .*/b and in .*/a; download"):
        TensorFiles([tmp_path / "a", tmp_path / "b"])


def test_tensor_that_is_not_there_is_named_with_the_nearest(path):
    tensors = TensorFiles([path])
    message = re.escape(f"{path} must have tensor 'float31', but does not; did you mean 'float3")
    for method in (tensors.read, tensors.shape, tensors.dtype, tensors.path):
        with pytest.raises(CheckpointError, match=message):
            method("float31")


def test_truth_values_that_are_neither_are_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(craft({"a": entry("BOOL", [3], [0, 3])}, b"\0\2\1"))
    with pytest.raises(CheckpointError, match="'a' of BOOL must have bytes 0 and 1 only; download"):
        TensorFiles([path]).read("a")


def test_changed_files_are_refused_or_read_without_another_error(tmp_path, path):
    good, names = path.read_bytes(), 0
    for seed in range(500):
        path.write_bytes(mutated(good, seed))
        try:
            tensors = TensorFiles([path])
            for name in tensors.names:
                array = tensors.read(name)
                assert array.shape == tensors.shape(name)
                assert len(array.tobytes()) == array.nbytes
                names += 1
        except CheckpointError:
            pass
    assert names > 100
