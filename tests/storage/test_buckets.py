"""Paths in buckets, read and written at an emulator of Google Cloud Storage."""

import os
import pathlib
import subprocess
import sys

import pytest

from jaxformer.errors import ConfigError
from jaxformer.storage import BucketPath, as_path


@pytest.mark.parametrize("text", ["gs://bucket/a/b.txt", "s3://bucket/a/b.txt"])
def test_url_stays_a_url_whatever_it_passed_through(text):
    path = as_path(text)
    assert isinstance(path, BucketPath) and str(path) == text
    assert as_path(pathlib.Path(text)) == path == as_path(path)
    assert str(path.parent / "c") == text.replace("b.txt", "c") == str(path.with_name("c"))
    with pytest.raises(TypeError, match="is in a bucket"):
        os.stat(path)


@pytest.mark.parametrize("text", ["runs/a", "/tmp/a", "C:/a", "a:b", "gs:", "./gs://a"])
def test_other_paths_are_of_this_machine(text):
    assert not isinstance(as_path(text), BucketPath)


def test_files_are_written_listed_and_read(bucket):
    folder = bucket / "corpus"
    assert not folder.exists() and not folder.is_dir() and folder.files() == {}
    (folder / "a.txt").write_bytes(b"hello")
    (folder / "deep" / "b.txt").write_bytes(b"more")
    assert folder.is_dir() and not folder.is_file() and (folder / "a.txt").is_file()
    assert list(folder.iterdir()) == [folder / "a.txt", folder / "deep"]
    assert (folder / "a.txt").read_bytes() == b"hello"
    with (folder / "a.txt").open_stream() as stream:
        stream.seek(1)
        assert stream.read(2) == b"el"
    before = folder.files()
    assert {name: found.size for name, found in before.items()} == {"a.txt": 5, "deep/b.txt": 4}
    assert before["a.txt"].md5 == "5d41402abc4b2a76b9719d911017c592"
    (folder / "a.txt").write_bytes(b"jello")
    assert folder.files()["a.txt"].version != before["a.txt"].version
    assert (folder / "a.txt").info() == folder.files()["a.txt"]
    (folder / "a.txt").unlink()
    (folder / "a.txt").unlink(missing_ok=True)
    assert list(folder.files()) == ["deep/b.txt"]


def test_what_fails_is_an_error_of_the_system_with_one_line(bucket, emulator):
    for read in (BucketPath.read_bytes, BucketPath.open_stream, BucketPath.info, BucketPath.unlink):
        with pytest.raises(FileNotFoundError, match="there is no such file"):
            read(bucket / "missing")
    with pytest.raises(FileNotFoundError):
        (as_path("gs://no-such-bucket") / "a").write_bytes(b"")
    emulator.fault = lambda *_: 403
    with pytest.raises(OSError, match="gcloud auth application-default login") as info:
        (bucket / "a").read_bytes()
    assert "\n" not in info.value.strerror


def test_missing_package_is_named():
    with pytest.raises(ConfigError, match="s3://a/b needs s3fs, which is missing; pip"):
        as_path("s3://a/b").exists()
    with pytest.raises(ConfigError, match="foo://a/b has an unknown scheme"):
        as_path("foo://a/b").exists()
    program = """
import sys
sys.modules["gcsfs"] = None  # as if it were not installed
from jaxformer.storage import as_path
as_path("gs://a/b").exists()
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    message = 'gs://a/b needs gcsfs, which is missing; pip install "jaxformer[gcs]"'
    assert result.stderr.splitlines()[-1].endswith(message)
