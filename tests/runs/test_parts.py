"""Parts of the data of a run, before they are encoded."""

import pytest

from jaxformer import runs, text
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
