"""Streams of texts in memory."""

import numpy as np
import pytest

from jaxformer.errors import DataError
from jaxformer.text import build_stream, byte_tokenizer
from jaxformer.text.store.arrays import token_dtype

TEXTS = ["to be", "or not", "é", "that is the question"]
BYTES = byte_tokenizer()
END = BYTES.end_of_text


@pytest.mark.parametrize("make", [list, tuple, iter])
def test_stream_has_the_tokens_of_all_texts(make):
    stream = build_stream(make(TEXTS), BYTES)
    expected = [token for text in TEXTS for token in [*text.encode(), END]]
    assert stream.tokens.tolist() == expected and stream.tokens.dtype == np.uint16
    assert stream.offsets.tolist() == [0, 6, 13, 16]


def test_single_text_stays_as_it_is():
    assert build_stream(["ab"], BYTES).tokens.tolist() == [97, 98]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (["a", None], "texts must be strings, got None; leave it out"),
        ([{"text": "a"}], "got {'text': 'a'}"),
        ("abc", r"must be a list of strings, got 'abc'; pass \[text\]"),
        ([], "a stream must have at least 2 tokens, got 0 from 0 documents"),
        (["a\ud800"], "must be valid Unicode"),
    ],
)
def test_wrong_texts_are_named_in_one_line(source, message):
    with pytest.raises(DataError, match=message) as error:
        build_stream(source, BYTES)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("size", "dtype"), [(2**16, np.uint16), (2**16 + 1, np.int32)])
def test_stored_tokens_hold_the_vocabulary(size, dtype):
    assert token_dtype(size) == dtype
