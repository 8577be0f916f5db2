"""Command lines that nobody means, each with a name."""

from jaxformer.cli.experiment import flag_keys

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
    """Each key of a config, with two of the values in turn."""
    names, commands = list(VALUES), {}
    for place, key in enumerate(flag_keys()):
        for name in (names[2 * place % len(names)], names[(2 * place + 1) % len(names)]):
            words = ["train", str(config), f"--{key.replace('_', '-')}={VALUES[name]}"]
            commands[f"train --{key} {name}"] = words
    return commands
