import errno
import json
import os

import pytest

from jaxformer.errors import CheckpointError
from jaxformer.storage import (
    Manifest,
    read_manifest,
    read_whole,
    remove_drafts,
    write_manifest,
    write_whole,
)


@pytest.fixture
def folder(tmp_path):
    """A folder of three files, one of them two folders down."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("one", "a/two", "a/b/three"):
        write_whole(tmp_path / name, f"the text of {name}")
    return tmp_path


def test_file_that_cannot_be_written_stays_as_it_was(tmp_path, monkeypatch):
    write_whole(tmp_path / "file", "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        write_whole(tmp_path / "file", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert read_whole(tmp_path / "file") == b"old"


def test_drafts_of_a_killed_process_are_removed_and_nothing_else(folder):
    (folder / ".0123456789abcdef.draft").write_text("half")
    (folder / ".config.tmp").write_text("someone's")
    manifest = Manifest.of(folder, {}, ignore=(".config.tmp",))
    assert set(manifest.files) == {"one", "a/two", "a/b/three"}
    remove_drafts(folder)
    assert sorted(path.name for path in folder.iterdir()) == [".config.tmp", "a", "one"]


def test_manifest_read_is_the_manifest_written(folder):
    manifest = Manifest.of(folder, {"layout": 2, "loss": 0.1, "name": "ಕನ್ನಡ"})
    write_manifest(folder / "manifest.json", manifest)
    assert read_manifest(folder / "manifest.json") == manifest
    assert manifest.damage(folder, ignore=("manifest.json",)) is None


@pytest.mark.parametrize(
    ("spoil", "damage"),
    [
        (lambda folder: (folder / "a/two").write_text("the text of a/twp"), "a/two is not the"),
        (lambda folder: (folder / "a/two").write_text("the text"), "a/two is not the file"),
        (lambda folder: (folder / "a/two").unlink(), "a/two is missing"),
        (lambda folder: (folder / "a/b/four").touch(), "a/b/four does not belong to it"),
        (lambda folder: (folder / "one").replace(folder / "a/two"), "one is missing"),
        (lambda folder: (folder / "link").symlink_to("one"), "link does not belong to it"),
        (lambda folder: os.mkfifo(folder / "pipe"), "pipe does not belong to it"),
        (
            lambda folder: (folder / "one").unlink() or os.mkfifo(folder / "one"),
            "one cannot be read",
        ),
    ],
)
def test_manifest_names_what_is_wrong_with_a_folder(folder, spoil, damage):
    manifest = Manifest.of(folder, {})
    spoil(folder)
    assert damage in manifest.damage(folder)


def test_manifest_may_accept_two_contents_of_a_file_that_is_being_replaced(folder):
    old = Manifest.of(folder, {}).files["one"]
    write_whole(folder / "one", "new")
    new = Manifest.of(folder, {})
    manifest = Manifest({}, {**new.files, "one": (*old, *new.files["one"])})
    assert manifest.damage(folder) is None
    write_whole(folder / "one", "the text of one")
    assert manifest.damage(folder) is None
    assert new.damage(folder) is not None


def test_every_changed_bit_of_a_manifest_is_found(folder):
    path = folder / "manifest.json"
    manifest = Manifest.of(folder, {"layout": 2, "loss": 2.5})
    write_manifest(path, manifest)
    data = path.read_bytes()
    silent = []
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            # A changed space, say, is no harm.
            if read_manifest(path) != manifest:
                silent.append(bit)
        except CheckpointError:
            pass
    assert silent == []


@pytest.mark.parametrize(
    "text", ["", "[]", "1", '{"sha256": 1}', "[" * 100_000, '{"files": {}}', json.dumps({})]
)
def test_manifest_that_is_none_is_one_clear_error(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"manifest\.json is damaged: "):
        read_manifest(tmp_path / "manifest.json")


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    """Nor is a link to it, such as /dev/stdout."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    for name in ("fifo", "link"):
        with pytest.raises(OSError, match="it is a FIFO, not a regular file"):
            write_whole(tmp_path / name, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "link"]
    assert (tmp_path / "fifo").is_fifo() and (tmp_path / "link").is_symlink()
