"""jaxformer train: what it prints, leaves in the run folder, and resumes."""

import json
import shutil
import signal

import jax
import numpy as np
import pytest

from jaxformer.cli import main
from jaxformer.config import load_config
from jaxformer.runs import open_run
from jaxformer.training import FitResult
from tests.cli.commands import one_line, output, split_lines, write_config
from tests.runs import tiny


def test_training_prints_settings_samples_loss_and_folder(trained):
    folder, out = trained
    assert "\na language model, which continues text; settings other than the default" in out
    assert "\n  [optimizer] learning_rate = 0.03\n" in out and "num_kv_heads" not in out
    assert "vocab_size = " in out  # which the data decides
    assert "warning: the decay of the learning rate ends at step 30, training at step 20" in out
    assert "step 20/20" in out and "layers run as a scan" in out
    for prompt in ("the c", "the d", "on"):
        assert f"--- '{prompt}'\n{prompt}" in out
    assert out.count("step 20: validation loss ") == out.count("bits per byte") - 1 == 1
    assert out.endswith(f"run folder: {folder / 'run'}\n")


def test_run_folder_holds_everything(trained):
    folder = trained[0] / "run"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "config.toml", "tokenizer.json", "metrics.jsonl", "tensorboard", "checkpoints",
        "samples.txt", "loss.png", "validation.json", "validation_0_tokens.npy",
        "validation_0_documents.npy", "data.json", "manifest.json", "lock",
    }  # fmt: skip
    assert (folder / "loss.png").stat().st_size > 5000
    assert load_config(folder / "config.toml").model.vocab_size is not None
    assert (folder / "samples.txt").read_text(encoding="utf-8").count("---") == 3
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [record["loss"] for record in map(json.loads, lines) if "loss" in record]
    assert losses[-1] < 0.8 * losses[0]


def test_run_goes_on_with_more_steps_bitwise(trained, tmp_path, capsys):
    """20 + 10 steps in two commands, of which the first is that of all tests, equal 30 in one."""
    shutil.copytree(trained[0] / "run", tmp_path / "parts")
    for name in ("parts", "whole"):
        flags = ("--training.steps", 30, "--out", tmp_path / name)
        out = output(capsys, "train", trained[0] / "tiny.toml", *flags).out
        assert ("resuming at step 20 of 30" in out) == (name == "parts")
    whole, parts = (open_run(tmp_path / name, step=30) for name in ("whole", "parts"))
    jax.tree.map(np.testing.assert_array_equal, whole.params, parts.params)


def test_packed_documents_words_and_one_device_train_too(tmp_path, capsys):
    """The options that the other tests leave at their defaults, in one run."""
    split_lines(tmp_path)
    config = write_config(
        tmp_path,
        paths=("text.txt", "texts/*.txt"),
        kind=('kind = "character"', 'kind = "word"\nvocab_size = 30'),
        packing=("[tokenizer]", 'packing = "documents"\n[tokenizer]'),
        runner=("devices = 2", 'runner = "single"\naccumulate_steps = 2'),
        model=("dropout_rate", 'remat = "dots"\ndtype = "bfloat16"\ndropout_rate'),
        samples=("temperature = 0.8", "temperature = 0.0\nrepetition_penalty = 1.2"),
        schedule=("steps = 20", "steps = 40"),
    )
    main(["train", str(config)])
    out = capsys.readouterr().out
    assert "--- 'the d'\nthe d" in out
    run = open_run(tmp_path / "run")
    assert run.tokenizer.vocab_size <= 30 and run.tokenizer.end_of_text is not None
    evaluation = run.evaluate()
    assert evaluation.perplexity < 10  # of 20 words, most of which follow from the last
    # All tokens but the first of each document, and their bytes: spaces cost a word model nothing.
    validation = tiny.validation_of(run)[""]
    documents = np.split(validation.tokens, validation.offsets[1:])
    assert len(documents) == 9  # one of them is the end of the document that was cut
    assert evaluation.predicted == sum(document.size - 1 for document in documents)
    assert "prompt is empty" in one_line(capsys, "generate", run.folder, "")
    # The prompt's last word and the continuation's first are two words.
    main(["generate", str(run.folder), "the cat", "--top-k", "1"])
    assert capsys.readouterr().out.startswith("the cat ")


def test_prompts_are_taken_from_the_validation_text(tmp_path, capsys):
    """And ids that the vocabulary has beyond the tokenizer's are never drawn."""
    split_lines(tmp_path)
    config = write_config(
        tmp_path,
        paths=("text.txt", "texts/*.txt"),
        prompts=('prompts = ["the c", "the d", "on"]\nmax_new_tokens = 12', ""),
        vocabulary=("max_len = 32", "max_len = 32\nvocab_size = 300"),
        steps=("steps = 20", "steps = 1"),
    )
    main(["train", str(config)])
    run = open_run(tmp_path / "run")
    lines = " ".join(path.read_text() for path in (tmp_path / "texts").iterdir())
    assert len(set(run.config.samples.prompts)) == 3
    assert all(prompt in lines for prompt in run.config.samples.prompts)
    # An untrained model ends a text rarely: the samples fill the context.
    samples = (run.folder / "samples.txt").read_text(encoding="utf-8").split("--- ")[1:]
    assert max(len(sample) for sample in samples) > 32
    # Windows run on from one document to the next, so that an empty prompt starts one.
    capsys.readouterr()
    main(["generate", str(run.folder), "", "--max-new-tokens", "9"])
    assert capsys.readouterr().out.strip()


def test_config_behind_two_dashes_trains_too(trained, capsys):
    main(["train", "--", str(trained[0] / "tiny.toml")])
    assert f"run folder: {trained[0] / 'run'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("step", "note"),
    [
        (3, "at step 3, saved in {}; repeat the command to resume"),
        (0, "before the first step; repeat the command to start again"),
    ],
)
def test_training_that_a_signal_stops_is_one_line_on_standard_error(
    tmp_path, capfd, monkeypatch, step, note
):
    result = FitResult(step, None, stop_signal=signal.SIGTERM)
    monkeypatch.setattr("jaxformer.runs.train_run", lambda *_, **__: result)
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(write_config(tmp_path))])
    assert stopped.value.code == 143
    out, err = capfd.readouterr()
    assert err == f"jaxformer: stopped by SIGTERM {note.format(tmp_path / 'run')}\n"
    assert "stopped" not in out
