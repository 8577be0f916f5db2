"""Files, configs and calls of the command line that several files of tests make."""

import pytest

from jaxformer.cli import main

TEXT = "the cat sat on the mat; the dog sat on the log.\n" * 40

CONFIG = """
out = "{out}"
[data]
source = "files"
paths = ["{text}"]
validation_fraction = 0.2
[tokenizer]
kind = "character"
[model]
max_len = 32
num_layers = 2
layer_execution = "scan"
d_model = 16
num_heads = 2
dropout_rate = 0.1
[optimizer]
learning_rate = 3e-2
[schedule]
name = "cosine"
warmup_steps = 2
decay_steps = 30
[training]
steps = 20
batch_size = 8
devices = 2
log_every = 5
eval_every = 10
checkpoint_every = 10
[samples]
prompts = ["the c", "the d", "on"]
max_new_tokens = 12
temperature = 0.8
top_k = 5
"""


def write_config(folder, **changes):
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    values = {"out": folder / "run", "text": folder / "text.txt"}
    text = CONFIG.format(**{key: value.as_posix() for key, value in values.items()})
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new, 1)
    path = folder / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return path


def split_lines(folder):
    """Writes each line of the text to a file of its own: several documents."""
    (folder / "texts").mkdir()
    for index, line in enumerate(TEXT.splitlines()):
        path = folder / "texts" / f"{index:02}.txt"
        path.write_text(f"{index} {line}\n", encoding="utf-8")


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def output(capsys, *words):
    """What a command that succeeds writes to standard output and to standard error."""
    capsys.readouterr()
    main([str(word) for word in words])
    return capsys.readouterr()


def one_line(capsys, *words, status=2):
    """Runs a command that must fail, by default as a user's mistake, and returns its one line."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    printed = capsys.readouterr()
    assert stopped.value.code == status and printed.out == ""
    error = printed.err
    assert error.count("\n") == 1 and error.startswith("jaxformer: error: "), error
    return error
