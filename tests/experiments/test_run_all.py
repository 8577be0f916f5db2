"""The whole command: what it needs, how it is stopped, and what it leaves behind."""

import dataclasses
import pathlib
import signal
import sys
import types

import mistakes
import numpy as np
import pytest
import run_all
import trained_translator

from tests.experiments.website import check_site


def test_all_pages_are_written_and_nothing_that_they_name_is_missing(
    translation_run, tmp_path, monkeypatch, capsys
):
    museum = dataclasses.replace(mistakes.DOCUMENT, steps=mistakes.DOCUMENT.steps[:4])
    documents = (run_all.DOCUMENTS[1], museum)
    monkeypatch.setattr(run_all, "DOCUMENTS", documents)
    output = tmp_path / "all"
    run_all.main([f"--output={output}", f"--run={translation_run[0]}", "--sentence=one two"])
    assert capsys.readouterr().out.endswith(f"  {output / 'index.html'}\n")
    chapters = ["self_attention_by_hand", "mistakes", "trained_translator"]
    check_site(output, [f"{name}.html" for name in chapters])
    files = {path.name for path in output.iterdir()}
    assert {
        "self_attention_by_hand_06_scores.png",
        "self_attention_by_hand_06_formula_1.svg",
        "mistakes_01_mistaken_positional_encoding_width_5.csv",
        "trained_translator_02_cross_attention.png",
        "trained_translator_04_attention.html",
    } <= files


def test_signal_during_training_stops_the_command_without_a_page(tmp_path, monkeypatch, capsys):
    configs = []

    def train_run(config):
        configs.append(config)
        return types.SimpleNamespace(stop_signal=signal.SIGTERM)

    monkeypatch.setattr("jaxformer.runs.train_run", train_run)
    with pytest.raises(SystemExit) as caught:
        run_all.main([f"--output={tmp_path}", "--sentence=one two"])
    assert caught.value.code == 143
    assert "stopped by SIGTERM" in capsys.readouterr().err
    assert configs[0].out == str(tmp_path / "translator")
    assert configs[0].samples.prompts == ("one two",)  # so that it is checked before training
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["sacrebleu", "matplotlib"])
def test_missing_package_is_named_before_anything_is_done(missing, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr("jaxformer.runs.train_run", None)
    with pytest.raises(SystemExit, match=f"the pages need .*, got no {missing}; pip install"):
        run_all.main([f"--output={tmp_path / 'all'}"])
    assert list(tmp_path.iterdir()) == []


def test_trained_translator_is_shown_from_its_run_folder(translation_run):
    run, _ = translation_run
    document = trained_translator.document(pathlib.Path(run))
    curve, alignment, heads, viewer = [step.show() for step in document.steps]
    assert list(curve.tables["Validation"].columns)[0] == "validation_loss"
    assert list(curve.figures) == ["training_curve"]
    (image,) = alignment.figures["cross_attention"].axes[0].images
    weights = image.get_array()
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    assert weights.shape[1] == len(trained_translator.SENTENCE.split()) + 1  # the end of text
    assert list(heads.figures) == [
        "cross_attention_of_every_head",
        "encoder_self_attention_of_every_head",
        "decoder_self_attention_of_every_head",
    ]
    assert viewer.pages["attention"].startswith("<!doctype html>")
