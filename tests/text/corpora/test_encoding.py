"""Documents and rows of a corpus, encoded group by group, in files or in memory."""

import numpy as np
import pytest

from jaxformer import text
from jaxformer.errors import DataError
from jaxformer.text.corpora import encoding
from jaxformer.text.corpora.encoding import prepare_rows
from jaxformer.text.store.arrays import ExampleArrays
from jaxformer.text.tables import documents as document_tables
from tests.text.arrays import assert_same
from tests.text.corpora.texts import documents, newlines, pairs, prose, scan, scan_pairs, sides

BYTES = text.byte_tokenizer()


def assert_holds(streams, train, validation):
    for stream, texts in zip(streams, (train, validation), strict=True):
        whole = text.build_stream([*texts, ""], BYTES)  # of several documents each has its end
        np.testing.assert_array_equal(np.asarray(stream.tokens), whole.tokens[:-1])
        np.testing.assert_array_equal(stream.offsets, whole.offsets[:-1])
        assert stream.num_bytes == sum(len(document.encode()) for document in texts)


@pytest.mark.parametrize("group", [1, 500, 10**6])
def test_prepared_tokens_are_those_of_the_documents(tmp_path, monkeypatch, group):
    monkeypatch.setattr(encoding, "_GROUP", group)
    texts = list(map(newlines, documents(60)))
    corpus = scan(tmp_path, texts)
    in_memory = text.Corpus.of(text.Documents.of(texts), 0.3)
    expected = sides(corpus)
    for source, cache in ((corpus, "a"), (in_memory, "b"), (in_memory, "b"), (in_memory, None)):
        done, folder = [], None if cache is None else tmp_path / cache
        streams = text.prepare_documents(source, BYTES, folder, on_progress=done.append)
        assert_holds(streams, *expected)
        assert done == sorted(done) and done[-1] == source.num_bytes


@pytest.mark.parametrize("group", [1, 100, 10**6])
def test_long_file_is_one_document_up_to_what_is_held_out(tmp_path, monkeypatch, group):
    """It is read in pieces, each of which is drawn for a side."""
    monkeypatch.setattr(document_tables, "_PIECE", 40)
    monkeypatch.setattr(encoding, "_GROUP", group)
    (tmp_path / "a.txt").write_text(prose(200))
    corpus = text.scan_corpus(text.Documents, [tmp_path / "a.txt"], validation_fraction=0.3)
    runs = {False: [], True: []}
    last = None
    for row, is_validation in corpus.read():
        if is_validation != last:
            runs[is_validation].append("")
        runs[is_validation][-1] += row.columns[0]
        last = is_validation
    assert len(runs[True]) > 3
    assert_holds(text.prepare_documents(corpus, BYTES, tmp_path), runs[False], runs[True])


def encode(rows):
    return text.encode_pairs(rows, BYTES, BYTES)


def assert_all_same(examples, expected):
    for example, other in zip(examples, expected, strict=True):
        assert_same(example, other)


@pytest.mark.parametrize("group", [40, 300, 10_000])
def test_prepared_rows_are_those_of_the_table(tmp_path, monkeypatch, group):
    monkeypatch.setattr(encoding, "_GROUP", group)
    corpus = scan_pairs(tmp_path, pairs(60))
    assert 5 < len(corpus.validation) < 30 and not corpus.is_sampled
    examples, counts = prepare_rows(corpus, encode, 12, tmp_path / "cache")
    assert_all_same(examples, encode(corpus.train))
    assert counts.read == 60 == len(corpus.train) + len(corpus.validation)


def test_rows_that_cannot_be_used_are_counted_with_their_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "_GROUP", 1)
    rows = [("a", "b"), ("", "c"), ("d", "e", "f"), ("long enough", "g"), ("h", "i")]
    rows += [("j", "long enough")]
    corpus = scan_pairs(tmp_path, rows, validation_fraction=0)
    assert corpus.validation is None
    for function in (encode, None):  # the second time they are in the cache
        examples, counts = prepare_rows(corpus, function, 5, tmp_path / "cache")
        assert str(counts) == (
            "6 pairs read, 2 kept; 1 empty (line 2), 1 misaligned (line 3), 2 too long (lines 4, 6)"
        )
    assert [example["source_tokens"].tolist() for example in examples] == [[97, 256], [104, 256]]
    for folder in (tmp_path / "other", None):
        with pytest.raises(DataError, match="got none: 6 .* 4 too long .*; raise max_len, or"):
            prepare_rows(corpus, encode, 1, folder)


def test_example_arrays_are_the_examples():
    examples = encode(text.Pairs(("ab", "c", "def"), ("x", "yz", "u")))
    arrays = ExampleArrays.of(examples)
    assert_all_same(arrays, examples)
    assert_same(arrays[-1], examples[2])
    assert arrays.lengths.tolist() == [3, 3, 4] and arrays.sizes("tokens").tolist() == [2, 3, 2]
    with pytest.raises(IndexError):
        arrays[3]
