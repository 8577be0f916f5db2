"""jaxformer sweep: flags with several values, resuming, and what it writes."""

import re
import signal
import subprocess
import sys

import pytest

from jaxformer.cli.commands.sweep import read_sweep
from jaxformer.sweeps import sweep_table
from tests.cli.commands import one_line, output, write_config

FLAGS = ("--optimizer.learning-rate", "1e-2,3e-2", "--seed", "0,1", "--training.steps", 4,
         "--training.devices", 1)  # fmt: skip


@pytest.fixture
def swept(tmp_path, capsys):
    path = write_config(tmp_path)
    return path, output(capsys, "sweep", path, *FLAGS, "--out", tmp_path / "sweep").out


def test_a_sweep_shows_and_writes_its_results(swept, tmp_path, capsys):
    path, out = swept
    folder = tmp_path / "sweep"
    assert out.startswith(f"4 runs, in {folder}\n") and "\na language model" in out
    assert "step 4/4  loss" in out and " in 4 runs  " in out
    header, *rows = out[out.index("\noptimizer.learning_rate  ") :].split("\n\n")[0].split("\n")[1:]
    assert header.split()[:2] == ["optimizer.learning_rate", "validation_loss"]
    assert [row.split()[0] for row in rows] == ["0.01", "0.03"] and "±" in rows[0]
    names = {path.name for path in folder.iterdir()}
    assert names >= {"sweep.png", "learning_rate=0.03,seed=1"}
    drawn = output(capsys, "plot", "sweep", folder, "--output", tmp_path / "a.png").out
    assert drawn == f"{tmp_path / 'a.png'}\n" and (tmp_path / "a.png").stat().st_size > 5000


def test_a_sweep_called_with_another_seed_adds_runs_to_those_that_stand(swept, tmp_path, capsys):
    path, folder = swept[0], tmp_path / "sweep"
    again = output(
        capsys, "sweep", path, "--seed", "1,2", "--out", folder, *FLAGS[:2], *FLAGS[4:]
    ).out  # fmt: skip
    assert "resuming 2 runs at step 4 of 4" in again and "in 2 runs" in again
    assert len(sweep_table(folder).rows[0][1][0]) == 3


def test_a_sweep_has_a_folder_of_its_own_unless_one_is_given(tmp_path):
    path, flags = str(write_config(tmp_path)), {"seed": "0,1", "schedule.name": "cosine,linear"}
    values, _, folder = read_sweep(path, flags)
    assert folder == tmp_path / "run_sweep"
    assert values[-1] == {"seed": 1, "schedule.name": "linear"}
    out = str(tmp_path / "a,b")
    assert read_sweep(path, {**flags, "out": out})[2] == tmp_path / "a,b"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--seed", "1"), "a sweep needs a flag with several values.*--seed 0,1,2"),
        (("oops", "--seed", "1,2"), "jaxformer sweep takes no 'oops'"),
        (("--seed", "1,x"), "seed"),
        (("--sed", "1,2"), "no option --sed; did you mean --seed"),
    ],
)
def test_mistakes_get_one_line(tmp_path, capsys, flags, message):
    assert re.search(message, one_line(capsys, "sweep", write_config(tmp_path), *flags))


@pytest.mark.slow  # four processes
def test_a_killed_sweep_goes_on_to_the_same_losses(swept, tmp_path):
    """SIGTERM saves all runs; SIGKILL leaves them at the checkpoints that stand."""
    path, _ = swept
    changed = ("--training.steps", 40, "--training.checkpoint-every", 5)
    flags = [str(word) for word in (*FLAGS[:4], *FLAGS[6:], *changed)]
    command = [sys.executable, "-m", "jaxformer", "sweep", str(path), *flags, "--out"]
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen(
            [*command, str(tmp_path / "killed")], stdout=subprocess.PIPE, text=True
        )
        seen = next(line for line in process.stdout if line.startswith("step "))
        process.send_signal(number)
        process.communicate()
        assert process.returncode in (128 + number, -number), seen
    for name in ("killed", "whole"):
        subprocess.run([*command, str(tmp_path / name)], check=True, capture_output=True)
    assert sweep_table(tmp_path / "killed") == sweep_table(tmp_path / "whole")
