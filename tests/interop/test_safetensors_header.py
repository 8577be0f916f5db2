import os
import re
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from jaxformer.errors import CheckpointError, ShapeError
from jaxformer.interop.safetensors.header import make_header, read_header
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


def require_consistent(header, path):
    """The tensors fill the file behind the header, and have the bytes that their shapes say."""
    content = path.read_bytes()
    assert header.size == len(content)
    end = 8 + int.from_bytes(content[:8], "little")
    for name, one in header.entries.items():
        assert name and one.begin == end
        end = one.end
        assert one.end - one.begin == int(np.prod(one.shape, dtype=object)) * one.dtype.itemsize
    assert end == header.size
    assert all(isinstance(text, str) for item in header.metadata.items() for text in item)


def test_header_read_is_the_header_made(tmp_path):
    path = write(tmp_path, valid())
    header = read_header(path)
    require_consistent(header, path)
    assert header.metadata == {"format": "pt"}
    found = {name: (one.dtype, one.shape) for name, one in header.entries.items()}
    assert found == {name: (array.dtype, array.shape) for name, array in ARRAYS.items()}


def test_every_tensor_begins_at_a_multiple_of_its_item_size(tmp_path):
    for one in read_header(write(tmp_path, valid())).entries.values():
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
    dtype = getattr(ml_dtypes, CODES[code], CODES[code])
    size = np.dtype(dtype).itemsize
    start, _ = make_header({"a": (dtype, (1,))})
    assert start[8:].rstrip() == (
        b'{"a":{"dtype":"%s","shape":[1],"data_offsets":[0,%d]}}' % (code.encode(), size)
    )
    (found,) = read_header(write(tmp_path, start + bytes(size))).entries.values()
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
    header = read_header(path)
    require_consistent(header, path)
    start = 8 + int.from_bytes(content[:8], "little")
    found = {name: (one.begin - start, one.end - start) for name, one in header.entries.items()}
    assert list(found.items()) == list(spans.items())


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_file_is_one_clear_error_and_costs_nothing(tmp_path, case):
    content, message = HOSTILE[case]
    path = write(tmp_path, content)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=message) as caught:
            read_header(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    text = str(caught.value).replace(str(path), "PATH")
    assert text.startswith("PATH") and text.isprintable() and len(text) < 400
    assert text.endswith("download the file again")
    assert most < 2**20 + 10 * len(content)


def test_changed_headers_are_refused_or_consistent(tmp_path):
    good, accepted = valid(), 0
    for seed in range(2000):
        path = write(tmp_path, mutated(good, seed))
        try:
            header = read_header(path)
        except CheckpointError as error:
            assert str(error).replace(str(path), "").isprintable()
        else:
            require_consistent(header, path)
            accepted += 1
    assert 40 < accepted < 200  # such as with a bit of a name or of a dtype changed


def test_pointer_of_git_lfs_is_named_as_one(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n"
    with pytest.raises(CheckpointError, match="is a Git LFS pointer, .*; run git lfs pull$"):
        read_header(write(tmp_path, pointer))


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
        read_header(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("tensors", "metadata", "error", "message"),
    [
        ({"": (np.int8, ())}, None, CheckpointError, "a string, neither empty nor '__metadata__'"),
        ({"__metadata__": (np.int8, ())}, None, CheckpointError, "'__metadata__', got '__meta"),
        ({1: (np.int8, ())}, None, CheckpointError, "got 1; rename it"),
        ({"\ud800": (np.int8, ())}, None, CheckpointError, "must be UTF-8"),
        ({}, {"a": 1}, CheckpointError, "metadata must map names to texts, got {'a': 1}"),
        ({}, {"a": "\ud800"}, CheckpointError, "must be UTF-8"),
        ({"a": (object, ())}, None, ShapeError, "tensor 'a' must be one of bool, .*, got object"),
        ({"a": ("<U3", ())}, None, ShapeError, "got <U3; convert it"),
        ({"a": (np.complex128, ())}, None, ShapeError, "got complex128; convert it"),
    ],
)
def test_header_that_could_not_be_read_is_not_made(tensors, metadata, error, message):
    with pytest.raises(error, match=message):
        make_header(tensors, metadata)


def test_header_longer_than_readers_take_is_not_made(monkeypatch):
    monkeypatch.setattr("jaxformer.interop.safetensors.header._MAX_HEADER", 50)
    message = "at most 50 bytes, got 64 for 1 tensors; write several files"
    with pytest.raises(CheckpointError, match=re.escape(message)):
        make_header({"ab": (np.float32, (2, 3))})
