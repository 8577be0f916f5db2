"""Folders in a bucket: written whole, appended to, verified, and copied to this machine."""

import contextlib
import hashlib
import os
import pathlib
import socket
import threading

import pytest
from gcsfs.retry import HttpError
from google.auth.exceptions import RefreshError, TransportError

from jaxformer.errors import CheckpointError, ConfigError, StorageError
from jaxformer.storage import (
    BucketPath,
    Manifest,
    append,
    appending,
    as_path,
    discard_draft,
    drafted,
    file_systems,
    google,
    moved_names,
    on_disk,
    open_to_append,
    patience,
    read_regular,
    read_whole,
    write_whole,
    written_folder,
)


def contents(folder):
    return {path: (folder / path).read_bytes() for path in folder.files()}


def test_files_are_written_and_read_as_on_a_disk(bucket):
    write_whole(bucket / "a", "text")
    write_whole(str(bucket / "b"), iter([b"in ", b"parts"]))
    assert contents(bucket) == {"a": b"text", "b": b"in parts"}
    assert read_whole(bucket / "a") == b"text" == read_regular(bucket / "a", limit=4)
    with pytest.raises(CheckpointError, match="must have at most 3 bytes"):
        read_whole(bucket / "a", limit=3)
    with pytest.raises(CheckpointError, match="c cannot be read: there is no such file"):
        read_whole(bucket / "c")


def test_missing_right_to_write_is_one_line(bucket, emulator):
    emulator.fault = lambda method, _: 403 if method == "POST" else None
    with pytest.raises(StorageError, match="a cannot be written: .*application-default") as info:
        write_whole(bucket / "a", b"")
    assert "\n" not in str(info.value)


@pytest.fixture
def quick(monkeypatch):
    """Requests are sent again at once, and a line says so each time."""
    monkeypatch.setattr(google, "_PAUSES", (0.001, 0.001))
    monkeypatch.setattr(google, "_IMPATIENCE", 0.0)
    monkeypatch.setattr(google, "_SILENT", 0.0)
    monkeypatch.setattr(file_systems, "_QUIET", 0.0)


def test_a_bucket_that_is_gone_for_a_while_is_tried_again(
    bucket, emulator, tmp_path, quick, capsys
):
    left = [503]
    emulator.fault = lambda *_: left.pop() if left else None
    with pytest.raises(StorageError):
        write_whole(bucket / "a", b"text")
    with patience():
        left += [503] * 9
        write_whole(bucket / "a", b"text")
        lines = capsys.readouterr().err.splitlines()
        place = f"{emulator.url}/upload/storage/v1/b/{bucket.key}/o"
        assert lines == [f"{place}: the bucket does not answer (, 503); trying again"] * 9
        assert not left
        left += [503] * 9
        assert (bucket / "a").read_bytes() == b"text" and not left
        left += [503] * 9
        (bucket / "a").download(copy := tmp_path / "a")
        assert copy.read_bytes() == b"text" and not left
        for ask in (BucketPath.is_file, BucketPath.exists, BucketPath.files):
            left += [503] * 9
            assert ask(bucket / "a") is not None and not left


@pytest.mark.parametrize("ask", [BucketPath.is_file, BucketPath.is_dir, BucketPath.exists])
@pytest.mark.parametrize("status", [400, 401, 403, 503])
def test_a_bucket_that_does_not_say_is_an_error(bucket, emulator, quick, ask, status):
    (bucket / "a").write_bytes(b"text")
    emulator.fault = lambda *_: status
    with pytest.raises(OSError):
        ask(bucket / "a")


def test_a_bucket_is_given_up_once(bucket, emulator, quick, monkeypatch, capsys):
    """What a training that ends still tries is not waited for again, until an answer comes."""
    emulator.fault = lambda *_: 503
    with patience():
        for seconds, is_patient in ((1.5, True), (1000.0, False)):
            monkeypatch.setattr(google, "PATIENCE", seconds)
            with pytest.raises(StorageError):
                write_whole(bucket / "a", b"text")
            assert ("trying again" in capsys.readouterr().err) is is_patient
        emulator.fault = lambda *_: 404
        assert not (bucket / "a").exists()
        left = [503] * 9
        emulator.fault = lambda *_: left.pop() if left else None
        write_whole(bucket / "a", b"text")
    assert not left


def test_errors_of_logging_in_are_repeated_only_if_they_may_pass(bucket, quick, monkeypatch):
    expired, passing = RefreshError("expired"), RefreshError("at times", retryable=True)
    no_answer = RefreshError("of the metadata server")
    no_answer.__cause__ = TransportError("no network")
    for error, cause, is_repeated in (
        (TransportError("no network"), None, True),
        (HttpError({"code": 401, "message": "Invalid Credentials"}), expired, False),
        (HttpError({"code": 401, "message": "Invalid Credentials"}), passing, True),
        (HttpError({"code": 401, "message": "Invalid Credentials"}), no_answer, True),
    ):
        error.__cause__, left = cause, [error] * 3
        with patience(), monkeypatch.context() as patch:
            patch.setattr(google.PatientFileSystem, "_get_headers", raises(left))
            with contextlib.nullcontext() if is_repeated else pytest.raises(PermissionError):
                (bucket / "a").write_bytes(b"text")
        assert len(left) == (0 if is_repeated else 2)


def raises(errors):
    headers = google.PatientFileSystem._get_headers

    def raise_or_return(system, *args, **options):
        if errors:
            raise errors.pop()
        return headers(system, *args, **options)

    return raise_or_return


def test_a_request_without_an_answer_is_sent_again(bucket, emulator, monkeypatch):
    monkeypatch.setattr(google, "_TIMEOUT", 1.0)
    monkeypatch.setattr(google, "_PAUSES", (0.01, 0.01))
    google.PatientFileSystem.clear_instance_cache()  # it has the time limit of its making
    answered = threading.Event()
    pending = [None] * 2
    emulator.fault = lambda *_: answered.wait(60) and 503 if pending and not pending.pop() else None
    try:
        write_whole(bucket / "a", b"text")
        assert not pending and contents(bucket) == {"a": b"text"}
    finally:
        answered.set()
        google.PatientFileSystem.clear_instance_cache()


def test_a_download_may_take_longer_than_an_upload(bucket, monkeypatch):
    (bucket / "a").write_bytes(b"text")
    monkeypatch.setattr(google, "_UPLOAD", 1e-9)
    assert (bucket / "a").read_bytes() == b"text"


def test_an_upload_that_nobody_reads_ends(monkeypatch):
    monkeypatch.setattr(google, "_UPLOAD", 0.5)
    monkeypatch.setattr(google, "_IMPATIENCE", 0.0)
    google.PatientFileSystem.clear_instance_cache()
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
            with pytest.raises(OSError):
                as_path("gs://abc/a").write_bytes(b"1" * 2**24)
    finally:
        google.PatientFileSystem.clear_instance_cache()


def test_what_was_lost_meanwhile_is_not_written(bucket, emulator, quick, monkeypatch):
    def lost():
        raise StorageError("the lock is lost")

    monkeypatch.setitem(file_systems.locks, "gs://other/run", lost)
    left = [503] * 3
    emulator.fault = lambda *_: left.pop() if left else None
    with patience():
        with pytest.raises(StorageError, match="^the lock is lost$"):
            write_whole(bucket / "a", b"text")
        assert len(left) == 2
        assert not (bucket / "a").exists() and not left  # reading needs no lock


def test_an_error_is_not_replaced_by_that_of_closing(bucket, emulator, quick):
    with pytest.raises(ZeroDivisionError):
        with open_to_append(bucket / "log") as file:
            append(file, b"one\n")
            emulator.fault = lambda *_: 503
            raise ZeroDivisionError


def test_what_is_appended_is_uploaded_now_and_then_and_at_the_end(bucket, monkeypatch):
    monkeypatch.setattr(appending, "_INTERVAL", 0.05)
    write_whole(bucket / "log", b"before\n")
    with open_to_append(bucket / "log") as file:
        append(file, b"one\n")
        for _ in range(200):
            if (bucket / "log").read_bytes() == b"before\none\n":
                break
        else:
            pytest.fail("nothing was uploaded")
        monkeypatch.setattr(appending, "_INTERVAL", 1e6)
        append(file, b"two\n")
        file.flush()
        assert (bucket / "log").read_bytes() == b"before\none\ntwo\n"
        append(file, b"three\n")
    assert (bucket / "log").read_bytes() == b"before\none\ntwo\nthree\n"


def fill(folder):
    with drafted(folder, last="config") as draft:
        (draft / "deep").mkdir()
        for name in ("a", "deep/b", "config"):
            (draft / name).write_text(name)


def test_a_folder_is_filled_completely_or_not_at_all(bucket, emulator, monkeypatch):
    whole = {"a": b"a", "config": b"config", "deep/b": b"deep/b"}
    fill(bucket / "one")
    assert contents(bucket / "one") == whole
    sent = []

    def killed_after(count):
        def fault(method, path):
            is_write = method in ("POST", "PUT", "DELETE")
            sent.extend([path] if is_write else [])
            return 403 if is_write and len(sent) > count else None

        return fault

    for count in range(4):  # the connection is lost after so many writes, and what undoes them
        folder = bucket / f"run-{count}"
        sent.clear()
        emulator.fault = killed_after(count)
        with pytest.raises(StorageError):
            fill(folder)
        emulator.fault = lambda *_: None
        found = contents(folder) if folder.exists() else {}
        assert "config" not in found
        assert set(found) <= {"a", "deep/b", *(name for name in found if "moves.json" in name)}
        assert {name.partition("/")[0] for name in found if "moves" not in name} <= set(
            moved_names(folder)
        )
        discard_draft(folder, last="config")
        assert contents(folder) == {}
        fill(folder)
        assert contents(folder) == whole


def test_programs_that_know_no_buckets_write_to_a_folder_that_is_uploaded(bucket, tmp_path):
    for folder in (bucket / "a", tmp_path / "a"):
        with written_folder(folder) as written:
            assert isinstance(os.fspath(written), str)
            (written / "deep").mkdir()
            (written / "deep" / "file").write_bytes(b"content")
        assert (folder / "deep" / "file").read_bytes() == b"content"


def test_manifest_finds_every_kind_of_damage_and_reads_nothing_to_do_so(bucket, emulator):
    for name in ("a", "deep/b"):
        write_whole(bucket / name, name * 100)
    manifest = Manifest.of(bucket, {"step": 1}, sync=True)
    assert manifest.files["a"] == (hashlib.md5(b"a" * 100).hexdigest(),)
    requests = []
    emulator.fault = lambda *request: requests.append(request)
    assert manifest.damage(bucket) is None and manifest.damage(bucket, others=True) is None
    assert not any("alt=media" in path for _, path in requests)
    write_whole(bucket / "a", "a" * 99 + "b")
    assert manifest.damage(bucket) == "a is not the file that was written: its MD5 differs"
    write_whole(bucket / "a", "a" * 100)
    write_whole(bucket / "c", "")
    assert manifest.damage(bucket) == "c does not belong to it"
    assert manifest.damage(bucket, others=True) is None
    (bucket / "deep" / "b").unlink()
    assert manifest.damage(bucket, others=True) == "deep/b is missing"


def test_a_copy_of_a_folder_is_verified_where_it_lies(bucket, tmp_path):
    """With MD5 on a disk, and with SHA-256 in a bucket, which is read for it."""
    (tmp_path / "a").write_bytes(b"content")
    write_whole(bucket / "a", b"content")
    of_bucket, of_disk = Manifest.of(bucket, {}), Manifest.of(tmp_path, {})
    assert of_bucket.damage(tmp_path) is None and of_disk.damage(bucket) is None
    (tmp_path / "a").write_bytes(b"Content")
    write_whole(bucket / "a", b"Content")
    assert of_bucket.damage(tmp_path) == "a is not the file that was written: its MD5 differs"
    assert of_disk.damage(bucket) == "a is not the file that was written: its SHA-256 differs"


def test_files_to_map_are_copied_to_this_machine_once(bucket, emulator, capsys):
    write_whole(bucket / "model" / "a.json", b"{}")
    write_whole(bucket / "model" / "b.bin", b"other")
    write_whole(bucket / "model" / "deep" / "c.json", b"deep")
    copy = on_disk(bucket / "model", ["*.json"])
    names = {path.name for path in copy.iterdir()} - {".lock", ".versions.json"}
    assert names == {"a.json"} and (copy / "a.json").read_bytes() == b"{}"
    assert f"downloading 2 bytes from {bucket / 'model'}" in capsys.readouterr().err
    downloads = []
    emulator.fault = lambda _, path: downloads.append(path) if "alt=media" in path else None
    assert on_disk(bucket / "model", ["*.json"]) == copy and downloads == []
    write_whole(bucket / "model" / "a.json", b"[]")  # of the same size
    (bucket / "model" / "deep" / "c.json").unlink()
    assert (on_disk(str(bucket / "model" / "a.json"))).read_bytes() == b"[]"
    assert on_disk(bucket / "model", ["*.json"]) == copy and len(downloads) == 1
    (bucket / "model" / "a.json").unlink()
    on_disk(bucket / "model", ["*.json"])
    assert not (copy / "a.json").exists()
    assert on_disk("models/x") == pathlib.Path("models/x")


def test_path_for_the_system_says_what_to_do(bucket):
    with pytest.raises(ConfigError, match="must be on a disk of this machine; copy it there"):
        open(bucket / "a")
