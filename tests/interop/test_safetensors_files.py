import os
import re
import tracemalloc

import jax
import ml_dtypes
import numpy as np
import pytest

from jaxformer.errors import CheckpointError, ShapeError
from jaxformer.interop.safetensors.files import make_header, read_tensors
from jaxformer.storage import write_whole
from tests.interop.crafted import ARRAYS, craft, entry, mutated, valid
from tests.interop.hostile import HOSTILE

DATA = bytes(range(16))
A = {"a": entry()}
PAIR = {**A, "b": entry("I16", (2, 2), (8, 16))}


def write(folder, content):
    path = folder / "model.safetensors"
    path.unlink(missing_ok=True)  # or some file systems wait for the disk
    path.write_bytes(content)
    return path


@pytest.fixture
def path(tmp_path):
    return write(tmp_path, valid())


def require_consistent(tensors, path):
    """The tensors fill the file behind the header, and have the bytes that their shapes say."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    for name, one in tensors.items():
        assert name and one.path == path and one.begin == end
        end = one.end
        assert one.end - one.begin == int(np.prod(one.shape, dtype=object)) * one.dtype.itemsize
        array = one.read()
        assert (array.shape, array.dtype) == (one.shape, one.dtype)
        assert array.tobytes() == content[one.begin : one.end]
    assert end == len(content)


def test_tensors_read_are_the_tensors_written(path):
    tensors = read_tensors(str(path))
    require_consistent(tensors, path)
    assert {name: (one.dtype, one.shape) for name, one in tensors.items()} == {
        name: (array.dtype, array.shape) for name, array in ARRAYS.items()
    }
    for name, array in ARRAYS.items():
        found = tensors[name].read()
        assert type(found) is np.ndarray and found.tobytes() == array.tobytes()


def test_tensors_are_read_only_views_of_one_map(path):
    tensor = read_tensors(path)["float32"]
    first, second = tensor.read(), tensor.read()
    assert np.shares_memory(first, second) and not first.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        first.flags.writeable = True


def test_tensors_that_are_donated_leave_the_file_as_it_was(tmp_path):
    # JAX uses a map as it lies on a CPU, where it is aligned to 64 bytes.
    arrays, padding = {"a": np.arange(32, dtype=np.float32)}, 0
    while len(make_header(arrays, {"x": "x" * padding})[0]) % 64:
        padding += 8
    view = read_tensors(write(tmp_path, valid(arrays, {"x": "x" * padding})))["a"].read()
    array = jax.device_put(view, jax.devices()[0])
    assert array.unsafe_buffer_pointer() == view.ctypes.data
    changed = jax.jit(lambda x: x * 2, donate_argnums=0)(array)
    np.testing.assert_array_equal(changed, 2 * arrays["a"])
    np.testing.assert_array_equal(view, arrays["a"])


def test_tensors_that_are_not_aligned_are_read(tmp_path):
    header = {"a": entry("U8", [1], [0, 1]), "b": entry("BF16", [3], [1, 7])}
    header["c"] = entry("F64", [2], [7, 23])
    data = b"\1" + ARRAYS["bfloat16"].tobytes()[:6] + np.array([1.5, -2.5]).tobytes()
    tensors = read_tensors(write(tmp_path, craft(header, data)))
    b, c = tensors["b"].read(), tensors["c"].read()
    assert not (b.flags.aligned or c.flags.aligned)
    np.testing.assert_array_equal(b.astype(np.float32), [0, 1, 2])
    np.testing.assert_array_equal(jax.numpy.asarray(b, np.float32), [0, 1, 2])
    np.testing.assert_array_equal(c[None].T @ np.ones((1, 1)), [[1.5], [-2.5]])


def test_tensors_that_were_released_are_read_again(tmp_path):
    arrays = {"a": np.arange(7_919.0), "b": np.arange(6_007.0)}
    tensors = read_tensors(write(tmp_path, valid(arrays)))
    for name in ("a", "b", "a"):
        tensors[name].release()
        np.testing.assert_array_equal(tensors[name].read(), arrays[name])


def test_file_that_is_replaced_while_it_is_open_stays_as_it_was(path):
    tensor = read_tensors(path)["float64"]
    before = tensor.read()
    write_whole(path, b"other")
    np.testing.assert_array_equal(tensor.read(), ARRAYS["float64"])
    np.testing.assert_array_equal(before, ARRAYS["float64"])


def test_truth_values_that_are_neither_are_refused(tmp_path):
    path = write(tmp_path, craft({"a": entry("BOOL", [3], [0, 3])}, b"\0\2\1"))
    with pytest.raises(CheckpointError, match="of BOOL must have bytes 0 and 1 only; download"):
        read_tensors(path)["a"].read()


def test_every_tensor_begins_at_a_multiple_of_its_item_size(path):
    for one in read_tensors(path).values():
        assert one.begin % one.dtype.itemsize == 0


CODES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "F32": "float32",
    "F64": "float64", "BF16": "bfloat16", "C64": "complex64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_dtypes_have_the_codes_of_the_format(tmp_path, code):
    dtype = np.dtype(getattr(ml_dtypes, CODES[code], CODES[code]))
    start, _ = make_header({"a": np.zeros(1, dtype)})
    assert start[8:].rstrip() == (
        b'{"a":{"dtype":"%s","shape":[1],"data_offsets":[0,%d]}}' % (code.encode(), dtype.itemsize)
    )
    (found,) = read_tensors(write(tmp_path, start + bytes(dtype.itemsize))).values()
    assert found.dtype == dtype


@pytest.mark.parametrize(
    ("content", "spans"),
    [
        (craft({}), {}),
        (craft(b"{}      "), {}),
        (craft(PAIR, DATA), {"a": (0, 8), "b": (8, 16)}),
        (craft(dict(reversed(PAIR.items())), DATA), {"a": (0, 8), "b": (8, 16)}),
        (craft({"a": entry("U8", [], [0, 1])}, b"1"), {"a": (0, 1)}),
        (craft({"a": entry("U64", [0, 2**59], [0, 0])}), {"a": (0, 0)}),
        (craft({"b": entry("F64", [0], [8, 8]), **A}, DATA[:8]), {"a": (0, 8), "b": (8, 8)}),
        (craft({"a": entry("U8", [1] * 64, [0, 1])}, b"1"), {"a": (0, 1)}),
    ],
)  # fmt: skip
def test_files_of_other_writers_are_read_in_the_order_of_their_data(tmp_path, content, spans):
    path = write(tmp_path, content)
    tensors = read_tensors(path)
    require_consistent(tensors, path)
    start = 8 + int.from_bytes(content[:8], "little")
    found = {name: (one.begin - start, one.end - start) for name, one in tensors.items()}
    assert list(found.items()) == list(spans.items())


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_file_is_one_clear_error_and_costs_nothing(tmp_path, case):
    content, message = HOSTILE[case]
    path = write(tmp_path, content)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=message) as caught:
            read_tensors(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    text = str(caught.value).replace(str(path), "PATH")
    assert text.startswith("PATH") and text.isprintable() and len(text) < 400
    assert text.endswith("download it again")
    assert most < 2**20 + 10 * len(content)


def test_changed_files_are_refused_or_consistent(tmp_path):
    good, accepted = valid(), 0
    for seed in range(2000):
        path = write(tmp_path, mutated(good, seed))
        try:
            tensors = read_tensors(path)
            require_consistent(tensors, path)
        except CheckpointError as error:
            assert str(error).replace(str(path), "").isprintable()
        else:
            accepted += 1
    assert 40 < accepted < 200  # such as with a bit of a name or of a dtype changed


def test_pointer_of_git_lfs_is_named_as_one(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n"
    with pytest.raises(CheckpointError, match="is a Git LFS pointer, .*; run git lfs pull$"):
        read_tensors(write(tmp_path, pointer))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
        (os.mkfifo, "cannot be read: it is a FIFO"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path, make, message):
    make(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        read_tensors(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ({"": np.int8(0)}, CheckpointError, "a string, neither empty nor '__metadata__'"),
        ({"__metadata__": np.int8(0)}, CheckpointError, "'__metadata__', got '__meta"),
        ({1: np.int8(0)}, CheckpointError, "got 1; rename it"),
        ({"\ud800": np.int8(0)}, CheckpointError, "must be UTF-8"),
        ({"a": np.array(None)}, ShapeError, "tensor 'a' must be one of bool, .*, got object"),
        ({"a": np.array("abc")}, ShapeError, "got <U3; convert it"),
        ({"a": np.complex128(0)}, ShapeError, "got complex128; convert it"),
    ],
)
def test_header_that_could_not_be_read_is_not_made(tensors, error, message):
    with pytest.raises(error, match=message):
        make_header(tensors)


def test_header_longer_than_readers_take_is_not_made(monkeypatch):
    monkeypatch.setattr("jaxformer.interop.safetensors.files._MAX_HEADER", 50)
    message = "at most 50 bytes, got 64 for 1 tensors; write several files"
    with pytest.raises(CheckpointError, match=re.escape(message)):
        make_header({"ab": np.zeros((2, 3), np.float32)})
