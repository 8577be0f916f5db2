"""Parts of the data of a run, before they are encoded."""

import pytest

from jaxformer import runs, text
from jaxformer.config import DataConfig
from jaxformer.runs.data.row_data import encode_corpus, encode_table
from jaxformer.text.sources.documents import paragraphs
from tests.runs import tiny


def test_built_in_documents_are_split_and_have_each_paragraph_once(tmp_path):
    made = tiny.config(tmp_path, architecture="decoder", data={"source": "python"})
    source = runs.LanguageModelTask.read(made).train[""]
    parts = source.train_texts, source.validation_texts
    train, validation = (sum(len(one.encode()) for one in part) for part in parts)
    share = validation / (train + validation)
    assert share == pytest.approx(made.data.validation_fraction, abs=1e-3)
    found = [p for part in parts for one in part for p in set(paragraphs(one))]
    everywhere = {p for one in text.python_documents() for p in paragraphs(one)}
    assert len(found) - len(set(found)) <= 1 and len(set(found) ^ everywhere) <= 3  # one is cut


def test_built_in_documents_may_be_validated_on_files(tmp_path):
    path = tiny.write(tmp_path / "held.txt", ["another text"])
    data = {"source": "python", "validation_paths": (path,)}
    config = tiny.config(tmp_path, architecture="decoder", data=data)
    source = runs.LanguageModelTask.read(config).train[""]
    assert "".join(source.validation_texts).strip() == "another text"
    assert len(source.train_texts) > 70


def test_rows_in_memory_and_in_files_are_encoded_alike(tmp_path):
    rows = text.Labelled(("one", "two", "three"), ("a", "b", "a"))
    lines = [f"{one}\t{label}" for one, label in zip(rows.texts, rows.labels, strict=True)]
    path = tiny.write(tmp_path / "rows.tsv", lines)
    data = DataConfig(source="labelled", paths=(path,), cache=str(tmp_path / "cache"))
    in_files = text.scan_corpus(text.Labelled, [path], validation_fraction=0)
    for corpus in (text.Corpus.of(rows), in_files):
        assert corpus.train == rows and not corpus.is_sampled
        assert corpus.distinct == {"labels": ("a", "b")}
        for key in (None, ["key"], ["key"]):
            encoded = encode_corpus(corpus, _encoded, 5, key, data)
            assert encoded.examples.sizes("tokens").tolist() == [3, 5] and encoded.rows == rows
            assert str(encoded.counts) == "3 texts read, 2 kept; 1 empty (line 2)"
    assert len(list((tmp_path / "cache" / "corpora").iterdir())) == 2
    encoded = encode_table(rows, None, _encoded, 5)
    assert encoded.rows.texts == ("one", "three") and encoded.counts.read == 3


def _encoded(rows):
    """The bytes of the texts; "two" counts as one without tokens."""
    ids = [text.byte_tokenizer().encode(one) for one in rows.texts]
    both = zip(rows.texts, ids, strict=True)
    return [None if one == "two" else {"tokens": x, "labels": x} for one, x in both]
