"""Files of tokens that were made elsewhere: mapped, and checked once."""

import os

import numpy as np
import pytest
import tokenizers

from jaxformer.errors import DataError
from jaxformer.text import (
    PackedDocuments,
    Tokenizer,
    Windows,
    build_stream,
    byte_tokenizer,
    map_token_files,
    train_word,
    with_special_tokens,
)
from jaxformer.text.sources import token_files
from jaxformer.text.sources.token_files import check_token_files

BYTES = byte_tokenizer()
END = BYTES.end_of_text
TOKENS = [*b"to be", END, *b"or", END, END, *"né".encode()]


def write(path, tokens, dtype="<u2"):
    if path.suffix == ".npy":
        np.save(path, np.array(tokens, dtype))
    else:
        np.array(tokens, dtype).tofile(path)
    return path


def write_llmc(path, tokens, magic=20240520, version=1, dtype="<u2", count=None):
    header = np.zeros(256, "<i4")
    header[:3] = magic, version, len(tokens) if count is None else count
    path.write_bytes(header.tobytes() + np.array(tokens, dtype).tobytes())
    return path


def check(path, cache=None, tokenizer=BYTES):
    return check_token_files(map_token_files([path]), tokenizer, cache)


@pytest.mark.parametrize("dtype", ["<u2", "<i4", ">i4", "<u4", "<i8", "<u8", "<i2"])
def test_npy_has_the_tokens_that_were_saved(tmp_path, dtype):
    tokens = map_token_files([write(tmp_path / "a.npy", TOKENS, dtype)]).tokens
    assert isinstance(tokens, np.memmap) and tokens.tolist() == TOKENS
    assert check(tmp_path / "a.npy").offsets.tolist() == [0, 6, 9, 10]


@pytest.mark.parametrize(
    "make",
    [
        lambda path: write(path, TOKENS),
        lambda path: write_llmc(path, TOKENS),
        lambda path: write_llmc(path, TOKENS, 20240801, 7, "<u4"),
    ],
    ids=["nanoGPT", "llm.c", "llm.c of Llama 3"],
)
def test_bin_has_the_tokens_that_were_written(tmp_path, make):
    tokens = map_token_files([make(tmp_path / "train.bin")]).tokens
    assert isinstance(tokens, np.memmap) and tokens.tolist() == TOKENS


@pytest.mark.parametrize("tokens", [[72, 101, 108], [50_256, 0, 11]])
def test_bin_of_four_bytes_without_a_header_is_refused(tmp_path, tokens):
    with pytest.raises(DataError, match="got every second number 0, as if of four bytes, in"):
        map_token_files([write(tmp_path / "a.bin", tokens, "<u4")])


def test_tokens_of_two_bytes_are_of_a_vocabulary_that_they_hold(tmp_path):
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 2**16}))
    with pytest.raises(DataError, match="at most 65,536, got 65,537 in the tokenizer; save"):
        check(write(tmp_path / "a.bin", TOKENS), tokenizer=Tokenizer(library))


def test_documents_end_with_the_end_of_text(tmp_path):
    stream = check(write(tmp_path / "train.bin", TOKENS))
    same = build_stream(["to be", "or", "", "né"], BYTES)
    assert stream.offsets.tolist() == same.offsets.tolist()
    assert stream.tokens.tolist() == same.tokens[:-1].tolist()  # which ends its last one, too
    packed = PackedDocuments(stream, 5)[1]
    assert packed["segment_ids"].tolist() == [1, 2, 2, 2, 3]


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_files_are_one_stream_in_their_order(tmp_path, chunk, monkeypatch):
    """A document may go on in the next file."""
    monkeypatch.setattr(token_files, "_CHUNK", chunk)
    paths = [
        write(tmp_path / f"{i}.bin", part)
        for i, part in enumerate((TOKENS[:3], TOKENS[3:6], TOKENS[6:]))
    ]
    files = map_token_files(paths)
    stream = check_token_files(files, BYTES, None)
    whole = check(write(tmp_path / "whole.bin", TOKENS))
    np.testing.assert_array_equal(stream.tokens, TOKENS)
    np.testing.assert_array_equal(stream.offsets, whole.offsets)
    assert (stream.num_bytes, stream.fingerprint) == (whole.num_bytes, whole.fingerprint)
    assert stream.num_bytes == len("to beorné".encode())
    for index in range(len(Windows(whole, 4))):
        np.testing.assert_equal(Windows(stream, 4)[index], Windows(whole, 4)[index])


@pytest.mark.parametrize("bad", [257, -1, 2**40])
def test_token_outside_the_vocabulary_is_named_with_file_and_index(tmp_path, bad):
    path = write(tmp_path / "a.npy", [*TOKENS, bad, 5], "<i8")
    size = len(TOKENS)
    with pytest.raises(DataError, match=rf"vocab_size=257, got {bad} at index {size} of '.*a.npy'"):
        check(path)


def test_mask_is_no_token_of_a_file(tmp_path):
    path = write(tmp_path / "a.bin", [*TOKENS, 257])
    with pytest.raises(DataError, match="got 257 at index"):
        check(path, tokenizer=with_special_tokens(BYTES, ["<|mask|>"]))


def test_bytes_of_tokens_that_do_not_say_them_are_not_counted(tmp_path):
    path = write(tmp_path / "a.bin", [0, 1, 1])
    assert check(path, tokenizer=train_word(["a b"])).num_bytes is None


def test_second_pass_reads_nothing(tmp_path, monkeypatch):
    path, cache = write(tmp_path / "a.bin", TOKENS), tmp_path / "cache"
    first = check(path, cache)
    assert isinstance(first.offsets, np.memmap)
    monkeypatch.setattr(token_files, "_checked_chunks", None)
    again = check(path, cache)
    np.testing.assert_array_equal(again.tokens, first.tokens)
    np.testing.assert_array_equal(again.offsets, first.offsets)
    assert (again.num_bytes, again.fingerprint) == (first.num_bytes, first.fingerprint)


def test_other_tokens_and_other_tokenizers_are_checked_anew(tmp_path, monkeypatch):
    path, cache = write(tmp_path / "a.bin", TOKENS), tmp_path / "cache"
    first = check(path, cache)
    write(path, [*TOKENS[:-1], END])
    os.utime(path, ns=(0, 0))
    assert check(path, cache).fingerprint != first.fingerprint
    monkeypatch.setattr(token_files, "_checked_chunks", None)
    with pytest.raises(TypeError):  # it is read
        check(path, cache, with_special_tokens(BYTES, ["<|mask|>"]))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.bin", None, r"must be a file that can be read, got '.*a.bin': No such file"),
        ("a.bin", b"", r"must have tokens, got none in '.*a.bin'"),
        ("a.bin", b"abc", r"must have two bytes for each token, .*, got 3 bytes in '.*a.bin'"),
        ("a.txt", b"ab", r"must end in .bin or .npy, got '.*a.txt'"),
        ("a.npy", b"ab", r"'.*a.npy' cannot be read \(.*\); save it again with np.save"),
    ],
)
def test_file_that_cannot_be_used_is_one_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        map_token_files([tmp_path / name])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 5), np.int32), r"integers of one axis, got int32 of shape \(3, 5\)"),
        (np.zeros(3), r"integers of one axis, got float64"),
        (np.array([{}]), r"a.npy' cannot be read \(.*Python objects.*\); save it again"),
        (np.zeros(0, np.int32), "got none in"),
    ],
)
def test_npy_that_cannot_be_used_is_named(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(DataError, match=message):
        map_token_files([tmp_path / "a.npy"])


@pytest.mark.parametrize(
    ("options", "size"), [({"count": 14}, 1050), ({"version": 2}, 1050), ({"dtype": "<u4"}, 1076)]
)
def test_header_that_does_not_fit_is_an_error(tmp_path, options, size):
    path = write_llmc(tmp_path / "a.bin", TOKENS, **options)
    with pytest.raises(DataError, match=rf"version 1, .*, got {size:,} bytes and the header \["):
        map_token_files([path])
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="got 100 bytes and the header"):
        map_token_files([path])


def test_files_of_several_types_are_refused(tmp_path):
    paths = [write(tmp_path / "a.bin", TOKENS), write(tmp_path / "b.npy", TOKENS, "<i4")]
    with pytest.raises(DataError, match=r"one type, got uint16 in '.*a.bin', int32 in '.*b.npy'"):
        map_token_files(paths)
