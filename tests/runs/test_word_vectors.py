"""Runs whose embeddings start from word vectors; all but one stop before the first step."""

import gzip

import jax
import numpy as np
import pytest

from jaxformer.errors import ConfigError, DataError
from jaxformer.runs.text_models.text_model import Initializer
from tests.runs import tiny

VECTORS = {"cat": [1.0, 2.0, 3.0, 4.0], "sun": [-1.0, 0.5, 0.25, 8.0], "unheard": [9.0] * 4}
ROWS = [f"{'cat dog sun moon'.split()[i % 4]} no {i}" for i in range(24)]

KINDS = {
    "language_model": ("decoder", "files", lambda params: params["embedding"]),
    "masked": ("encoder", "files", lambda params: params["encoder"]["embedding"]),
    "classification": ("encoder", "labelled", lambda params: params["encoder"]["embedding"]),
    "translation": ("encoder_decoder", "pairs", lambda params: params["embedding"]),
}


def config(folder, kind, vectors=VECTORS, *, name="vectors.txt", tokenizer=None, **changes):
    architecture, source, _ = KINDS[kind]
    lines = [f"{word} {' '.join(map(str, numbers))}\n" for word, numbers in vectors.items()]
    content = "".join(lines).encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    column = {"labelled": "\t{label}", "pairs": "\tmeow {i}", "files": ""}[source]
    rows = [row + column.format(i=i, label="ab"[i % 2]) for i, row in enumerate(ROWS)]
    path = tiny.write(folder / "rows.txt", rows)
    return tiny.config(
        folder, architecture=architecture,
        data={"source": source, "paths": (path,), "validation_fraction": 0.25},
        tokenizer={"word_vectors": str(folder / name)} | (tokenizer or {}), **changes,
    )  # fmt: skip


def tokenizer_of(run):
    return run.tokenizers[0]


def start_params(run, monkeypatch):
    """What training starts from, where a model begins with zeros instead of a draw."""
    shapes = jax.eval_shape(run.model.initializer, jax.random.key(0))
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    draw = lambda *_: jax.tree.map(jax.numpy.asarray, zeros)  # noqa: E731
    monkeypatch.setattr(Initializer, "__call__", draw)
    return run.initializer(jax.random.key(0))


@pytest.mark.parametrize("kind", KINDS)
def test_table_starts_from_the_vectors_that_the_file_has(tmp_path, monkeypatch, kind):
    """Narrower than the model: a projection follows, and the output has a table of its own."""
    packed = config(tmp_path, kind, name="vectors.gz", model={"tied_embeddings": False})
    run = tiny.prepare(packed)
    words = tokenizer_of(run).words
    assert run.config.model.embedding_dim == 4
    assert run.report[-1] == f"word vectors: 2 of {len(words)} words are in {tmp_path}/vectors.gz"
    embedding = KINDS[kind][2](start_params(run, monkeypatch))
    assert embedding["projection_kernel"].shape == (4, 16)
    expected = np.zeros(embedding["embedding"].shape)
    for word in ("cat", "sun"):
        expected[words[word]] = VECTORS[word]
    np.testing.assert_array_equal(embedding["embedding"], expected)


def test_vectors_as_wide_as_the_model_need_no_projection(tmp_path, monkeypatch):
    wide = {word: [*numbers * 4] for word, numbers in VECTORS.items()}
    run = tiny.prepare(config(tmp_path, "classification", wide))
    assert run.config.model.embedding_dim is None
    embedding = start_params(run, monkeypatch)["encoder"]["embedding"]
    assert set(embedding) == {"embedding"}
    assert embedding["embedding"][tokenizer_of(run).words["sun"]].tolist() == wide["sun"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({}, "have a width of 4: tied embeddings must be as wide as the model"),
        (
            {"embedding_dim": 5, "tied_embeddings": False},
            "model.embedding_dim must be the width of the vectors of .*, 4, got 5; remove it",
        ),
        ({"embedding_dim": 16}, "must be the width of the vectors of .*, 4, got 16; remove it"),
    ],
)
def test_width_of_the_vectors_must_fit_the_model(tmp_path, model, message):
    with pytest.raises(ConfigError, match=message):
        tiny.prepare(config(tmp_path, "masked", model=model))


def test_file_must_be_there(tmp_path):
    missing = config(
        tmp_path, "masked", tokenizer={"word_vectors": "nowhere.txt"}, model={"embedding_dim": 16}
    )
    with pytest.raises(DataError, match="nowhere.txt"):
        tiny.prepare(missing)
