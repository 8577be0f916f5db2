"""Streams of any random-access source, and the batches that are made of them."""

import numpy as np
import pytest

from jaxformer.errors import DataError
from jaxformer.text import (
    Batches,
    Host,
    MaskedBatches,
    PackedDocuments,
    Tokenizer,
    Windows,
    build_stream,
    byte_tokenizer,
    with_mask,
)
from jaxformer.text.store.arrays import JoinedArray

TEXTS = ["to be", "or not", "é", "that is the question"]
BYTES = byte_tokenizer()
END = BYTES.end_of_text
IDS = [BYTES.encode(one) for one in TEXTS]


class RandomAccess:
    """A source that has a length and elements by index, and nothing else, such as slices."""

    def __init__(self, elements):
        self.elements = elements

    def __len__(self):
        return len(self.elements)

    def __getitem__(self, index):
        assert type(index) is int and 0 <= index < len(self)
        return self.elements[index]


SOURCES = {
    "texts": (TEXTS, "text"),
    "dicts of texts": ([{"text": one, "id": 3} for one in TEXTS], "text"),
    "other field": ([{"body": one} for one in TEXTS], "body"),
    "arrays": (IDS, "text"),
    "lists": ([one.tolist() for one in IDS], "text"),
    "tuples of NumPy": ([tuple(one) for one in IDS], "text"),
    "dicts of lists": ([{"input_ids": one.tolist()} for one in IDS], "input_ids"),
    "ended": ([np.append(one, END) for one in IDS], "text"),
    "mixed": ([TEXTS[0], IDS[1], {"text": TEXTS[2]}, IDS[3].tolist()], "text"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_is_the_same_stream(name):
    elements, field = SOURCES[name]
    stream = build_stream(RandomAccess(elements), BYTES, field=field)
    expected = [token for ids in IDS for token in [*ids.tolist(), END]]
    assert stream.tokens.tolist() == expected and stream.tokens.dtype == np.uint16
    assert stream.offsets.tolist() == [0, 6, 13, 16]
    whole = build_stream(np.array(expected), BYTES)
    assert whole.offsets.tolist() == stream.offsets.tolist()


def test_rows_of_a_matrix_are_documents():
    stream = build_stream(np.array([[5, 3], [2, 1]]))
    assert stream.tokens.tolist() == [5, 3, 2, 1] and stream.offsets.tolist() == [0, 2]


def test_single_document_stays_as_it_is():
    assert build_stream([[97, 98]], BYTES).tokens.tolist() == [97, 98]
    assert build_stream([[97, END]], BYTES).tokens.tolist() == [97, END]


@pytest.mark.parametrize("shard", [False, True])
def test_one_array_is_a_stream_that_stays_where_it_is(tmp_path, shard):
    np.array([97, END, 98, 99], np.uint16).tofile(tmp_path / "a.bin")
    tokens = np.memmap(tmp_path / "a.bin", np.uint16, mode="r")
    tokens = JoinedArray([tokens[:1], tokens[1:]]) if shard else tokens
    stream = build_stream(tokens, BYTES)
    assert stream.tokens is tokens and stream.offsets.tolist() == [0, 2]
    assert build_stream(tokens).offsets.tolist() == [0]


@pytest.mark.parametrize("name", ["texts", "dicts of lists", "array"])
def test_batches_are_those_of_texts(name):
    expected = build_stream(TEXTS, BYTES)
    if name == "array":
        stream = build_stream(expected.tokens.astype(np.int64), BYTES)
    else:
        elements, field = SOURCES[name]
        stream = build_stream(RandomAccess(elements), BYTES, field=field)
    masked = with_mask(BYTES)
    for cut in (Windows, PackedDocuments):
        for host in (Host(), Host(1, 2)):
            pairs = [Batches(cut(one, 5), 4, seed=3, host=host)[17] for one in (stream, expected)]
            np.testing.assert_equal(*pairs)
            hidden = [
                MaskedBatches(
                    Batches(cut(one, 5), 4, seed=3, host=host), seed=1, mask_token=masked.mask,
                    vocab_size=masked.vocab_size, host=host,
                )[2]
                for one in (stream, expected)
            ]  # fmt: skip
            np.testing.assert_equal(*hidden)
        found, right = (list(Batches(cut(tokens, 5), 2).once()) for tokens in (stream, expected))
        np.testing.assert_equal(found, right)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (["a", None], "element 1 of a source must be a text or integers .* got None; change"),
        (["a", 1.5], "element 1 .* got 1.5"),
        ([[1.5, 2.0]], r"element 0 .* got \[1.5, 2.0\]"),
        ([[[1, 2], [3, 4]]], r"element 0 .* got \[\[1, 2\], \[3, 4\]\]"),
        ([["a", "b"]], r"element 0 .* got \['a', 'b'\]"),
        ([3, 5], "element 0 .* got 3; change"),
        ([b"abc"], "element 0 .* got b'abc'"),
        (
            [{"body": "a"}, {}],
            "element 0 .* under 'text', got {'body': 'a'}; change it, or pass fi",
        ),
        ("abc", "must have documents by index, such as a list of texts, got str; make a list"),
        ({"train": ["a"]}, "must have documents by index, .*, got dict"),
        (iter(["a"]), "must have documents by index, .*, got list_iterator"),
        (np.array([0.5]), "element 0 .* got .*0.5"),
        ([[97], [97, 300]], "vocab_size=257, got 300 at index 1 of element 1; use the tokenizer"),
        (np.array([97, 300]), "vocab_size=257, got 300 at index 1 of the tokens"),
        (np.array([97, -1]), "vocab_size=257, got -1 at index 1 of the tokens"),
        ([], "a stream must have at least 2 tokens, got 0 from 0 documents"),
        (["a\ud800"], "must be valid Unicode"),
    ],
)
def test_wrong_source_is_one_line(source, message):
    with pytest.raises(DataError, match=message) as found:
        build_stream(source, BYTES)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("bad", [-1, 2**31])
def test_tokens_without_a_vocabulary_fit_a_device(bad):
    for source in ([[1, 2], [bad]], np.array([1, 2, bad])):
        with pytest.raises(DataError, match=rf"less than 2\*\*31, got {bad} at index"):
            build_stream(source)


def test_texts_need_a_tokenizer():
    with pytest.raises(DataError, match="texts need a tokenizer, got none for 'a text'"):
        build_stream([[1, 2], "a text"])


def test_unknown_character_is_named_though_others_are_tokens():
    characters = Tokenizer.from_json(BYTES.to_json())
    with pytest.raises(DataError, match="lone surrogate"):
        build_stream([[1, 2], "\ud800", [3]], characters)
