"""Paths in buckets, read and written at an emulator of Google Cloud Storage."""

import hashlib
import os
import pathlib
import subprocess
import sys

import pytest

from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.storage import (
    Manifest,
    as_path,
    drafted,
    files_below,
    in_bucket,
    on_disk,
    read_regular,
    read_whole,
    remove,
    stamp,
    write_whole,
    written_folder,
)


def contents(folder):
    return {path: (folder / path).read_bytes() for path in files_below(folder)}


def test_url_stays_a_url_whatever_it_passed_through():
    path = as_path("gs://bucket/a/b.txt")
    assert in_bucket(path) and str(path) == "gs://bucket/a/b.txt"
    assert as_path(pathlib.Path("gs://bucket/a/b.txt")) == path == as_path(path)
    assert str(path.parent / "c") == "gs://bucket/a/c" == str(path.with_name("c"))


@pytest.mark.parametrize("text", ["gs:///a", "gs://", "GS://bucket/a", "foo://bucket/a"])
def test_url_without_a_bucket_or_of_an_unknown_scheme_is_refused(text):
    with pytest.raises(ConfigError, match="must be like gs://bucket/folder"):
        as_path(text)


@pytest.mark.parametrize("text", ["runs/a", "/tmp/a", "C:/a", "a:b", "gs:", "./gs://a", "no:/a"])
def test_other_paths_are_of_this_machine(text):
    assert not in_bucket(as_path(text)) and isinstance(as_path(text), pathlib.Path)


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for path, install in {"s3://a/b": "s3fs", "gs://a/b": '"jaxformer.gcs.'}.items():
        with pytest.raises(
            ConfigError, match=f"{path} needs .*, which is missing; pip .*{install}"
        ):
            as_path(path)


def test_files_are_written_listed_read_and_removed(bucket):
    folder = bucket / "corpus"
    assert not folder.exists() and not folder.is_dir() and files_below(folder) == []
    write_whole(folder / "a.txt", "hello")
    write_whole(str(folder / "deep" / "b.txt"), iter([b"in ", b"parts"]))
    assert folder.is_dir() and not folder.is_file() and (folder / "a.txt").is_file()
    assert sorted(folder.iterdir()) == [folder / "a.txt", folder / "deep"]
    assert contents(folder) == {"a.txt": b"hello", "deep/b.txt": b"in parts"}
    assert read_whole(folder / "a.txt") == b"hello" == read_regular(folder / "a.txt")
    before = stamp(folder / "a.txt")
    write_whole(folder / "a.txt", "jello")
    assert before[0] == stamp(folder / "a.txt")[0] == 5 and before != stamp(folder / "a.txt")
    remove(folder)
    remove(folder)
    assert files_below(bucket) == []
    with pytest.raises(CheckpointError, match="a.txt cannot be read"):
        read_whole(folder / "a.txt")


def test_a_folder_is_filled_in_order(bucket, emulator):
    written = []
    emulator.fault = lambda method, path: written.append(path) if method == "POST" else None
    with drafted(bucket / "run", first="b", last="a") as draft:
        (draft / "deep").mkdir()
        for name in ("a", "b", "deep/c"):
            (draft / name).write_text(name)
    assert contents(bucket / "run") == {"a": b"a", "b": b"b", "deep/c": b"deep/c"}
    written.clear()
    emulator.fault = lambda method, _: 403 if method == "POST" else None
    with pytest.raises(OSError), drafted(bucket / "other", last="a") as draft:
        (draft / "a").touch()
    assert not (bucket / "other").exists()


def test_programs_that_know_no_buckets_write_to_a_folder_that_is_uploaded(bucket, tmp_path):
    for folder in (bucket / "a", tmp_path / "a"):
        with written_folder(folder) as written:
            assert os.path.isdir(written)
            (written / "deep").mkdir()
            (written / "deep" / "file").write_bytes(b"content")
        assert (folder / "deep" / "file").read_bytes() == b"content"


def test_manifest_finds_damage_in_a_bucket(bucket):
    for name in ("a", "deep/b"):
        write_whole(bucket / name, name * 100)
    manifest = Manifest.of(bucket, {"step": 1})
    assert manifest.files["a"] == (hashlib.sha256(b"a" * 100).hexdigest(),)
    assert manifest.damage(bucket) is None
    write_whole(bucket / "a", "a" * 99 + "b")
    assert manifest.damage(bucket) == "a is not the file that was written: its SHA-256 differs"
    (bucket / "deep" / "b").unlink()
    assert manifest.damage(bucket) == "deep/b is missing"


def test_files_to_map_are_copied_to_this_machine_once(bucket, emulator, capsys):
    write_whole(bucket / "model" / "a.json", b"{}")
    write_whole(bucket / "model" / "b.bin", b"other")
    write_whole(bucket / "model" / "deep" / "c.json", b"deep")
    copy = on_disk(bucket / "model", ["*.json"])
    assert [path.name for path in copy.iterdir()] == ["a.json"]
    assert (copy / "a.json").read_bytes() == b"{}"
    assert f"downloading 2 bytes from {bucket / 'model'} to {copy}" in capsys.readouterr().err
    downloads = []
    emulator.fault = lambda _, path: downloads.append(path) if "alt=media" in path else None
    assert on_disk(bucket / "model", ["*.json"]) == copy and downloads == []
    write_whole(bucket / "model" / "a.json", b"[]")  # of the same size
    assert (on_disk(str(bucket / "model" / "a.json"))).read_bytes() == b"[]"
    copy = on_disk(bucket / "model", ["*.json"])
    assert (copy / "a.json").read_bytes() == b"[]" and len(downloads) == 1
    (bucket / "model" / "a.json").unlink()
    assert not (on_disk(bucket / "model", ["*"]) / "a.json").exists()
    assert on_disk("models/x") == pathlib.Path("models/x")


def test_nothing_of_buckets_is_loaded_without_one():
    program = """
import sys
import jaxformer.cli, jaxformer.runs, jaxformer.training
from jaxformer.text import Documents
Documents.read([sys.argv[1]])
print({"gcsfs", "s3fs", "aiohttp"} & sys.modules.keys())
"""
    words = [sys.executable, "-c", program, __file__]
    result = subprocess.run(words, capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr
