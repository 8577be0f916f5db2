import bz2
import codecs
import gzip
import io
import lzma
import os
import sys
import tarfile
import time
import zipfile

import pytest
import zstandard

from jaxformer.errors import ConfigError, DataError
from jaxformer.text.sources import files
from jaxformer.text.sources.document_files import read_pieces
from jaxformer.text.sources.record_files import BadRecords

CONTENT = b"\xef\xbb\xbfa\r\n\n b\rc\xe2\x80\xa8d\x0ce\n\xef\xbb\xbf\nlast"
LINES = ["a", "", " b\rc\u2028d\x0ce", "\ufeff", "last"]


def documents(file):
    return ["".join(piece.text for piece in read_pieces(file, BadRecords()))]


READERS = {"documents": documents, "lines": lambda file: list(files.read_lines(file))}


@pytest.mark.parametrize(
    "name, pack",
    [
        ("a.txt", bytes), ("a.txt.gz", gzip.compress), ("a.txt.zst", zstandard.compress),
        ("a.txt.bz2", bz2.compress), ("a.txt.xz", lzma.compress),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_lines_end_at_newlines_only(tmp_path, name, pack, end):
    (tmp_path / name).write_bytes(pack(CONTENT + end))
    assert list(files.read_lines(tmp_path / name)) == LINES
    text = (CONTENT + end).decode()[1:]
    assert documents(tmp_path / name) == [text.replace("\r\n", "\n").replace("\r", "\n")]


def test_blank_lines_at_the_end_are_lines(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\n\n\n")
    assert list(files.read_lines(tmp_path / "a.txt")) == ["a", "", ""]
    (tmp_path / "a.txt").write_bytes(b"")
    assert list(files.read_lines(tmp_path / "a.txt")) == []


def test_lines_are_read_one_at_a_time(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good\n\xff\n")
    assert next(files.read_lines(tmp_path / "a.txt")) == "good"


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    "name, rule",
    [
        ("missing.txt", "got 'missing.txt': No such file or directory; check its spelling"),
        ("missing.gz", "got 'missing.gz': No such file or directory; check its spelling"),
        ("folder", "got ('folder': Is a directory; check its|the folder 'folder'; try)"),
        ("latin.txt", "must be UTF-8, got the byte 0xE9 .*'latin.txt'"),
        ("latin.gz", "must be UTF-8, got the byte 0xE9 .*'latin.gz'"),
        ("plain.gz", "whole gzip file, got the damaged 'plain.gz': Not a gzipped file.*; get it"),
        ("cut.gz", "whole gzip file, got the damaged 'cut.gz': Compressed file ended.*; get it"),
        ("wrong.gz", "whole gzip file, got the damaged 'wrong.gz': Error -3.*; get it again"),
        ("sum.gz", "whole gzip file, got the damaged 'sum.gz': CRC check failed.*; get it again"),
        ("plain.xz", "whole xz file, got the damaged 'plain.xz': Input format not supp.*; get it"),
        (
            "cut.xz",
            "whole xz file, got the damaged 'cut.xz': Compressed file ended.*; get it again",
        ),
        (
            "plain.bz2",
            "whole bzip2 file, got the damaged 'plain.bz2': Invalid data.*; get it again",
        ),
        ("plain.zst", "whole Zstandard file, got the damaged 'plain.zst': .*; get it again"),
        ("cut.zst", "whole Zstandard file, got the damaged 'cut.zst': it ends within a frame; get"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch, reader, name, rule):
    monkeypatch.chdir(tmp_path)
    latin = b"\xef\xbb\xbfabc\n\xc3\xa9\n \xe9\n"
    packed = gzip.compress(b"text of a file " * 7)
    (tmp_path / "folder").mkdir()
    contents = {
        "latin.txt": latin,
        "latin.gz": gzip.compress(latin),
        "plain.gz": b"text",
        "cut.gz": packed[:-9],
        "wrong.gz": packed[:10] + b"\xff" * 9 + packed[19:],
        "sum.gz": packed[:-8] + b"\0" * 8,
        "plain.xz": b"text",
        "cut.xz": lzma.compress(b"text of a file ")[:-3],
        "plain.bz2": b"text",
        "plain.zst": b"text of a file",
        "cut.zst": zstandard.compress(b"text of a file " * 7)[:-3],
    }
    for file, content in contents.items():
        (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=rule) as error:
        reader(files.pathlib.Path(name))
    assert "\n" not in str(error.value)


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "text")
    return file.getvalue()


def tarred():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    return file.getvalue()


NOT_TEXT = {
    "UTF-16 in 'a.txt'; convert it with: iconv -f UTF-16 -t UTF-8": "Grüße\n".encode("utf-16"),
    "UTF-16 in 'a.txt'; convert": codecs.BOM_UTF16_BE + "日本\n".encode("utf-16-be"),
    "UTF-16LE in 'a.txt'; convert it with: iconv -f UTF-16LE": "Grüße\n".encode("utf-16-le"),
    "UTF-16BE in 'a.txt'; convert it with: iconv -f UTF-16BE": "Grüße\n".encode("utf-16-be"),
    "UTF-32 in 'a.txt'; convert it with: iconv -f UTF-32": "Grüße\n".encode("utf-32"),
    "the byte 0xFC in 'a.txt', line 1, byte 2; .* iconv -f WINDOWS-1252": "Grüße".encode("cp1252"),
    "the byte 0x00 in 'a.txt', line 2, byte 7; remove the NUL": b"text\nof\0binary numbers\n",
    "a zip archive in 'a.txt'; unpack it": zipped(),
    "a 7-Zip archive in 'a.txt'; unpack it": b"7z\xbc\xaf\x27\x1c\0\4",
    "a RAR archive in 'a.txt'; unpack it": b"Rar!\x1a\x07\1\0",
    "gzip data in 'a.txt'; unpack it, or let its name end in .gz": gzip.compress(b"text"),
    "Zstandard data in 'a.txt'; .* end in .zst": zstandard.compress(b"text"),
    "xz data in 'a.txt'; unpack it, or let its name end in .xz": lzma.compress(b"text"),
    "bzip2 data in 'a.txt'; unpack it, or let its name end in .bz2": bz2.compress(b"text"),
    "a tar archive in 'a.txt.gz'; unpack it": tarred(),
    "a PDF file in 'a.txt'; extract its text": b"%PDF-1.7\n",
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("rule", NOT_TEXT)
def test_what_is_not_utf8_text_is_named(tmp_path, monkeypatch, reader, rule):
    monkeypatch.chdir(tmp_path)
    file = files.pathlib.Path("a.txt.gz" if "'a.txt.gz'" in rule else "a.txt")
    file.write_bytes(NOT_TEXT[rule])
    with pytest.raises(DataError, match=f"text must be UTF-8, got {rule}"):
        reader(file)


def test_utf16_is_no_record_that_can_be_skipped(tmp_path):
    (tmp_path / "a.jsonl").write_bytes('{"text": "a"}\n'.encode("utf-16-le"))
    with pytest.raises(DataError, match="got UTF-16LE in .*a.jsonl"):
        list(read_pieces(tmp_path / "a.jsonl", BadRecords("skip")))


def test_lines_of_a_file_without_newlines_end_at_carriage_returns(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\ta\r\rtwo\tb\r")
    assert list(files.read_lines(tmp_path / "a.txt")) == ["one\ta", "", "two\tb"]
    assert documents(tmp_path / "a.txt") == ["one\ta\n\ntwo\tb\n"]
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\r{"text": "b"}\r')
    with pytest.raises(
        DataError, match=r"a.jsonl', line 1, must be JSON: .*; end lines in \\n, not in"
    ):
        documents(tmp_path / "a.jsonl")


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_only_regular_files_are_read(tmp_path, reader, suffix):
    """Others could be waited for, or read from, without end."""
    made = {name: tmp_path / f"{name}{suffix}" for name in ("fifo", "device", "circle", "nul\0")}
    os.mkfifo(made["fifo"])
    made["device"].symlink_to("/dev/zero")
    made["circle"].symlink_to(made["circle"])
    for name, rule in {
        "fifo": "it is a FIFO, not a regular file",
        "device": "it is a device, not a regular file",
        "circle": "Too many levels of symbolic links",
        "nul\0": "a path must have no NUL",
    }.items():
        with pytest.raises(DataError, match=rule):
            reader(made[name])


def test_link_to_a_file_is_read(tmp_path):
    (tmp_path / "file.txt").write_bytes(CONTENT)
    (tmp_path / "link.txt").symlink_to("file.txt")
    assert list(files.read_lines(tmp_path / "link.txt")) == LINES


def test_frames_of_zstandard_follow_each_other(tmp_path):
    frames = zstandard.compress(b"one\n") + zstandard.compress(b"two\n")
    (tmp_path / "a.txt.zst").write_bytes(frames)
    assert list(files.read_lines(tmp_path / "a.txt.zst")) == ["one", "two"]


def test_endless_line_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MAX_LINE", 7)
    (tmp_path / "a.txt").write_bytes(b"six---\nseven--\n")
    lines = files.read_lines(tmp_path / "a.txt")
    assert next(lines) == "six---"
    with pytest.raises(DataError, match="at most 7 bytes, got more in .* from offset 7 on"):
        next(lines)


@pytest.mark.parametrize("package, name", [("zstandard", "a.zst"), ("pyarrow", "a.parquet")])
def test_missing_packages_are_named(tmp_path, monkeypatch, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / name).write_bytes(b"text")
    with pytest.raises(ConfigError, match=f'needs {package}, .* install "jaxformer\\[data\\]"'):
        documents(tmp_path / name)


def test_message_of_a_missing_file_needs_no_working_folder(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(DataError, match="a working folder that has been deleted"):
        next(files.read_lines(files.pathlib.Path("a.txt")))


def test_frame_that_unpacks_to_much_is_read_in_linear_time(tmp_path):
    size = 2**27  # from one read of the packed file; a copy of the rest for each part took 8 s
    path = tmp_path / "text.zst"
    path.write_bytes(zstandard.compress(bytes(size)))
    start = time.perf_counter()
    with files.opened(path) as stream:
        assert sum(len(part) for part in iter(lambda: stream.read(2**17), b"")) == size
    assert time.perf_counter() - start < 3


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("GZ", gzip.compress), ("Zst", zstandard.compress), ("XZ", lzma.compress)],
)
def test_suffix_of_a_packed_file_may_be_in_capitals(tmp_path, suffix, pack):
    path = tmp_path / f"text.txt.{suffix}"
    path.write_bytes(pack(b"one\ntwo\n"))
    assert list(files.read_lines(path)) == ["one", "two"]
