"""What --help shows, and in which order."""

import re

import pytest

from jaxformer.cli import main
from jaxformer.cli.overrides import flag_values, override_config
from jaxformer.config import load_config


def help_of(capsys, *words):
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--help"])
    assert not stopped.value.code
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_each_command_has_one_line_and_its_own_help_the_rest(capsys):
    lines = help_of(capsys).partition("(required)")[2].splitlines()[1:]
    box = [line.strip(" │") for line in lines if re.search(r"\w", line)]
    assert len(box) == 13 and all(re.fullmatch(r"• [a-z]+ +[A-Z].*\.", line) for line in box)
    assert "An empty line ends the predictions of each text" in " ".join(
        help_of(capsys, "predict").split()
    )


def test_help_of_a_config_begins_with_what_is_used_most_and_has_every_flag_once(capsys):
    config = load_config("quickstart")
    shown = help_of(capsys, "train", "quickstart")
    flags = re.findall(r"^[│ ]{2}--([a-z][a-z0-9.-]*)", shown, re.MULTILINE)
    wanted = {key.replace("_", "-") for key in flag_values(config)}
    optional = {"lora", "model.experts", "model.mup", "model.positions.scaling"}
    tables = optional | {"optimizer", "model.positions"}
    assert sorted(wanted - tables | {"base", "profile"}) == sorted(flags)
    assert flags[:15] == [
        "out", "init-from", "seed", "base", "profile", "training.steps", "training.batch-size",
        "training.batch-tokens", "training.devices", "optimizer.learning-rate", "model.max-len",
        "model.num-layers", "model.d-model", "model.num-heads", "data.paths",
    ]  # fmt: skip
    assert "--training.steps INT" in shown and "(default: 500)" in shown
    assert shown[: shown.index("--optimizer.learning-rate")].count("\n") < 50
    assert "--coordinator" in shown


@pytest.mark.parametrize(
    "command",
    [
        "train", "sweep", "prepare", "plan", "inspect", "generate", "translate", "predict",
        "evaluate", "convert", "verify", "plot", "plot loss", "plot sweep", "plot profile",
        "plot positions", "plot attention",
    ],
)  # fmt: skip
def test_help_breaks_no_sentence_where_there_is_room(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "2000")
    lines = [line.strip(" │|") for line in help_of(capsys, *command.split()).splitlines()]
    prose = [re.sub(": jaxformer .*", ":", line) for line in lines if re.match('[A-Z"]', line)]
    assert len(prose) > 1 and not [line for line in prose if line[-1] not in ".:)"]


def test_help_of_prepare_has_no_flags_of_training_alone(capsys):
    shown = help_of(capsys, "prepare", "quickstart")
    assert "--data.paths" in shown and "--base" not in shown and "--coordinator" not in shown


def test_values_have_names_and_none_is_understood_where_it_is_not_named(capsys):
    helps = [help_of(capsys, *words) for words in (
        ["train", "quickstart"], ["train"], ["generate"], ["translate"], ["convert"], ["plan"],
        ["plot", "loss"],
    )]  # fmt: skip
    for shown, parts in zip(helps, (
        ["--out OUT", "--init-from RUN", "--model.vocab-size INT", "--data.paths [TEXT [TEXT"],
        ["[-h] CONFIG"], ["RUN [TEXT [TEXT ...]]", "--dtype {float32,bfloat16}"],
        ["RUN [TEXT [TEXT ...]]", "--file PATH"], ["SOURCE TARGET"], ["--accelerator NAME"],
        ["RUN [RUN ...]"],
    ), strict=True):  # fmt: skip
        assert "STR" not in shown and "{None" not in shown and "PATH PATH" not in shown
        assert all(part in shown for part in parts)
    for shown in helps[1:]:  # of their own options, which say what None means
        assert "(default: None)" not in shown and "(default: )" not in shown
    words = ["--samples.top-k", "None", "--model.qk-norm-over", "head", "--data.cache", "None"]
    changed = override_config(
        load_config("quickstart"), [*words, "--samples.top-p", "0.5"], prog=""
    )
    assert changed.samples.top_k is None and changed.samples.top_p == 0.5
    assert changed.model.qk_norm_over == "head" and changed.data.cache is None
