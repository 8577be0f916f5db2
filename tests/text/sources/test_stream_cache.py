import os
import pathlib

import numpy as np
import pytest

from jaxformer.text import (
    build_stream,
    byte_tokenizer,
    cached_stream,
    default_cache_dir,
    train_character,
)
from jaxformer.text.sources import streams
from jaxformer.text.store import shards

TEXTS = ["to be", "", "or not", "é"]


@pytest.mark.parametrize("texts", [TEXTS, ["to be"]])
def test_cached_stream_equals_built_one(tmp_path, texts):
    expected = build_stream(texts, byte_tokenizer())
    for _ in range(2):
        stream = cached_stream(texts, byte_tokenizer(), tmp_path / "new" / "folder")
        assert isinstance(stream.tokens, np.memmap)
        assert stream.tokens.dtype == expected.tokens.dtype
        np.testing.assert_array_equal(stream.tokens, expected.tokens)
        np.testing.assert_array_equal(stream.offsets, expected.offsets)
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 3


def test_cached_stream_is_not_built_again(tmp_path, monkeypatch):
    cached_stream(TEXTS, byte_tokenizer(), tmp_path)
    monkeypatch.delattr(streams, "build_stream")
    cached_stream(TEXTS, byte_tokenizer(), tmp_path)


def test_cached_stream_is_keyed_by_tokenizer_and_documents(tmp_path):
    characters = train_character(TEXTS)
    for texts, tokenizer in [
        (["ab", "c"], byte_tokenizer()),
        (["a", "bc"], byte_tokenizer()),
        (["c", "ab"], byte_tokenizer()),
        (["to", "be"], characters),
        (["to", "be"], byte_tokenizer()),
    ]:
        expected = build_stream(texts, tokenizer).tokens.tolist()
        assert cached_stream(texts, tokenizer, tmp_path).tokens.tolist() == expected
    assert len(list(tmp_path.iterdir())) == 3 * 5


def flip(data, index):
    return data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]


@pytest.mark.parametrize("name", ["tokens.npy", "tokens.starts.npy", "json"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:5],
        lambda data: data[:-1],
        lambda data: data[:128],
        lambda data: b"PK\x03\x04" + data,
        lambda data: flip(data, 15),  # In the header,
        lambda data: flip(data, -2),  # and in a number.
        lambda data: bytes(len(data)),
    ],
)
def test_damaged_cache_is_made_again(tmp_path, name, damage):
    expected = build_stream(TEXTS, byte_tokenizer())
    cached_stream(TEXTS, byte_tokenizer(), tmp_path)
    (path,) = tmp_path.glob(f"*[0-9a-f].{name}")
    intact = path.read_bytes()
    path.write_bytes(damage(intact))
    stream = cached_stream(TEXTS, byte_tokenizer(), tmp_path)
    assert stream.tokens.tolist() == expected.tokens.tolist()
    assert stream.offsets.tolist() == expected.offsets.tolist()
    assert path.read_bytes() == intact


def warned_stream(cache):
    """The stream, and the one warning of making it."""
    with pytest.warns(UserWarning, match="tokens are kept in memory") as warned:
        stream = cached_stream(TEXTS, byte_tokenizer(), cache)
    assert stream.tokens.tolist() == build_stream(TEXTS, byte_tokenizer()).tokens.tolist()
    (one,) = warned
    assert pathlib.Path(one.filename) == pathlib.Path(__file__)
    return str(one.message)


@pytest.mark.parametrize("calls_before", [0, 1, 2])
def test_full_disk_leaves_no_cache_and_the_tokens_in_memory(tmp_path, monkeypatch, calls_before):
    calls, sync = [], os.fsync

    def full(file):
        calls.append(file)
        if len(calls) > calls_before:
            raise OSError(28, "No space left on device")
        sync(file)

    monkeypatch.setattr(os, "fsync", full)
    message = warned_stream(tmp_path)
    assert f"({tmp_path}: {tmp_path}/" in message and "to a writable folder" in message
    assert " cannot be written: No space left on device; free space" in message
    assert list(tmp_path.iterdir()) == []


def test_cache_that_cannot_be_made_is_no_reason_to_stop(tmp_path):
    (tmp_path / "file").write_text("")
    assert "Not a directory" in warned_stream(tmp_path / "file" / "cache")
    assert "there is no home folder" in warned_stream(None)


def test_there_is_no_cache_folder_without_a_home(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(shards.pathlib.Path, "home", no_home)
    assert default_cache_dir() is None


@pytest.mark.parametrize("moment", [0, 1, 2])
def test_cached_stream_is_safe_when_two_write_at_once(tmp_path, monkeypatch, moment):
    # The other process does all of its work right before a file of the first is put in place.
    expected = build_stream(TEXTS, byte_tokenizer()).tokens.tolist()
    replace, targets, others = os.replace, [], []

    def interleaved(source, target):
        targets.append(target)
        if len(targets) == moment + 1:
            others.append(cached_stream(TEXTS, byte_tokenizer(), tmp_path))
        replace(source, target)

    monkeypatch.setattr(os, "replace", interleaved)
    stream = cached_stream(TEXTS, byte_tokenizer(), tmp_path)
    assert [len(others), len(targets), len(set(targets))] == [1, 6, 3]
    assert stream.tokens.tolist() == others[0].tokens.tolist() == expected
    assert len(list(tmp_path.iterdir())) == 3


def test_default_cache_dir_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "jaxformer"
    for unset in (lambda: monkeypatch.setenv("XDG_CACHE_HOME", ""), monkeypatch.undo):
        unset()
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert default_cache_dir() == tmp_path / ".cache" / "jaxformer"


@pytest.mark.parametrize(
    "source",
    [
        [{"text": one} for one in TEXTS],
        [byte_tokenizer().encode(one).tolist() for one in TEXTS],
        [{"text": byte_tokenizer().encode(one)} for one in TEXTS],
    ],
    ids=["dicts of texts", "token ids", "dicts of token ids"],
)
def test_any_documents_are_cached(tmp_path, monkeypatch, source):
    built = build_stream(TEXTS, byte_tokenizer())
    cached_stream(source, byte_tokenizer(), tmp_path)
    monkeypatch.delattr(streams, "build_stream")
    found = cached_stream(source, byte_tokenizer(), tmp_path)
    np.testing.assert_array_equal(found.tokens, built.tokens)
    np.testing.assert_array_equal(found.offsets, built.offsets)


def test_tokens_that_are_there_are_not_copied(tmp_path):
    tokens = np.arange(7)
    assert cached_stream(tokens, None, tmp_path).tokens is tokens
    assert not list(tmp_path.iterdir())


def test_token_ids_and_texts_have_caches_of_their_own(tmp_path):
    """Though the bytes of both may be the same."""
    as_text = cached_stream(["a\0\0\0\0\0\0\0"], byte_tokenizer(), tmp_path)
    as_ids = cached_stream([[97]] + [[98]], byte_tokenizer(), tmp_path)
    assert as_text.tokens.size == 8 and as_ids.tokens.tolist() == [97, 256, 98, 256]


def test_other_token_ids_have_another_cache(tmp_path):
    for ids in ([97], [98], [97, 98]):
        found = cached_stream([[1], ids], byte_tokenizer(), tmp_path)
        assert found.tokens.tolist() == [1, 256, *ids, 256]
