"""Command lines, configs and files that nobody means, each with a name."""

import gzip
import os
import socket

from jaxformer.cli.flags import settings
from jaxformer.config import load_config
from tests.cli.commands import CONFIG, TEXT

# What is given for options and keys, whatever these take.
VALUES = {
    "empty": "",
    "negative": "-1",
    "zero": "0",
    "minus zero": "-0.0",
    "nan": "nan",
    "inf": "inf",
    "overflow": "1e400",
    "tiny": "5e-324",
    "billion": "1000000000",
    "trillion": "1000000000000",
    "thirty digits": "1" + "0" * 30,
    "5000 digits": "9" * 5000,
    "escape": "\x1b]0;x\x07\x1b[31m",
    "bytes": "\udcff\udcfe",
    "long": "x" * 100_000,
    "device": "/dev/zero",
    "fifo": "fifo",
    "loop": "loop",
    "folder": "..",
    "brackets": "[[[[{{{{",
    "dots": "a." * 30_000 + "a",
    "none": "None",
    "list": "1,2,3",
}

# Keys whose bounds or estimates refuse what would take all memory or time.
SIZES = [
    ("model.d_model", "1000000000"), ("model.d_model", "16777216"), ("model.d_model", "100000"),
    ("model.max_len", "1000000000000"), ("model.max_len", "2147483647"),
    ("model.vocab_size", "1000000000"), ("model.vocab_size", "2147483647"),
    ("model.num_heads", "1000000000"), ("model.head_dim", "2000000000"),
    ("model.d_ff", "2147483647"), ("training.batch_size", "100000000000000000000"),
    ("training.batch_size", "2147483640"), ("training.steps", "1" + "0" * 30),
    ("training.steps", "2147483648"), ("training.devices", "1000000000"),
    ("training.cpu_devices", "1000000"), ("training.accumulate_steps", "2147483647"),
    ("seed", "-1"), ("seed", "2147483648"), ("seed", "1" + "0" * 30),
    ("samples.max_new_tokens", "1000000000000"), ("samples.top_k", "1" + "0" * 30),
    ("schedule.decay_steps", "1" + "0" * 30), ("schedule.warmup_steps", "1" + "0" * 30),
    ("data.num_buckets", "1000000000"), ("data.validation_fraction", "1e-300"),
]  # fmt: skip

# Configs as files: what TOML can say and a flag cannot.
TOML = {
    "empty": "",
    "no TOML": "\x00\x01\x02",
    "nested arrays": "a = " + "[" * 50_000,
    "closed nested arrays": "a = " + "[" * 50_000 + "]" * 50_000,
    "nested tables": "a = " + "{a = " * 50_000,
    "5000 digits": "seed = " + "9" * 5000,
    "float of 400 digits": CONFIG.replace("3e-2", "1" + "0" * 400),
    "10,000 layers": CONFIG + "[[model.layers]]\n" * 10_000,
    "10,000 first layers": CONFIG + "[[model.first_layers]]\n" * 10_000,
    "NUL in a path": CONFIG.replace("{text}", "a\\u0000b"),
    "NUL in out": CONFIG.replace("{out}", "a\\u0000b"),
    "escapes in out": CONFIG.replace('"{out}"', '"{text}/\\u001b[31m\\u202e"'),
    "FIFO as text": CONFIG.replace("{text}", "fifo"),
    "socket as text": CONFIG.replace("{text}", "socket"),
    "loop of links as text": CONFIG.replace("{text}", "loop"),
    "device as text": CONFIG.replace("{text}", "/dev/zero"),
    "terminal as text": CONFIG.replace("{text}", "/dev/tty"),
    "folder as text": CONFIG.replace("{text}", "."),
    "gzip bomb as text": CONFIG.replace("{text}", "bomb.gz"),
    "text of zeros": CONFIG.replace("{text}", "zeros.txt"),
    "nothing but spaces": CONFIG.replace("{text}", "spaces.txt"),
    "no list of paths": CONFIG.replace('["{text}"]', "{a = 1}"),
    "path of a number": CONFIG.replace('["{text}"]', "[1e400]"),
    "run of a FIFO": CONFIG.replace("[data]", 'init_from = "fifo"\n[data]'),
    "run of itself": CONFIG.replace("[data]", 'init_from = "{out}"\n[data]'),
    "huge vocabulary": CONFIG.replace('"character"', '"bpe"\nvocab_size = 2147483647'),
    "date for a number": CONFIG.replace("3e-2", "1979-05-27T07:32:00Z"),
    "bool for a number": CONFIG.replace("3e-2", "true"),
    "table for a number": CONFIG.replace("3e-2", "{a.b.c.d = [[[1]]]}"),
}  # fmt: skip

# Those that Python refuses, in its own words.
RAISED = {
    "NUL in a path", "NUL in out", "nested arrays", "closed nested arrays", "nested tables",
    "float of 400 digits",
}  # fmt: skip

# What is said of those that something else could refuse as well, only later.
SAID = {
    "NUL in out": "embedded null character",
    "FIFO as text": "it is a FIFO",
    "gzip bomb as text": "text must be UTF-8, got 0x00",
    "nothing but spaces": "must have text",
    "run of itself": "must be another run than out",
}

# Words that are no options of any command.
WORDS = [
    [""], ["--"], ["-"], ["\0"], ["\udcff"], ["--help", "--help", "x"], ["x" * 100_000],
    ["train"], ["train", "--"], ["train", ""], ["train", "-"], ["train", "--x"],
    ["train", "quickstart", "--"], ["train", "quickstart", "-"], ["train", "quickstart", "x"],
    ["train", "quickstart", "--" + "a." * 30_000 + "a", "1"], ["train", "quickstart", "--model"],
    ["train", "quickstart", "--model.layers", "1"], ["train", "quickstart", "--=1"],
    ["train", "quickstart", "--model.d-model"], ["train", "quickstart", "--model.positions="],
    ["train", "quickstart", *["--seed", "1"] * 3000, "--seed", "x"],
    ["train", "/dev/zero"], ["train", "fifo"], ["train", "loop"], ["train", "socket"],
    ["train", "/dev/tty"], ["train", ".."], ["train", "x/" * 2000], ["train", "zeros.txt"],
    ["configs", "../../etc/passwd"], ["configs", "--name", "x"], ["plot"], ["plot", "loss"],
    ["plot", "loss", *["no_run"] * 2000], ["plot", "pictures"], ["evaluate"], ["generate"],
    ["translate", "fifo", "hello"], ["predict", "/dev/zero", "hello"], ["evaluate", "loop"],
    ["evaluate", ""], ["evaluate", "\x1b[31m"], ["evaluate", "x" * 5000],
]  # fmt: skip


def of_command(command, run, options):
    """Each option of a command with each value."""
    return {
        f"{' '.join(command)} --{option} {name}": [*command, *run, f"--{option}={value}"]
        for option in options
        for name, value in VALUES.items()
    }


def of_text(words):
    """A command with each value as its text."""
    return {f"{words[0]} text {name}": [*words, "--", value] for name, value in VALUES.items()}


def options_of_runs(run):
    """The commands that open a run, with each option and value."""
    prompt = ["the c", "--max-new-tokens", "2"]
    sampling = ("repetition-penalty", "temperature", "top-k", "top-p", "min-p")
    commands = of_command(["generate"], [run, *prompt], ("seed", "step", *sampling))
    commands |= of_command(["generate"], [run, "the c"], ("max-new-tokens",))
    commands |= of_text(["generate", run, "--max-new-tokens", "2"])
    commands |= of_command(["evaluate"], [run], ("data", "step"))
    commands |= of_command(["plot", "positions"], [run], ("length", "step", "output"))
    commands |= of_command(["plot", "loss"], [run], ("output",))
    commands |= of_command(["plot", "profile"], [run], ("output",))
    commands |= of_text(["plot", "attention", run])
    commands |= of_command(["plot", "attention"], [run, "the c"], ("output", "target"))
    return commands


def options_of_translators(run):
    """The commands of a translator, with each option and value."""
    search = ("beam-size", "num-best", "length-penalty", "early-stopping")
    commands = of_command(["translate"], [run, "aa"], (*search, "step"))
    return commands | of_command(["translate"], [run], ("file",))


def options_of_training(config):
    """Each key of a config, with two of the values in turn, and the sizes that are too large."""
    names, commands = list(VALUES), {}
    keys = [key for key, _, _ in settings(load_config(config))]
    for place, key in enumerate(keys):
        for name in (names[2 * place % len(names)], names[(2 * place + 1) % len(names)]):
            words = ["train", str(config), f"--{key.replace('_', '-')}={VALUES[name]}"]
            commands[f"train --{key} {name}"] = words
    return commands


def write_files(folder):
    """Files that hang, loop or explode where they are read without care."""
    os.mkfifo(folder / "fifo")
    os.symlink("loop", folder / "loop")
    (folder / "bomb.gz").write_bytes(gzip.compress(bytes(2**28), 9))
    (folder / "zeros.txt").write_bytes(bytes(1000))
    (folder / "spaces.txt").write_bytes(b" \n" * 1000)
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    here = os.getcwd()
    os.chdir(folder)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as connection:
        connection.bind("socket")
    os.chdir(here)
