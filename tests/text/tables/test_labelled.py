import gzip

import numpy as np
import pytest

from jaxformer.errors import DataError
from jaxformer.text import Labelled, byte_tokenizer, encode_labelled
from tests.text.corpora.texts import split

BYTE = byte_tokenizer()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_several_files_follow_each_other_and_are_named(folder):
    (folder / "a.tsv").write_bytes(b"A\tx\n\tx\n")
    (folder / "b.tsv.gz").write_bytes(gzip.compress(b"none\nB\ty"))
    labelled, counts = Labelled.read(["a.tsv", "b.tsv.gz"])
    assert labelled == Labelled(("A", "B"), ("x", "y"), lines=("a.tsv:1", "b.tsv.gz:2"))
    assert str(counts) == (
        "4 texts read, 2 kept; 1 empty (line a.tsv:2), 1 misaligned (line b.tsv.gz:1)"
    )


def test_classes_must_be_two():
    with pytest.raises(DataError, match=r"at least 2 classes, got 1 in 3 texts: \['x'\]; add"):
        _ = Labelled(tuple("abc"), ("x",) * 3).classes


def test_examples_have_tokens_and_the_index_of_the_label():
    examples = encode_labelled(Labelled(("né", "a"), ("x", "y")), BYTE, ["z", "y", "x"])
    assert [{name: a.tolist() for name, a in e.items()} for e in examples] == [
        {"tokens": [110, 195, 169], "lengths": 3, "labels": 2},
        {"tokens": [97], "lengths": 1, "labels": 1},
    ]
    assert all(type(a) is np.ndarray and a.dtype == np.int32 for e in examples for a in e.values())


def test_encoding_names_a_label_that_is_no_class():
    labelled = Labelled(("a", "b"), ("x", "w"), lines=("3", "b.tsv:7"))
    rule = r"one of the classes \['x', 'y'\], got 'w' in line b.tsv:7; correct it"
    with pytest.raises(DataError, match=rule):
        encode_labelled(labelled, BYTE, ["x", "y"])


def test_text_that_is_not_valid_is_split_and_reported_when_it_is_encoded():
    labelled = Labelled(("a", "b", "\ud800"), ("x", "y", "x"))
    train, validation, _ = split(labelled, 0.4)
    assert {*train.texts, *validation.texts} == set(labelled.texts)


def test_text_that_repeats_is_held_out_if_nothing_else_is():
    labelled = Labelled(("a", "b") * 10, ("x", "y") * 10)
    train, validation, counts = split(labelled, 0.1)
    assert (len(train), len(validation), counts.kept) == (10, 10, 20)
