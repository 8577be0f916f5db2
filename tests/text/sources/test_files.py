"""Text files are opened, unpacked and read line by line; what cannot be read is named."""

import bz2
import gzip
import lzma
import pathlib
import sys

import pytest

from jaxformer.errors import ConfigError, DataError
from jaxformer.text import Documents
from jaxformer.text.sources import files
from tests.text.corpora.texts import zstd

CONTENT = b"\xef\xbb\xbfa\r\n\n b\rc\xe2\x80\xa8d\x0ce\n\xef\xbb\xbf\nlast"
LINES = ["a", "", " b\rc\u2028d\x0ce", "\ufeff", "last"]


def documents(file):
    rows = Documents.rows([str(file)])
    return ["".join(row.columns[0] for row in rows)]


READERS = {"documents": documents, "lines": lambda file: list(files.read_lines(file))}


@pytest.mark.parametrize(
    "name, pack",
    [
        ("a.txt", bytes), ("a.txt.gz", gzip.compress), ("a.txt.zst", zstd),
        ("a.txt.bz2", bz2.compress), ("a.txt.XZ", lzma.compress),
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


PACKED = gzip.compress(b"text of a file " * 7)
UNREADABLE = {
    "missing.txt": (None, "got 'missing.txt': No such file or directory; check its spelling"),
    "plain.gz": (b"text", "got 'plain.gz': Not a gzipped file.*; .* get the file again"),
    "cut.gz": (PACKED[:-9], "got 'cut.gz': Compressed file ended.*; .* get the file again"),
    "wrong.gz": (PACKED[:10] + b"\xff" * 9 + PACKED[19:], "got 'wrong.gz': Error -3"),
    "cut.xz": (lzma.compress(b"text of a file ")[:-3], "got 'cut.xz': Compressed file ended"),
    "cut.zst": (zstd(b"text of a file " * 7)[:-3], "got 'cut.zst': Truncated"),
    "latin.txt": (b"abc\n\xc3\xa9\n \xe9\n", "latin.txt:3: text must be UTF-8, got 0xE9 at byte 1"),
    "wide.txt": ("Grüße\n".encode("utf-16"), "wide.txt:1: text must be UTF-8, got 0x.*; .* iconv"),
    "wide_le.txt": ("text\n".encode("utf-16-le"), "wide_le.txt:1: text must be UTF-8, got 0x00"),
    "zip.txt": (b"PK\x03\x04\n\0", "zip.txt:2: text must be UTF-8, got 0x00 .* unpack an archive"),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch, reader, name):
    monkeypatch.chdir(tmp_path)
    content, rule = UNREADABLE[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rule) as error:
        reader(pathlib.Path(name))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a.zst", "a.parquet"])
def test_missing_package_is_named(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / name).write_bytes(b"text")
    with pytest.raises(
        ConfigError, match='needs pyarrow, .* install "jaxformer\\[data\\]"'
    ) as error:
        documents(tmp_path / name)
    assert isinstance(error.value.__cause__, ImportError)
