"""Corpora: scanned once, split by a hash of the text, and remembered."""

import dataclasses
import os

import pytest

from jaxformer import text
from jaxformer.errors import DataError
from jaxformer.text.corpora import corpus as corpora
from tests.runs import tiny
from tests.text.corpora.texts import (
    documents,
    newlines,
    pairs,
    scan,
    scan_pairs,
    sides,
    write_lines,
)


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
    monkeypatch.setattr(corpora, "_SAMPLE", size - 1)
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
    monkeypatch.setattr(corpora, "_SAMPLE", 8000)
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


def test_a_file_that_changes_is_an_error(tmp_path):
    def append(*_):
        with (tmp_path / "a.jsonl").open("a") as file:
            file.write('{"text": "more"}\n')

    corpus = scan(tmp_path, documents(5))
    append()
    with pytest.raises(DataError, match="a.jsonl' has changed while it was read"):
        text.prepare_documents(corpus, text.byte_tokenizer(), tmp_path / "cache")
    assert not [*(tmp_path / "cache").rglob("store.json")]
    with pytest.raises(DataError, match="a.jsonl' has changed while it was read"):
        scan(tmp_path, documents(5), on_progress=append)


def test_scan_is_remembered_while_the_file_stays(tmp_path, monkeypatch):
    file = write_lines(tmp_path / "a.jsonl", documents(9))
    options = {"cache_dir": tmp_path / "cache", "validation_fraction": 0.3}
    first = text.scan_corpus(text.Documents, [file], **options)
    monkeypatch.setattr(corpora, "_scan", None)
    again = text.scan_corpus(text.Documents, [file], **options)
    for name in {*vars(first)} - {"groups"}:
        assert getattr(again, name) == getattr(first, name)
    assert [*again.read()] == [*first.read()]
    os.utime(file, (1, 1))
    with pytest.raises(TypeError):  # it is scanned
        text.scan_corpus(text.Documents, [file], **options)


def test_sides_that_are_empty_or_too_large_are_refused(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="got an empty training side with .*: 1 pairs .* 1 empty"):
        scan_pairs(tmp_path, [("", "x")])
    monkeypatch.setattr(corpora, "_VALIDATION", 50)
    monkeypatch.setattr(corpora, "_SAMPLE", 50)
    with pytest.raises(DataError, match="for validation must be at most 50 bytes, .*; lower it"):
        scan_pairs(tmp_path, pairs(60))


def test_scan_that_is_remembered_is_of_the_same_file_in_another_folder(tmp_path, monkeypatch):
    for name in "xy":
        (tmp_path / name).mkdir()
        tiny.write(tmp_path / name / "a.tsv", [f"{name} {i}\t{i}" for i in range(9)])
    monkeypatch.chdir(tmp_path / "x")
    options = {"validation_fraction": 0, "cache_dir": tmp_path / "cache"}
    text.scan_corpus(text.Pairs, ["a.tsv"], **options)
    monkeypatch.chdir(tmp_path / "y")
    corpus = text.scan_corpus(text.Pairs, ["../x/a.tsv"], **options)
    assert next(corpus.read())[0].columns == ("x 0", "0")


def test_how_a_table_of_ones_own_reads_rows_is_not_remembered(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Loud(text.Pairs):
        @classmethod
        def rows(cls, paths):
            for row in super().rows(paths):
                yield row._replace(columns=list(map(change, row.columns)))

    options = {"cache_dir": tmp_path / "cache", "validation_fraction": 0}
    sources = []
    for function in (str.lower, str.upper):
        change = function
        corpus = scan_pairs(tmp_path, [("a", "b")], table=Loud, **options)
        sources.append(corpus.train.sources)
    assert sources == [("a",), ("A",)]


def test_labels_are_listed(tmp_path):
    rows = [(f"text {i}", f"label {i % 5}") for i in reversed(range(20))]
    corpus = scan_pairs(tmp_path, rows, table=text.Labelled)
    assert corpus.distinct == {"labels": tuple(f"label {i}" for i in range(5))}
