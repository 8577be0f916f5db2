"""--depth of the commands that read a config: the settings of its rules for the depth."""

import pytest

from jaxformer.cli.commands import COMMANDS
from jaxformer.cli.commands.sweep import read_sweep
from jaxformer.cli.experiment import read_config
from jaxformer.cli.parsing import Command
from jaxformer.config import load_config
from tests.cli.commands import one_line, output, write_config

RULES = """
[by_depth]
"model.d_model" = { power = 1 }
"training.steps" = { power = 1 }
"""


@pytest.fixture
def path(tmp_path):
    """A config of 2 layers, 16 wide, for 20 steps, with rules."""
    path = write_config(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + RULES, encoding="utf-8")
    return path


def test_training_uses_the_settings_of_the_depth_and_the_run_folder_keeps_them(
    path, tmp_path, capsys
):
    flags = ("--training.steps", 2, "--training.devices", 1)
    printed = output(capsys, "train", path, "--depth", 1, *flags).out
    assert "num_layers = 1, d_model = 8, " in printed and "step 2/2" in printed
    stored = load_config(tmp_path / "run" / "config.toml")
    assert (stored.model.num_layers, stored.model.d_model, stored.training.steps) == (1, 8, 2)
    # From now on the settings are those of the folder, which has no rules.
    printed = one_line(capsys, "train", tmp_path / "run", "--depth", 4)
    assert "got depth=4 and no such table" in printed


@pytest.mark.parametrize("command", ["train", "sweep", "prepare", "plan", "inspect"])
def test_depth_is_a_flag_of_every_command_with_a_config(path, command):
    words = [str(path), "--depth", "5", *(["--accelerator", "H100"] if command == "plan" else [])]
    flags = Command.of(command, COMMANDS[command]).parse(words)["flags"]
    assert read_config(str(path), flags) == load_config(path, depth=5)


def test_flags_take_precedence_over_rules(path):
    flags = {"depth": 3, "model.d_model": 8, "model.num_layers": 5, "seed": 7}
    config = read_config(str(path), flags)
    assert (config.model.num_layers, config.model.d_model) == (5, 8)
    assert config.training.steps == 30 and config.seed == 7
    assert read_config(str(path), {"depth": None}) == load_config(path)


def test_a_sweep_takes_several_depths(path):
    values, configs, _ = read_sweep(str(path), {"depth": "1,3", "seed": "0,1"})
    assert values[-1] == {"depth": 3, "seed": 1}
    sizes = [(config.model.num_layers, config.model.d_model) for config in configs]
    assert sizes == [(1, 8), (1, 8), (3, 24), (3, 24)]


def test_plans_and_batches_are_those_of_the_depth(path, capsys):
    words = ["plan", path, "--model.vocab-size", 31, "--accelerator", "H100", "--depth"]
    assert "\ntraining     30 steps, " in output(capsys, *words, 3).out
    printed = output(capsys, "inspect", path, "--depth", 4, "--rows", 0).out
    assert "training.steps = 40 is " in printed


@pytest.mark.parametrize(
    ("depth", "words"),
    [("0", "depth must be positive, got depth=0"), ("deep", "depth must be an integer, got depth")],
)
def test_mistakes_get_one_line(path, capsys, depth, words):
    printed = one_line(capsys, "train", path, "--depth", depth)
    assert f"{path} with these flags: {words}" in printed


def test_a_config_without_rules_has_no_depth(tmp_path, capsys):
    printed = one_line(capsys, "train", write_config(tmp_path), "--depth", 3)
    assert "depth needs the rules of a table [by_depth], got depth=3" in printed
