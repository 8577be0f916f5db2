"""Paths in buckets, read and written at an emulator of Google Cloud Storage."""

import os
import pathlib
import subprocess
import sys

import pytest

from jaxformer.errors import ConfigError
from jaxformer.storage import BucketPath, as_path, write_whole


@pytest.mark.parametrize("text", ["gs://bucket/a/b.txt", "s3://bucket/a/b.txt"])
def test_url_stays_a_url_whatever_it_passed_through(text):
    path = as_path(text)
    assert isinstance(path, BucketPath) and str(path) == text
    assert as_path(pathlib.Path(text)) == path == as_path(path)
    assert str(path.parent / "c") == text.replace("b.txt", "c") == str(path.with_name("c"))
    with pytest.raises(ConfigError, match="is in a bucket, and must be on a disk"):
        os.stat(path)


@pytest.mark.parametrize("text", ["gs:///a", "gs://", "GS://bucket/a"])
def test_url_without_a_bucket_is_refused(text):
    with pytest.raises(ConfigError, match="must be like gs://bucket/folder"):
        as_path(text)


@pytest.mark.parametrize("text", ["runs/a", "/tmp/a", "C:/a", "a:b", "gs:", "./gs://a", "no:/a"])
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


@pytest.mark.parametrize("end", [b"\r", b"\n", b"\r\n", b"\n\r", b"\n--", b"\0", b" "])
def test_files_end_as_they_were_written(bucket, end):
    (bucket / "a").write_bytes(b"a" + end)
    assert (bucket / "a").read_bytes() == b"a" + end


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


def test_names_with_signs_of_patterns_are_names(bucket):
    for name in ("a[1]/x", "a1/x", "a*/x"):
        (bucket / name).write_bytes(name.encode())
    (bucket / "a[1]").rename(bucket / "b?")
    (bucket / "a*").remove_tree()
    assert set(bucket.files()) == {"a1/x", "b?/x"}


def test_objects_that_no_path_names_are_said(bucket):
    bucket.system.pipe_file(f"{bucket.key}/w//a.txt", b"1")
    with pytest.raises(OSError, match="it has the object '/a.txt', which no path names"):
        (bucket / "w").files()


@pytest.mark.parametrize("size", [2**23, 2**20])
def test_a_file_that_is_replaced_while_it_is_read_is_an_error(bucket, size):
    write_whole(bucket / "a", b"1" * 2**23)
    with (bucket / "a").open_stream() as stream:
        stream.read(10)
        write_whole(bucket / "a", b"2" * size)
        with pytest.raises(OSError, match="it has changed while it was read"):
            stream.read()


def test_nothing_of_buckets_is_loaded_without_one():
    program = """
import sys
import jaxformer.cli, jaxformer.runs, jaxformer.training
from jaxformer.text import read_documents
read_documents([sys.argv[1]])
print({"gcsfs", "s3fs", "aiohttp"} & sys.modules.keys())
"""
    words = [sys.executable, "-c", program, __file__]
    result = subprocess.run(words, capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr
