"""Data sets at the Hugging Face Hub, newest or of a revision, are read as files on disk are."""

import json

import pyarrow
import pytest
from pyarrow import parquet

from jaxformer import text
from jaxformer.errors import DataError

TEXTS = [f"text {i} of a few words, über {i * i}" for i in range(300)]


@pytest.fixture
def files(tmp_path):
    """A JSON Lines file and a Parquet file of the texts, by name."""
    lines = "".join(json.dumps({"text": document}) + "\n" for document in TEXTS)
    parquet.write_table(pyarrow.table({"text": TEXTS}), tmp_path / "a.parquet", row_group_size=50)
    (tmp_path / "a.jsonl").write_text(lines, encoding="utf-8")
    return {path.name: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_data_set_is_read_by_its_id(hub, files, name):
    kind = name.rpartition(".")[2]
    hub.commit(f"datasets/owner/{kind}", {f"data/{name}": files[name], "README.md": b"# Texts"})
    paths = text.text_files([f"hf://datasets/owner/{kind}/data/*.{kind}"])
    assert [path.name for path in paths] == [name]
    documents, _ = text.Documents.read([str(path) for path in paths])
    assert list(documents.texts) == TEXTS
    corpus = text.scan_corpus(text.Documents, paths, validation_fraction=0)
    assert [row.columns[0] for row, _ in corpus.read()] == TEXTS


def test_revision_stays_what_it_was(hub, files):
    commit = hub.commit("datasets/owner/revised", {"a.jsonl": files["a.jsonl"]})
    hub.commit("datasets/owner/revised", {"a.jsonl": b'{"text": "another"}\n'})
    newest, pinned = (
        text.scan_corpus(text.Documents, [f"hf://datasets/owner/revised{revision}/a.jsonl"],
                         validation_fraction=0)
        for revision in ("", f"@{commit}")
    )  # fmt: skip
    assert [row.columns[0] for row, _ in newest.read()] == ["another"]
    assert [row.columns[0] for row, _ in pinned.read()] == TEXTS


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("owner/nothing/a.jsonl", "there is no such file"),
        ("owner/texts@0123/a.jsonl", "there is no such file"),
        ("owner/texts/b.jsonl", "got 'hf://datasets/owner/texts/b.jsonl'"),
        ("owner/texts/b*.jsonl", "must match at least one file"),
    ],
)
def test_what_is_not_there_is_an_error_of_one_line(hub, path, message):
    hub.commit("datasets/owner/texts", {"a.jsonl": b'{"text": "one"}\n'})
    with pytest.raises(DataError, match=message) as info:
        text.Documents.read([str(file) for file in text.text_files([f"hf://datasets/{path}"])])
    assert "\n" not in str(info.value)
