import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.errors import DataError
from jaxformer.text import Corpus, Documents
from jaxformer.text.sources import documents as document_paths
from jaxformer.text.sources.documents import without_repeats

LONG = "This paragraph is longer than forty characters."
LINES = [f"line {i} of {name}\n" for name in "abcde" for i in range(7)]


def read_documents(paths):
    return list(Documents.read(paths)[0].texts)


def split_documents(documents, fraction):
    corpus = Corpus.of(Documents.of(documents), fraction)
    return list(corpus.train.texts), list(corpus.validation.texts)


def test_files_are_read_in_order_and_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner" / "folder.txt").mkdir(parents=True)
    for name in ("c.txt", "b.md", "a.txt", "inner/d.txt", "[x].txt"):
        (tmp_path / name).write_text(f"text of {name}")
    unsorted = document_paths.glob.glob
    monkeypatch.setattr(
        document_paths.glob, "glob", lambda *args, **kwargs: sorted(unsorted(*args, **kwargs))[::-1]
    )
    texts = read_documents(["c.txt", "*.txt", f"{tmp_path}/c.txt", "[x].txt", "**/*"])
    names = ["c.txt", "[x].txt", "a.txt", "b.md", "inner/d.txt"]
    assert texts == [f"text of {name}" for name in names]


@pytest.mark.parametrize(
    "paths, rule",
    [
        ([], r"list of text files or patterns, got \[\]; name one"),
        ("good.txt", "list of text files or patterns, got 'good.txt'"),
        (
            ["good.txt", "*.rst"],
            r"got '\*\.rst', which matches none in /.*; check its spelling",
        ),
        (["fold*"], r"got 'fold\*', which matches none"),
        (["missing.txt"], "got 'missing.txt': No such file or directory; check its spelling"),
        (["folder"], "must be a file .*, got 'folder': Is a directory"),
        (["empty.txt"], "must have text, got the empty 'empty.txt'; leave it out"),
        (["mark.txt"], "must have text, got the empty 'mark.txt'"),
    ],
)
def test_reading_names_what_is_wrong(tmp_path, monkeypatch, paths, rule):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, content in {"good": b"a", "empty": b"", "mark": b"\xef\xbb\xbf\n"}.items():
        (tmp_path / f"{name}.txt").write_bytes(content)
    with pytest.raises(DataError, match=rule) as error:
        read_documents(paths)
    assert "\n" not in str(error.value)


def test_single_document_is_split_into_head_and_tail_at_the_nearest_line():
    text = "".join(LINES)
    (training,), (validation,) = split_documents([text], 0.2)
    assert training + validation == text
    assert training.endswith("\n")
    assert abs(len(validation) - 0.2 * len(text)) <= len(LINES[0]) / 2


def test_single_line_is_split_at_a_space_or_between_characters():
    assert split_documents(["abcd ef ghij"], 0.4) == (["abcd ef"], [" ghij"])
    assert split_documents(["abcdefghij\n"], 0.3) == (["abcdefgh"], ["ij\n"])


lines = st.lists(st.sampled_from(["a\n", "bb\n", "ccccc\n"]), min_size=1, max_size=7)


@settings(deadline=None, max_examples=100)
@given(
    documents=st.lists(lines.map("".join), min_size=1, max_size=7, unique=True),
    fraction=st.floats(0.01, 0.99),
)
def test_split_keeps_every_character_and_cuts_at_most_one(documents, fraction):
    try:
        training, validation = split_documents(documents, fraction)
    except DataError as error:  # too little text for the fraction
        assert "both sides of a split must have documents" in str(error)
        return
    assert all(training) and all(validation)
    assert len(training) + len(validation) <= len(documents) + 1
    assert sorted("".join(training + validation)) == sorted("".join(documents))


def test_paragraphs_that_documents_repeat_are_kept_once():
    documents = [
        f"head {i}\n\n  {LONG}\n \n\nshort\n\n{LONG} Number {i}, and longer." for i in range(5)
    ]
    first, *rest = without_repeats(documents)
    assert first == documents[0]
    for i, text in enumerate(rest, 1):
        assert text == f"head {i}\n\nshort\n\n{LONG} Number {i}, and longer."
    assert without_repeats([LONG, LONG, "more"]) == [LONG, "more"]


@pytest.mark.parametrize("fraction", [1.0, -0.1, float("nan")])
def test_split_refuses_a_fraction_out_of_range(fraction):
    with pytest.raises(DataError, match=f"at least 0 and less than 1, got {fraction}; 0.1"):
        split_documents(["abc"], fraction)


@pytest.mark.parametrize(
    "documents, side",
    [
        (["a"], "validation side with validation_fraction=0.4 from 1 documents, 1 bytes"),
        ([LONG, LONG], "validation side with .* from 2 documents, 94 bytes"),
    ],
)
def test_split_refuses_an_empty_side(documents, side):
    with pytest.raises(DataError, match=f"both sides .* got an empty {side}.*; add data"):
        split_documents(documents, 0.4)
