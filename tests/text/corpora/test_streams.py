"""Streams of any random-access source."""

import numpy as np
import pytest

from jaxformer.errors import DataError
from jaxformer.text import build_stream, byte_tokenizer
from jaxformer.text.store.arrays import JoinedArray, token_dtype

TEXTS = ["to be", "or not", "é", "that is the question"]
BYTES = byte_tokenizer()
END = BYTES.end_of_text
IDS = [BYTES.encode(text) for text in TEXTS]


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
    "texts": TEXTS,
    "arrays": IDS,
    "lists": [ids.tolist() for ids in IDS],
    "ended": [np.append(ids, END) for ids in IDS],
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_is_the_same_stream(name):
    stream = build_stream(RandomAccess(SOURCES[name]), BYTES)
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


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([[1.5, 2.0]], r"must all be texts, or .*, got \[1.5, 2.0\] as element 0; pass a list"),
        ([[[1, 2], [3, 4]]], r"got \[\[1, 2\], \[3, 4\]\] as element 0"),
        ([["a", "b"]], r"got \['a', 'b'\] as element 0"),
        ([[3], 5], "got 5 as element 1"),
        (["a", None], "got None as element 1"),
        ([{"text": "a"}], "got {'text': 'a'} as element 0"),
        ("abc", r"a source must be a list of texts, got 'abc'; pass \[text\]"),
        (np.array([0.5]), "got .*0.5.* as element 0"),
        ([[97], [97, 300]], "vocab_size=257, got 300 at index 1 of element 1; use the tokenizer"),
        (np.array([97, 300]), "vocab_size=257, got 300 at index 1 of the tokens"),
        (np.array([97, -1]), "vocab_size=257, got -1 at index 1 of the tokens"),
        ([], "a stream must have at least 2 tokens, got 0 from 0 documents"),
        (["a\ud800"], "must be valid Unicode"),
    ],
)
def test_wrong_source_is_one_line(source, message):
    with pytest.raises(DataError, match=message) as error:
        build_stream(source, BYTES)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("bad", [-1, 2**31])
def test_tokens_without_a_vocabulary_fit_a_device(bad):
    for source in ([[1, 2], [bad]], np.array([1, 2, bad])):
        with pytest.raises(DataError, match=rf"less than 2\*\*31, got {bad} at index"):
            build_stream(source)


def test_texts_need_a_tokenizer():
    with pytest.raises(DataError, match="texts need a tokenizer, got none for 'a text'"):
        build_stream(["a text"])


@pytest.mark.parametrize(("size", "dtype"), [(2**16, np.uint16), (2**16 + 1, np.int32)])
def test_stored_tokens_hold_the_vocabulary(size, dtype):
    assert token_dtype(size) == dtype
