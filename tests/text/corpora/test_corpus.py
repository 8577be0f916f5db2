"""Corpora: scanned once, split by a hash of the text, and remembered."""

import os

import pytest

from jaxformer import text
from jaxformer.errors import DataError
from jaxformer.text.corpora import scan as scan_module
from jaxformer.text.tables import documents as tables_of_documents
from jaxformer.text.tables.documents import read_pieces
from tests.text.corpora.texts import documents, newlines, scan, sides, write_lines


def test_documents_are_on_a_side_by_what_they_say(tmp_path):
    texts = documents(400)
    train, validation = sides(scan(tmp_path, texts))
    sizes = [sum(len(document.encode()) for document in side) for side in (train, validation)]
    assert sizes[1] / sum(sizes) == pytest.approx(0.3, abs=0.002)
    whole = set(map(newlines, texts))
    assert len(train) + len(validation) == 401 and len({*train, *validation} - whole) == 2
    # In another order, each is where it was.
    again, more = sides(scan(tmp_path, texts[::-1]))
    assert (set(again), set(more)) == (set(train), set(validation))


def test_more_documents_leave_the_others_where_they_were(tmp_path):
    texts = documents(202)
    _, validation = sides(scan(tmp_path, texts[:-2]))
    _, more = sides(scan(tmp_path, texts))
    assert len(set(validation) - set(more)) <= 4  # the one that is cut, and its neighbours


def test_small_text_is_its_own_sample(tmp_path, monkeypatch):
    texts = documents(50)
    corpus = scan(tmp_path, texts)
    assert not corpus.is_sampled
    assert (list(corpus.train.texts), list(corpus.validation.texts)) == sides(corpus)
    size = sum(len(newlines(document).encode()) for document in texts)
    assert (corpus.counts.read, corpus.num_bytes) == (50, size)
    monkeypatch.setattr(scan_module, "_SAMPLE", size - 1)
    assert scan(tmp_path, texts).is_sampled


def test_split_is_the_same_in_memory_and_in_files(tmp_path):
    texts = list(map(newlines, documents(60)))
    in_memory = text.Corpus.of(text.Documents.of([*texts, " \n"]), 0.3)
    assert sides(in_memory) == sides(scan(tmp_path, texts))
    assert (list(in_memory.train.texts), list(in_memory.validation.texts)) == sides(in_memory)
    (tmp_path / "a.txt").write_text(texts[0])
    corpus = text.scan_corpus(text.Documents, [tmp_path / "a.txt"], validation_fraction=0.3)
    assert sides(text.Corpus.of(text.Documents.of(texts[:1]), 0.3)) == sides(corpus)


def test_sample_is_drawn_evenly_from_the_training_text(tmp_path, monkeypatch):
    monkeypatch.setattr(scan_module, "_SAMPLE", 8000)
    texts = documents(400)
    corpus = scan(tmp_path, texts)
    train, validation = sides(corpus)
    size = sum(len(document.encode()) for document in corpus.train.texts)
    assert corpus.is_sampled and 3600 < size <= 8000
    assert set(corpus.train.texts) < set(train)
    assert set(corpus.validation.texts) == set(validation)
    places = [train.index(document) for document in corpus.train.texts]
    assert min(places) < len(train) / 4 and max(places) > len(train) * 3 / 4


def test_fingerprint_is_of_the_content_and_of_how_it_is_read(tmp_path):
    first = scan(tmp_path, ["one", "two"])
    os.utime(tmp_path / "a.jsonl", (1, 1))
    assert scan(tmp_path, ["one", "two"]).fingerprint == first.fingerprint
    assert scan(tmp_path, ["one", "Two"]).fingerprint != first.fingerprint
    other = scan(tmp_path, ["one", "two"], validation_fraction=0.2)
    assert other.fingerprint != first.fingerprint


def test_a_file_that_changes_is_an_error(tmp_path, monkeypatch):
    corpus = scan(tmp_path, documents(5))
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"text": "more"}\n')
    with pytest.raises(DataError, match="a.jsonl' has changed while it was read"):
        list(corpus.parts(2**20))
    reads = read_pieces

    def growing(*arguments, **options):
        yield from reads(*arguments, **options)
        with (tmp_path / "a.jsonl").open("a") as file:
            file.write(" ")

    monkeypatch.setattr(tables_of_documents, "read_pieces", growing)
    with pytest.raises(DataError, match="has changed while it was read"):
        scan(tmp_path, documents(5))


def test_files_that_were_looked_through_are_remembered(tmp_path, monkeypatch):
    file = write_lines(tmp_path / "a.jsonl", documents(9))
    options = {"cache_dir": tmp_path / "cache", "validation_fraction": 0.3}
    first = text.scan_corpus(text.Documents, [file], **options)
    with monkeypatch.context() as patch:
        patch.setattr(tables_of_documents, "read_pieces", None)
        again = text.scan_corpus(text.Documents, [file], **options)
    assert vars(again) == vars(first)
    os.utime(file, (1, 1))
    assert (
        text.scan_corpus(text.Documents, [file], **options).files[0][0].modified
        != first.files[0][0].modified
    )
