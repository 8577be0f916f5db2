import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.errors import DataError
from jaxformer.text import (
    IGNORE,
    PackedDocuments,
    SurroundingTokens,
    TokenStream,
    Windows,
    build_stream,
    byte_tokenizer,
)
from jaxformer.text.batches.windows import WindowsWithLengths

document_lengths = st.lists(st.integers(0, 7), min_size=1, max_size=7).filter(lambda n: sum(n) >= 2)


def stream_of(lengths):
    """A stream whose tokens are all different, from 100 on."""
    offsets = np.cumsum([0, *lengths])[:-1]
    return TokenStream(np.arange(100, 100 + sum(lengths), dtype=np.uint16), offsets)


@settings(deadline=None, max_examples=100)
@given(size=st.integers(2, 53), length=st.integers(1, 61))
def test_windows_predict_every_token_but_the_first_once(size, length):
    windows = Windows(stream_of([size]), length)
    items = [windows[i] for i in range(len(windows))]
    assert all(array.dtype == np.int32 for item in items for array in item.values())
    tokens, labels = (np.stack([item[name] for item in items]) for name in ("tokens", "labels"))
    assert tokens.shape == labels.shape == (len(windows), length)
    has_label = labels != IGNORE
    np.testing.assert_array_equal(labels[has_label], windows.stream.tokens[1:])
    np.testing.assert_array_equal(tokens[has_label], windows.stream.tokens[:-1])
    assert not tokens[~has_label].any()
    assert (~has_label).sum() < length


@pytest.mark.parametrize("index", [-1, 4])
def test_windows_refuse_an_index_out_of_range(index):
    with pytest.raises(IndexError, match=f"less than 4, got {index}"):
        Windows(stream_of([13]), 3)[index]


def test_windows_refuse_no_length():
    with pytest.raises(DataError, match="at least 1, got 0; try 256"):
        Windows(stream_of([13]), 0)
    with pytest.raises(DataError, match="at least 2, got 1; try 256"):
        Windows(stream_of([13]), 1, before=[5])
    with pytest.raises(DataError, match="at least 3, got 2; try 256"):
        WindowsWithLengths(stream_of([13]), 2, before=[5], after=[6])


STARTED = TokenStream(np.array([1, 2, 30, 31, 32, 33, 34, 9, 1, 2, 40, 9]), np.array([0, 8]))


def test_windows_begin_with_the_start_tokens_and_never_predict_them():
    windows = Windows(STARTED, 6, before=[1, 2])
    assert [windows[i]["tokens"].tolist() for i in range(3)] == [
        [1, 2, 30, 31, 0, 0], [1, 2, 32, 33, 34, 9], [1, 2, 40, 0, 0, 0]
    ]  # fmt: skip
    assert [windows[i]["labels"].tolist() for i in range(3)] == [
        [-1, 30, 31, 32, -1, -1], [-1, -1, 33, 34, 9, -1], [-1, 40, 9, -1, -1, -1]
    ]  # fmt: skip


def test_packed_documents_begin_with_the_start_tokens():
    packed = PackedDocuments(STARTED, 9, before=[1, 2])
    assert [packed[i]["tokens"].tolist() for i in range(2)] == [
        [1, 2, 30, 31, 32, 33, 34, 0, 0], [1, 2, 9, 1, 2, 40, 0, 0, 0]
    ]  # fmt: skip
    assert packed[1]["labels"].tolist() == [-1, -1, -1, -1, 40, 9, -1, -1, -1]
    assert packed[1]["segment_ids"].tolist() == [1, 1, 1, 2, 2, 2, 0, 0, 0]
    assert packed[1]["positions"].tolist() == [0, 1, 2, 0, 1, 2, 0, 0, 0]


def test_windows_of_an_encoder_have_its_tokens_around_them():
    windows = WindowsWithLengths(STARTED, 7, before=[1, 2], after=[9])
    assert [windows[i]["tokens"].tolist() for i in range(3)] == [
        [1, 2, 30, 31, 9, 0, 0], [1, 2, 32, 33, 34, 9, 0], [1, 2, 40, 9, 0, 0, 0]
    ]  # fmt: skip
    assert [windows[i]["lengths"].tolist() for i in range(3)] == [5, 6, 4]


def test_stream_has_the_tokens_around_each_document():
    around = SurroundingTokens((1,), (256,))
    tokenizer = byte_tokenizer()
    tokenizer.surrounding_tokens = around
    stream = build_stream(["ab", "c"], tokenizer)
    assert stream.tokens.tolist() == [1, 97, 98, 256, 1, 99, 256]
    assert stream.offsets.tolist() == [0, 4]


def reference_packed(lengths, length):
    """What PackedDocuments should give, token by token."""
    documents = [d for d, n in enumerate(lengths) for _ in range(n)]
    windows = []
    for start in range(0, len(documents) - 1, length):
        window = {"tokens": [], "labels": [], "segment_ids": [], "positions": []}
        for i in range(start, start + length):
            has_label = i + 1 < len(documents)
            seen = documents[start : i + 1]
            same = has_label and documents[i] == documents[i + 1]
            window["tokens"].append(100 + i if has_label else 0)
            window["labels"].append(100 + i + 1 if same else IGNORE)
            window["segment_ids"].append(len(set(seen)) if has_label else 0)
            window["positions"].append(seen.count(documents[i]) - 1 if has_label else 0)
        windows.append(window)
    return windows


@pytest.mark.essential
@settings(deadline=None, max_examples=200)
@given(lengths=document_lengths, length=st.integers(1, 11))
def test_packed_documents_equal_a_reference(lengths, length):
    packed = PackedDocuments(stream_of(lengths), length)
    items = [packed[i] for i in range(len(packed))]
    assert all(array.dtype == np.int32 for item in items for array in item.values())
    as_lists = [{name: array.tolist() for name, array in item.items()} for item in items]
    assert as_lists == reference_packed(lengths, length)
