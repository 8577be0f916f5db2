"""What the pages name exists, and so does what they link to, so that they cannot rot unseen."""

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
FOLDERS = [pathlib.Path(name) for name in (".", "jaxformer", "jaxformer/text")]


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


def without_fences(path):
    return FENCE.sub("", path.read_text(encoding="utf-8"))


@functools.cache
def anchors(path):
    """The ids of a page's headings, as GitHub and the documentation make them."""
    headings = re.findall(r"^#+ (.+)$", without_fences(path), flags=re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_links_between_pages_reach_a_heading():
    pages = [*pathlib.Path().glob("*.md"), *pathlib.Path("docs").glob("*.md")]
    links = [
        (page, *target.partition("#")[::2])
        for page in pages
        for target in re.findall(r"\]\(((?!https?:)[^)\s]*)\)", without_fences(page))
    ]
    assert sum(bool(anchor) for _, _, anchor in links) >= 20
    broken = []
    for page, name, anchor in links:
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{page}: {name}#{anchor}")
    assert broken == []
