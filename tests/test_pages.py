"""What the pages for who changes the library name exists, so that they cannot rot unseen."""

import functools
import pathlib
import re

import pytest

PAGES = {
    name: pathlib.Path(name).read_text(encoding="utf-8")
    for name in ("ARCHITECTURE.md", "CONTRIBUTING.md")
}
FENCE = re.compile(r"^ *```.*?^ *```$", flags=re.DOTALL | re.MULTILINE)
FILE = re.compile(r"(?<![\w/}])[\w.][\w.*/-]*\.(?:py|md|toml|cff|yml)\b")
FOLDERS = (pathlib.Path(), pathlib.Path("jaxformer"))


def spans(page):
    """What stands between single backticks."""
    return sorted(set(re.findall(r"`([^`]+)`", FENCE.sub("", PAGES[page]))))


@functools.cache
def words_of_the_code():
    files = [
        path for folder in ("jaxformer", "tests") for path in pathlib.Path(folder).rglob("*.py")
    ]
    files.remove(pathlib.Path("tests/test_pages.py"))
    return set(re.findall(r"\w+", "\n".join(path.read_text(encoding="utf-8") for path in files)))


@pytest.mark.parametrize("page", PAGES)
def test_named_files_and_folders_exist(page):
    folders = [span for span in spans(page) if re.fullmatch(r"[\w.-]+/[\w./-]*", span)]
    named = {*FILE.findall(PAGES[page]), *folders}
    assert len(named) >= 10
    assert [path for path in sorted(named) if not any(any(f.glob(path)) for f in FOLDERS)] == []


@pytest.mark.parametrize("page", PAGES)
def test_named_functions_and_classes_exist(page):
    # Every part of dotted names, and private names in the sketches, but for their own.
    names = [name for name in spans(page) if re.fullmatch(r"[A-Za-z_][\w.]*", name)]
    names = [name for name in names if not FILE.fullmatch(name)]
    assert len(names) >= 20
    names += set(re.findall(r"\b_\w+", PAGES[page])) - set(re.findall(r"def (\w+)", PAGES[page]))
    parts = {part for name in names for part in name.split(".")}
    assert sorted(parts - words_of_the_code()) == []
