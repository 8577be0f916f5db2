"""The command as a process in odd surroundings: it goes on, or says in one line what is wrong."""

import os
import pathlib
import subprocess
import sys

import pytest

from jaxformer.cli import main
from jaxformer.cli.commands import train
from tests.cli.commands import write_config

# -P, because the installed command does not have the working folder on its path, either.
PROGRAM = f"{sys.executable} -P -c 'from jaxformer.cli import main; main()'"
REPOSITORY = pathlib.Path(__file__).parents[2]


def shell(line, cwd=REPOSITORY, **environment):
    """Runs a shell's line, in which jaxformer is the command; a variable of None is not set."""
    # With a buffer, as it is for users: what cannot be written may first be noticed at the end.
    variables = {**os.environ, "PYTHONUNBUFFERED": None, "PYTHONPATH": str(REPOSITORY)}
    variables |= environment
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; jaxformer() {{ {PROGRAM} \"$@\"; }}; {line}"],
        cwd=cwd, capture_output=True, text=True, errors="backslashreplace", timeout=300,
        env={name: value for name, value in variables.items() if value is not None},
    )  # fmt: skip


ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    "line, environment, status, message",
    [
        ("{ sleep 0.2; jaxformer configs; } | true", {}, 141, ""),
        ("{ sleep 0.2; jaxformer --help; } | true", {}, 141, ""),
        ("jaxformer configs", {"COLUMNS": "1", "HOME": None, **ASCII}, 0, ""),
        ("jaxformer train --help", {"COLUMNS": "20", "HOME": "/nowhere", **ASCII}, 0, ""),
        (
            "mkdir gone; cd gone; rmdir ../gone; jaxformer train no.toml",
            {}, 2, "no.toml: there is no such config file",
        ),
    ],
)  # fmt: skip
def test_command_lives_with_its_surroundings(tmp_path, line, environment, status, message):
    done = shell(line, tmp_path, **environment)
    assert done.returncode == status, done.stderr
    assert message in done.stderr and done.stderr.count("\n") == bool(message)


@pytest.mark.slow
def test_training_needs_no_home(tmp_path):
    """And no fonts, in ASCII."""
    config = write_config(tmp_path, cpu=("devices = 2", "cpu_devices = 2"))
    done = shell(
        f"jaxformer train {config} --data.cache cache", tmp_path, HOME="/nowhere",
        XDG_CACHE_HOME="/dev/null/x", MPLBACKEND="no_backend", MPLCONFIGDIR="/dev/null/x",
        JAX_COMPILATION_CACHE_DIR=None, COLUMNS="1", TERM="dumb", **ASCII,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "run" / "samples.txt").exists()
    assert (tmp_path / "run" / "checkpoints" / "20").exists()
    assert "loss curve: not drawn" in done.stdout


def test_neither_figure_nor_samples_cost_a_run(trained, capsys, monkeypatch):
    """Said by the same command once more, which only reports."""

    def broken(*_, **__):
        raise ValueError("no such backend\nand more")

    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("jaxformer.viz.loss_curves", broken)
    monkeypatch.setattr(train, "write_whole", full)
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(trained[0] / "tiny.toml")])
    out, error = capsys.readouterr()
    assert stopped.value.code == 1 and error.count("\n") == 1
    assert "OSError: [Errno 28] No space left on device: " in error and "samples.txt'" in error
    assert "loss curve: not drawn: no such backend\n" in out and "--- 'the d'\nthe d" in out
