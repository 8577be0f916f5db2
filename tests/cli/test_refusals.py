"""What jaxformer train refuses before the first step, in one line."""

import pytest

from tests.cli.commands import one_line, write_config

CHANGES = {
    ("num_heads = 2", "num_head = 2"): "unknown key model.num_head; did you mean 'num_heads'",
    ("batch_size = 8", "batch_size = 9"): "must be a multiple of devices * accumulate_steps",
    ("devices = 2", "devices = 99"): "training.devices=99, but this machine has 8",
    ("paths =", "validation_paths ="): "'files' needs data.paths",
    ("text.txt", "absent.txt"): "absent.txt",
    ("max_len = 32", "max_len = 32\nvocab_size = 3"): "vocab_size must be at least",
    ('"the d"', '"the D"'): "samples.prompts has 'the D': every character must be",
    ("max_new_tokens = 12", "max_new_tokens = 30"): "samples.prompts has 'the c'",
}


@pytest.mark.parametrize("change", CHANGES)
def test_config_mistakes_get_one_line(tmp_path, capsys, change):
    assert CHANGES[change] in one_line(capsys, "train", write_config(tmp_path, change=change))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "empty"), (b"caf\xe9 au lait " * 50, "UTF-8")]
)
def test_unusable_text_gets_one_line(tmp_path, capsys, content, message):
    config = write_config(tmp_path)
    (tmp_path / "text.txt").write_bytes(content)
    error = one_line(capsys, "train", config)
    assert message in error and "text.txt" in error


def test_wrong_override_names_the_option_and_the_command_that_lists_all(capsys):
    for command in ("train", "prepare", "sweep", "plan", "inspect"):
        error = one_line(capsys, command, "quickstart", "--model.num-head", "4")
        assert f"mean --model.num-heads? jaxformer {command} --help-all lists" in error


def test_impossible_override_is_a_mistake_too(tmp_path, capsys):
    error = one_line(capsys, "train", write_config(tmp_path), "--model.d-model", "15")
    assert "tiny.toml with these flags: [model] d_model must be a multiple of num_heads" in error
    assert error.rstrip().endswith("change one of them, or set head_dim")


@pytest.mark.parametrize(
    ("out", "message", "status"),
    [
        ("text.txt/run", "cannot be a run folder", 2),
        ("text.txt", "Not a directory", 2),
        ("x" * 300, "File name too long", 1),
    ],
)
def test_impossible_out_gets_one_line(tmp_path, capsys, out, message, status):
    config = write_config(tmp_path)
    assert message in one_line(capsys, "train", config, "--out", tmp_path / out, status=status)
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", "tiny.toml"}


def test_validation_text_may_not_be_trained_on(tmp_path, capsys):
    change = ("[tokenizer]", f'validation_paths = ["{tmp_path / "text.txt"}"]\n[tokenizer]')
    config = write_config(tmp_path, change=change)
    assert "other files than data.paths" in one_line(capsys, "train", config)


MISTYPED = {
    "trian --lr 3": "got 'trian'; did you mean 'train'? (see jaxformer --help)",
    "plot los": "jaxformer plot must be one of loss, sweep, profile, attention, got "
                "'los'; did you mean 'loss'? (see jaxformer plot --help)",
    "xyz": "got 'xyz' (see jaxformer --help)",
    "train --seed 3": "jaxformer train needs CONFIG: config file, name",
    "generate run --seed x": "--seed must be an integer, got 'x'\n",
    "generate run --top-kk 3": "no option --top-kk; did you mean --top-k?",
    "verify run again": "jaxformer verify takes no 'again'; see jaxformer verify",
    "train quickstart --model.activation SwiGLU": "did you mean 'swiglu'?\n",
    "train quickstart --model.norm xyz": "model.norm must be one of layer_norm, rms_norm, got 'x",
}  # fmt: skip


@pytest.mark.parametrize("words", MISTYPED)
def test_mistyped_commands_flags_and_choices_are_answered_with_what_was_meant(capsys, words):
    assert MISTYPED[words] in one_line(capsys, *words.split())
