"""What `inspect_data` says of data and batches, against what is counted here by hand."""

import numpy as np
import pytest

from jaxformer import runs
from jaxformer.runs.data.view import causal_texts
from jaxformer.text import IGNORE, Corpus, Labelled, byte_tokenizer
from tests.runs import test_masked, test_translation, tiny

DOCUMENTS = ["one two three", "four five\nsix seven eight nine", "seven", "é eight nine ten"] * 2
VALIDATION = ["eleven\n\ntwelve", "twelve\nthirteen fourteen fifteen and so on for a while"]


def stream_config(folder, **data):
    """Documents in files of their own, of characters, each of which has an end of text."""
    for part, documents in (("train", DOCUMENTS), ("validation", VALIDATION)):
        (folder / part).mkdir()
        for index, document in enumerate(documents):
            (folder / part / f"{index}.txt").write_text(document, encoding="utf-8")
    paths = {"paths": (f"{folder}/train/*",), "validation_paths": (f"{folder}/validation/*",)}
    return tiny.config(
        folder, architecture="decoder", tokenizer={"kind": "character"},
        data={"source": "files", **paths, **data},
    )  # fmt: skip


def batch_of_training(config, step):
    """The batch that `train_run` hands to the loop, which does not begin."""
    batches = []
    with pytest.MonkeyPatch.context() as patch:
        fit_run = "jaxformer.runs.train.fit_run"
        patch.setattr(fit_run, lambda spec, *_, **__: batches.append(spec.data))
        runs.train_run(config)
    return batches[0].batches[step]


@pytest.mark.parametrize("packing", ["windows", "documents"])
def test_decoder_report_counts_documents_and_shows_the_batch_of_training(tmp_path, packing):
    config = stream_config(tmp_path, packing=packing)
    report = runs.inspect_data(config, 5, rows=8)
    assert not (tmp_path / "run").exists()
    size = sum(len(document) + 1 for document in DOCUMENTS)  # each has an end
    assert (report.view.unit, report.view.validation) == ("documents", 2)
    assert report.task.summary.documents == 8
    assert report.task.summary.train_tokens == size
    assert report.task.summary.validation_tokens == sum(
        len(document) + 1 for document in VALIDATION
    )
    assert report.steps_per_epoch == -(-(size - 1) // 12) / 8
    (lengths,) = report.view.lengths.values()
    assert (lengths.min(), lengths.max()) == (6, len(DOCUMENTS[1]) + 1)

    batch = batch_of_training(config, 5)
    assert report.predicted == (int((batch["labels"] != -1).sum()), 8 * 12)
    decode, end = tiny.prepare(config).tokenizer.decode, batch["tokens"].max()
    for row, said in enumerate(report.rows):
        shown, before = "", True  # that the token is not predicted
        tokens, labels = batch["tokens"][row], batch["labels"][row]
        real = batch["segment_ids"][row] != 0 if packing == "documents" else labels != -1
        for token, label in zip(tokens[real], labels[real], strict=True):
            text = "‖" if token == end else decode([token])
            shown += f"‹{text}›" if before else text
            before = label == -1
        shown += "" if before else "‖" if label == end else decode([label])
        assert said == {"text": shown.replace("›‹", "")}


def test_a_row_of_padding_has_no_text():
    tokens = np.array([[97, 98]])
    batch = {"tokens": tokens, "labels": np.full_like(tokens, IGNORE), "segment_ids": 0 * tokens}
    assert causal_texts(byte_tokenizer(), batch, 1) == [{"text": ""}]


def test_masked_windows_are_shown_with_their_masks(tmp_path):
    config = test_masked.config(tmp_path)
    (row, *_), batch = runs.inspect_data(config, 3).rows, batch_of_training(config, 3)
    tokenizer = tiny.prepare(config).tokenizer
    tokens = batch["tokens"][0, : batch["lengths"][0]]
    (mask,) = tokenizer.token_texts([tokenizer.mask])
    shown = row["text"].replace(mask, " ").split()
    assert row["text"].count(mask) == (tokens == tokenizer.mask).sum() > 0
    assert shown == tokenizer.decode(tokens[tokens != tokenizer.mask]).split()


@pytest.mark.essential
def test_pairs_are_shown_with_lengths_and_what_is_shared(tmp_path):
    (tmp_path / "pairs.tsv").write_text("\n".join(test_translation.LINES), encoding="utf-8")
    other = [test_translation.LINES[0], "one two\tzwei eins", "six six\tsechs sechs"]
    paths = (tiny.write(tmp_path / "validation.tsv", other),)
    config = test_translation.config(tmp_path, data={"validation_paths": paths})
    report = runs.inspect_data(config, 1, rows=99)
    shared = {texts.name: texts.shared for texts in report.view.shared}
    assert shared == {"sources": 1, "targets": 1}
    pairs = dict(test_translation.pairs())
    assert [*report.view.lengths] == ["sources", "targets"]
    # Half have three words and the end of text, half four.
    assert np.unique(report.view.lengths["targets"], return_counts=True)[1].tolist() == [20, 20]
    batch = batch_of_training(config, 1)
    assert len(report.rows) == (batch["lengths"] > 0).sum()
    for row, size in zip(report.rows, batch["lengths"], strict=False):
        assert pairs[row["source"].removesuffix("‖")] == row["target"].removesuffix("‖")
        assert len(row["target"].split()) + 1 == size and row["target"].endswith("‖")


class Untrained(runs.TextModel):
    """A model of a user's own, of which only the tokenizer is used."""

    module = loss = sample = None


class Own(runs.TableTask):
    """Rows of a user's own, whose labels are one for each token."""

    table, text_model = Labelled, Untrained

    @classmethod
    def read(cls, config):
        rows = Labelled(tuple("a a b c".split()), tuple("x y x y".split()))
        return runs.Split(Corpus.of(rows.take(range(3))), rows.take([1, 3]))

    def encode_rows(self, rows):
        tokens = self.tokenizer.encode_documents(rows.texts)
        return [{"tokens": ids, "labels": ids * 0} for ids in tokens]


def test_task_of_ones_own_is_described(tmp_path):
    config = tiny.config(tmp_path, architecture="encoder", data={"source": "labelled"})
    report = runs.inspect_data(config, task=Own)
    assert (report.view.unit, report.view.validation) == ("texts", 2)
    assert [(texts.shared, texts.total) for texts in report.view.shared] == [(1, 2)]
    assert sorted(row["text"] for row in report.rows) == ["a", "a", "b"]
    assert report.task.marks == ""
