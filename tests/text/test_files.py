import gzip

import pytest

from jaxformer.errors import DataError
from jaxformer.text import files

CONTENT = b"\xef\xbb\xbfa\r\n\n b\rc\xe2\x80\xa8d\x0ce\n\xef\xbb\xbf\nlast"
LINES = ["a", "", " b\rc\u2028d\x0ce", "\ufeff", "last"]
READERS = {"text": files.read_text, "lines": lambda file: list(files.read_lines(file))}


@pytest.mark.parametrize("name, pack", [("a.txt", bytes), ("a.txt.gz", gzip.compress)])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_lines_end_at_newlines_only(tmp_path, name, pack, end):
    (tmp_path / name).write_bytes(pack(CONTENT + end))
    assert list(files.read_lines(tmp_path / name)) == LINES
    assert files.read_text(tmp_path / name) == (CONTENT + end).decode()[1:]


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
        ("folder", "got 'folder': Is a directory; check its spelling"),
        ("latin.txt", "must be UTF-8, got the byte 0xE9 at offset 11 of 'latin.txt'; convert it"),
        ("latin.gz", "must be UTF-8, got the byte 0xE9 at offset 11 of 'latin.gz'; convert it"),
        ("plain.gz", "whole gzip file, got the damaged 'plain.gz': Not a gzipped file.*; get it"),
        ("cut.gz", "whole gzip file, got the damaged 'cut.gz': Compressed file ended.*; get it"),
        ("wrong.gz", "whole gzip file, got the damaged 'wrong.gz': Error -3.*; get it again"),
        ("sum.gz", "whole gzip file, got the damaged 'sum.gz': CRC check failed.*; get it again"),
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
    }
    for file, content in contents.items():
        (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=rule) as error:
        reader(files.pathlib.Path(name))
    assert "\n" not in str(error.value)
