"""Documents prepared as tokens, part by part, in files or in memory."""

import os

import numpy as np
import pytest

from jaxformer import text
from jaxformer.errors import DataError
from jaxformer.text.corpora import prepared, prepared_documents
from jaxformer.text.sources import document_files
from tests.text.corpora.texts import documents, newlines, prose, scan, sides

TOKENIZER = text.byte_tokenizer()


@pytest.mark.parametrize("part_size", [500, 10**6])
def test_tokens_are_the_same_in_memory_and_in_files(tmp_path, monkeypatch, part_size):
    monkeypatch.setattr(prepared, "_SMALLEST", part_size)
    texts = list(map(newlines, documents(60)))
    expected = text.prepare_documents(scan(tmp_path, texts), TOKENIZER, tmp_path / "a")
    corpus = text.Corpus.of(text.Documents.of(texts), 0.3)
    for cache in (tmp_path / "b", tmp_path / "b", None):
        streams = text.prepare_documents(corpus, TOKENIZER, cache)
        for stream, other in zip(streams, expected, strict=True):
            assert stream.num_bytes == other.num_bytes
            np.testing.assert_array_equal(np.asarray(stream.tokens), np.asarray(other.tokens))
            np.testing.assert_array_equal(stream.offsets, other.offsets)
    assert text.Corpus.of(text.Documents.of(texts[::-1]), 0.3).fingerprint != corpus.fingerprint


def test_documents_that_cannot_be_encoded_are_refused():
    with pytest.raises(DataError, match="must be valid Unicode"):
        text.Documents.of(["a\ud800"])
    with pytest.raises(DataError, match="texts must be a list of strings, got 'a text'"):
        text.Documents.of("a text")


def expected(texts):
    return text.build_stream([*texts, ""], TOKENIZER)  # of several documents each has its end


def assert_holds(streams, train, validation):
    for stream, texts in zip(streams, (train, validation), strict=True):
        whole = expected(texts)
        np.testing.assert_array_equal(np.asarray(stream.tokens), whole.tokens[:-1])
        np.testing.assert_array_equal(stream.offsets, whole.offsets[:-1])
        assert stream.num_bytes == sum(len(document.encode()) for document in texts)


@pytest.mark.parametrize("part_size", [1, 500, 10**6])
def test_prepared_tokens_are_those_of_the_documents(tmp_path, monkeypatch, part_size):
    monkeypatch.setattr(prepared, "_SMALLEST", part_size)
    monkeypatch.setattr(prepared_documents, "_GROUP", 100)
    corpus = scan(tmp_path, documents(60))
    done = []
    streams = text.prepare_documents(corpus, TOKENIZER, tmp_path, on_progress=done.append)
    assert_holds(streams, *sides(corpus))
    assert done == sorted(done) and done[-1] == corpus.num_bytes


def test_document_that_goes_on_behind_validation_begins_anew(tmp_path, monkeypatch):
    """A long text file is drawn piece by piece."""
    monkeypatch.setattr(document_files, "_PIECE", 40)
    (tmp_path / "a.txt").write_text(prose(200))
    corpus = text.scan_corpus(text.Documents, [tmp_path / "a.txt"], validation_fraction=0.3)
    runs = {False: [], True: []}
    last = None
    (part,) = corpus.parts(2**30)
    for row in part.rows:
        for side_row, is_validation in corpus.holdout.parts(row):
            if is_validation != last:
                runs[is_validation].append("")
            runs[is_validation][-1] += side_row.columns[0]
            last = is_validation
    assert len(runs[True]) > 3
    assert_holds(text.prepare_documents(corpus, TOKENIZER, tmp_path), runs[False], runs[True])


def test_preparing_goes_on_behind_the_last_whole_shard(tmp_path, monkeypatch):
    corpus = scan(tmp_path, documents(60))
    encoded = []

    def count(tokenizer, texts, encode=text.Tokenizer.encode_documents, **options):
        encoded.extend(texts)
        if len(encoded) > 30 and not failed:
            failed.append(True)
            raise KeyboardInterrupt
        return encode(tokenizer, texts, **options)

    failed = []
    monkeypatch.setattr(prepared, "_SMALLEST", 700)
    monkeypatch.setattr(text.Tokenizer, "encode_documents", count)
    with pytest.raises(KeyboardInterrupt):
        text.prepare_documents(corpus, TOKENIZER, tmp_path)
    (manifest,) = (tmp_path / "corpora").glob("*/parts.jsonl")
    assert 0 < len(manifest.read_text().splitlines())
    encoded.clear()
    streams = text.prepare_documents(corpus, TOKENIZER, tmp_path)
    assert 0 < len(encoded) < 60
    assert_holds(streams, *sides(corpus))
    encoded.clear()
    text.prepare_documents(corpus, TOKENIZER, tmp_path)
    assert encoded == []


def test_files_that_change_are_never_prepared_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(prepared, "_SMALLEST", 500)
    corpus = scan(tmp_path, documents(60))
    os.utime(tmp_path / "a.jsonl", (1, 1))
    for _ in range(2):
        with pytest.raises(DataError, match="a.jsonl' has changed while it was read"):
            text.prepare_documents(corpus, TOKENIZER, tmp_path)
