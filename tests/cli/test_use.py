"""jaxformer evaluate and generate, and the same in Python, of a finished run."""

import re

import jax
import numpy as np
import pytest

from jaxformer.cli import main
from jaxformer.config import SamplingConfig
from jaxformer.runs import open_run
from tests.cli.commands import one_line, output


@pytest.mark.essential
def test_evaluate_prints_the_loss_that_training_ended_with(trained, capsys):
    folder, out = trained
    main(["evaluate", str(folder / "run")])
    printed = capsys.readouterr().out
    loss = out.split("step 20: validation loss ")[-1].splitlines()[0]
    expected = re.escape(f"validation loss at step 20: {loss}, over ") + r"[\d,]+ tokens\n"
    assert re.fullmatch(expected, printed)


def test_evaluate_measures_other_text(trained, tmp_path, capsys):
    (tmp_path / "other.txt").write_text("the dog sat on the cat.\n" * 20, encoding="utf-8")
    main(["evaluate", str(trained[0] / "run"), "--data", str(tmp_path / "other.txt")])
    printed = capsys.readouterr().out
    evaluation = open_run(trained[0] / "run").evaluate([tmp_path / "other.txt"])
    assert printed == f"loss at step 20: {evaluation}, over 480 tokens\n"
    assert evaluation.loss > open_run(trained[0] / "run").evaluate().loss
    words = ("evaluate", trained[0] / "run", "--data")
    assert "absent.txt" in one_line(capsys, *words, tmp_path / "absent.txt")
    (tmp_path / "other.txt").write_text("Zebra", encoding="utf-8")
    assert "'Z'" in one_line(capsys, *words, tmp_path / "other.txt")


@pytest.mark.essential
def test_generate_streams_the_prompt_and_its_continuation(trained, capsys):
    words = ["generate", str(trained[0] / "run"), "the c", "--max-new-tokens", "9"]
    texts = []
    for extra in (["--temperature", "0"], ["--temperature", "0", "--seed", "1"],
                  ["--seed", "1"], ["--seed", "2"], ["--seed", "2"]):  # fmt: skip
        main(words + extra)
        texts.append(capsys.readouterr().out)
    assert all(text.startswith("the c") and len(text) <= 5 + 9 + 1 for text in texts)
    assert texts[0] == texts[1] and texts[3] == texts[4] and texts[2] != texts[3]


def test_generate_continues_each_text_as_it_would_alone(trained, capsys):
    words = ["generate", str(trained[0] / "run"), "--max-new-tokens", "5"]
    alone = [output(capsys, *words, text).out for text in ("the c", "on")]
    assert output(capsys, *words, "the c", "on").out == "\n".join(alone)


def test_parameters_may_be_split_over_devices(trained, capsys):
    folder = trained[0] / "run"
    printed = []
    for flags in (), ("--mesh.fsdp", "2", "--mesh.tensor", "2"):
        main(["evaluate", str(folder), *flags])
        main(["generate", str(folder), "the c", "--temperature", "0", *flags])
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_generate_samples_as_the_run_says_where_it_is_not_told_otherwise(trained, capsys):
    """The command and Python alike; a flag and a keyword replace one setting each."""
    run, asked = open_run(trained[0] / "run"), []
    words = ["generate", str(run.folder), "the c", "--max-new-tokens", "9"]
    run_settings = {"temperature": 0.8, "top_k": 5}
    main([*words, "--seed", "3"])
    text = run.generate("the c", max_new_tokens=9, seed=3)
    assert capsys.readouterr().out == f"the c{text}\n" and len(text) == 9
    pieces = list(run.generate_stream("the c", max_new_tokens=9, seed=3, **run_settings))
    assert "".join(pieces) == text and len(pieces) > 2

    def stream(model, params, prompts, *, rng, sampling, max_new_tokens, **_):
        asked.append((np.asarray(jax.random.key_data(rng)).tolist(), sampling, max_new_tokens))
        return iter([])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxformer.runs.text_models.language_model.generate_stream", stream)
        main([*words, "--top-k", "None", "--min-p", "0.1"])
        run.generate("the c", max_new_tokens=9, top_k=None, min_p=0.1)
        run.generate("the c", max_new_tokens=7, temperature=0.0)
    changed = SamplingConfig(temperature=0.8, min_p=0.1)
    greedy = SamplingConfig(temperature=0.0, top_k=5)
    assert asked == [([0, 0], changed, 9), ([0, 0], changed, 9), ([0, 0], greedy, 7)]


def test_generate_fills_the_context_when_not_told_how_much(trained, capsys):
    main(["generate", str(trained[0] / "run"), "the c", "--top-k", "1"])
    out = capsys.readouterr().out
    assert len(out.removesuffix("\n")) == 32  # characters are tokens, and none is the last


def test_generate_without_a_prompt_continues_the_first_of_the_runs_samples(trained, capsys):
    flags = ["generate", trained[0] / "run", "--max-new-tokens", 12]
    prompted, unprompted = (output(capsys, *flags, *more).out for more in (["the c"], []))
    assert unprompted == prompted and prompted.startswith("the c")


MISTAKES = {
    ("evaluate", "--step", 11): "no checkpoint of step 11, only [10, 20]",
    ("evaluate", "--mesh.fsdp", 9): "needs 9 devices of one host, got 8; lower mesh.fsdp or mesh.t",
    ("evaluate", "--mesh.fsdp", 0): "fsdp must be positive, got fsdp=0",
    ("generate", "the c", "--seed", -1): "--seed must be zero or more, got -1",
    ("generate", "the c", "--top-p", -0.1): "--top-p must be in [0, 1]",
    ("generate", "the cat " * 9): "context of 32",
    ("generate", "the", "--max-new-tokens", 30): "ask for at most 29",
    ("generate", "Zebra"): "'Z'",
}  # fmt: skip


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_get_one_line(trained, capsys, words):
    command, *options = words
    assert MISTAKES[words] in one_line(capsys, command, trained[0] / "run", *options)
