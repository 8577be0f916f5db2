import collections
import gzip

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.errors import DataError
from jaxformer.text import Pairs, Tokenizer, byte_tokenizer, encode_pairs, train_character
from tests.text.corpora.texts import split

BYTE = byte_tokenizer()
WITHOUT_END = Tokenizer(tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0})))
# A normalizer that leaves out every x.
SILENCER = '"normalizer": {"type": "Replace", "pattern": {"String": "x"}, "content": ""}'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pairs_are_read_from_one_file_of_columns(folder):
    rows = [
        "\ufeffA dog. \tEin Hund.",
        "no tab",
        "a\tb\tc",
        "\tb",
        "a\t\u00a0",
        "",
        "A\u2028b\r\tc",
    ]
    (folder / "a.tsv").write_bytes("\r\n".join(rows).encode())
    pairs, counts = Pairs.read(["a.tsv"])
    assert pairs == Pairs(("A dog.", "A\u2028b"), ("Ein Hund.", "c"), lines=("1", "7"))
    assert str(counts) == "7 pairs read, 2 kept; 2 empty (lines 4, 5), 3 misaligned (lines 2, 3, 6)"


def test_pairs_are_read_from_two_files_line_by_line(folder):
    (folder / "a.en.gz").write_bytes(gzip.compress("\ufeffone\u2028\n\n a\ttab \nfour\n".encode()))
    (folder / "a.de").write_bytes("\ufeffeins\r\nzwei\r\ndrei\r\n \x85".encode())
    pairs, counts = Pairs.read(["a.en.gz", "a.de"])
    assert pairs == Pairs(("one", "a\ttab"), ("eins", "drei"), lines=("1", "3"))
    assert str(counts) == "4 pairs read, 2 kept; 2 empty (lines 2, 4)"


@pytest.mark.parametrize(
    "paths, rule",
    [
        ("a.tsv", "a list of one TSV file, or .*, got 'a.tsv'; name one or two"),
        (["a", "b", "c"], r"a list of one TSV file, or .*, got \['a', 'b', 'c'\]; name one or two"),
        (["long", "short"], "number of lines, got only 2 in 'short'; give files"),
        (["blank"], "got 'blank': 2 pairs read, 0 kept; 1 empty .*; each line must be source, tab"),
        (
            ["short", "blanks"],
            "got 'short' and 'blanks': 2 .* line N of the second is the translation of line N",
        ),
    ],
)
def test_reading_names_what_is_wrong(folder, paths, rule):
    contents = {"long": b"x\n" * 1_003, "short": b"a\nb", "blank": b"a\t\nb\n", "blanks": b"\n \n"}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=rule) as error:
        Pairs.read(paths)
    assert "\n" not in str(error.value)


def test_pairs_must_be_as_many_on_both_sides():
    with pytest.raises(DataError, match="same number of rows, got 2 sources, 1 targets, 2 lines"):
        Pairs(("a", "b"), ("c",))
    with pytest.raises(DataError, match="same number of rows, got 1 sources, 1 targets, 2 lines"):
        Pairs(("a",), ("c",), lines=("1", "2"))
    assert Pairs(("a", "b"), ("c", "d")).lines == ("1", "2")


def test_examples_have_the_end_of_text_where_it_starts_and_ends():
    source_tokenizer = train_character(["abc"])  # Its end of text is 3.
    pairs = Pairs(("ab", "cba"), ("né", "x"), lines=("5", "7"))
    examples = encode_pairs(pairs, source_tokenizer, BYTE)
    expected = [
        {
            "source_tokens": [0, 1, 3],
            "tokens": [256, 110, 195, 169],
            "labels": [110, 195, 169, 256],
            "source_lengths": 3,
            "lengths": 4,
        },
        {
            "source_tokens": [2, 1, 0, 3],
            "tokens": [256, 120],
            "labels": [120, 256],
            "source_lengths": 4,
            "lengths": 2,
        },
    ]
    assert [{name: a.tolist() for name, a in e.items()} for e in examples] == expected
    assert all(type(a) is np.ndarray and a.dtype == np.int32 for e in examples for a in e.values())


def test_pair_without_tokens_has_no_example():
    silent = Tokenizer.from_json(BYTE.to_json().replace('"normalizer": null', SILENCER))
    first, second = encode_pairs(Pairs(("aa", "a"), ("xxx", "b")), BYTE, silent)
    assert first is None and second["lengths"] == 2


@pytest.mark.parametrize("tokenizers_", [(WITHOUT_END, BYTE), (BYTE, WITHOUT_END)])
def test_encoding_needs_an_end_of_text(tokenizers_):
    with pytest.raises(DataError, match="must have an end of text, got one without; name"):
        encode_pairs(Pairs(("a",), ("a",)), *tokenizers_)


@pytest.mark.parametrize("fraction", [0.1, 0.37, 0.9])
def test_split_takes_a_fraction_by_the_hash_of_the_source(fraction):
    pairs = Pairs(tuple(f"s{i}" for i in range(101)), tuple(f"t{i}" for i in range(101)))
    train, validation, _ = split(pairs, fraction)
    assert len(validation) == round(fraction * 101)
    rows = [*zip(*pairs.columns, pairs.lines, strict=True)]
    sides = [[*zip(*side.columns, side.lines, strict=True)] for side in (train, validation)]
    assert sorted(sides[0] + sides[1], key=rows.index) == rows
    assert all(side == sorted(side, key=rows.index) for side in sides)
    _, again, _ = split(pairs.take(range(100, -1, -1)), fraction)
    assert {*again.sources} == {*validation.sources}


sentences = st.sampled_from("abcdefghijk")


@settings(deadline=None, max_examples=100)
@given(
    rows=st.lists(st.tuples(sentences, sentences), min_size=1, max_size=23),
    fraction=st.floats(0.01, 0.99),
)
def test_split_never_trains_on_a_source_of_validation(rows, fraction):
    pairs = Pairs(*zip(*rows, strict=True))
    try:
        train, validation, counts = split(pairs, fraction)
    except DataError as error:
        assert "both sides of a split must have pairs" in str(error)
        return
    assert not set(train.sources) & set(validation.sources)
    most = max(collections.Counter(pairs.sources).values())  # pairs of one source stay together
    assert abs(len(validation) - fraction * len(pairs)) < most
    assert counts.kept == len(pairs) == len(train) + len(validation)
