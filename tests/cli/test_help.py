"""What --help shows."""

import re

import pytest

from jaxformer.cli import main
from jaxformer.cli.commands import COMMANDS
from jaxformer.cli.experiment import flag_keys


def help_of(capsys, *words):
    main([*words, *([] if words[-1:] == ("--help-all",) else ["--help"])])
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_each_command_has_one_line_and_its_own_help_the_rest(capsys):
    lines = help_of(capsys).partition("commands:\n")[2].splitlines()
    assert len(lines) == 13 and all(re.fullmatch(r"  [a-z]+ +[A-Z].*\.", line) for line in lines)
    assert "An empty line ends the predictions of each text" in " ".join(
        help_of(capsys, "predict").split()
    )


def test_help_has_the_keys_that_are_used_most_and_help_all_every_key_once(capsys):
    pattern = r"^  --([a-z][a-z0-9.-]*)"
    shown = help_of(capsys, "prepare")
    assert re.findall(pattern, shown, re.MULTILINE) == [
        "depth", "out", "init-from", "seed", "model.max-len", "model.num-layers", "model.d-model",
        "model.num-heads", "data.paths", "optimizer.learning-rate", "training.steps",
        "training.batch-size", "training.batch-tokens", "training.devices",
    ]  # fmt: skip
    assert shown.endswith("all keys of a config: jaxformer prepare --help-all\n")
    shown = help_of(capsys, "prepare", "--help-all")
    kinds = {"optimizer.name", "model.positions.kind", "model.positions.scaling.kind"}
    tables = {name for name, key in flag_keys().items() if key.table is not None}
    expected = [key.replace("_", "-") for key in flag_keys() if key not in kinds | tables]
    assert sorted(re.findall(pattern, shown, re.MULTILINE)) == sorted(expected)
    words = " ".join(shown.split())
    for part in (
        "--model.positions {none,sinusoidal,learned,rotary,alibi,relative}", "(default: rotary)",
        "--optimizer {adamw,sgd,lion,adafactor,muon}", "--lora.rank INT", "[lora]:", "--depth INT",
        "--model.positions.base FLOAT Base of the frequencies",  # of the default kind
    ):  # fmt: skip
        assert part in words
    for hidden in ("model.layers", "model.first-layers", "data.mixture"):
        assert hidden not in words


@pytest.mark.parametrize("command", ["plot", *COMMANDS])
def test_help_breaks_no_sentence_where_there_is_room(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "2000")
    entries = re.sub(r"(?m)^  \S.*", "", help_of(capsys, *command.split()))  # without signatures
    lines = [line.strip() for line in entries.split("\n")]
    prose = [re.sub(": jaxformer .*", ":", line) for line in lines if re.match('[A-Z"]', line)]
    assert prose and not [line for line in prose if line[-1] not in ".:)"]


def test_values_have_names(capsys):
    for words, parts in {
        "train --help-all": ["--out TEXT", "--model.vocab-size INT", "[TEXT ...]"],
        "train": ["train CONFIG [OPTIONS]", "--coordinator TEXT"],
        "generate": ["RUN [TEXT ...]", "--dtype {float32,bfloat16}", "--chat\n"],
        "translate": ["RUN [TEXT ...]", "--file PATH"],
        "convert": ["SOURCE TARGET"], "plan": ["--accelerator TEXT"], "plot loss": ["[RUN ...]"],
    }.items():  # fmt: skip
        printed = help_of(capsys, *words.split())
        assert "STR" not in printed and "None" not in printed
        assert all(part in printed for part in parts)
