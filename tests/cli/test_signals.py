"""A signal ends the command line within seconds, in any phase, without a traceback."""

import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

import pytest

from tests.cli.commands import write_config

# A moment, as the line of output that it follows and seconds after it; None for when signals are
# caught. Loading takes some seconds, and most of what follows a line is compiling.
PHASES = [
    (None, 0.0), (None, 0.3), (None, 1.0), (None, 2.0),  # loading
    ("layers run as", 0.0), ("layers run as", 0.3), ("layers run as", 1.0), ("layers run as", 2.0),
    ("layers run as", 3.0), ("step 5/20", 0.0), ("step 5/20", 0.1), ("step 10/20", 0.0),
    ("step 10/20", 0.3), ("step 10: validation", 0.0), ("step 15/20", 0.0), ("step 20/20", 0.0),
    ("step 20: validation", 0.05), ("step 20: validation", 0.5), ("loss curve", 0.0),
    ("loss curve", 0.5),
]  # fmt: skip


def start(*words, cache=True):
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if not cache:
        environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    return subprocess.Popen(
        [sys.executable, "-m", "jaxformer", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip


def catches_signals(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    caught = int(
        next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16
    )
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def stop(process, number, line, seconds):
    """Sends a signal at a moment, and returns seconds to the exit, and the output."""
    said = []
    while line is None and not catches_signals(process.pid):
        time.sleep(0.001)
    while line is not None:
        said.append(process.stdout.readline())
        assert said[-1], said
        if said[-1].startswith(line):
            break
    time.sleep(seconds)
    assert process.poll() is None, "it came to its end before"
    began = time.monotonic()
    process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    return time.monotonic() - began, "".join(said) + rest


@pytest.mark.slow
def test_20_signals_over_all_phases(tmp_path):
    taken = []
    config = write_config(tmp_path, cpu=("devices = 2", "cpu_devices = 2"))
    for index, (line, seconds) in enumerate(PHASES):
        number = (signal.SIGTERM, signal.SIGINT)[index % 2]
        out = tmp_path / f"run{index}"
        process = start("train", config, "--out", out, cache=False)
        elapsed, said = stop(process, number, line, seconds)
        print(f"{line} + {seconds} s: {number.name}, {elapsed} s: {said.splitlines()[-1:]}")
        assert process.returncode == 128 + number, (line, seconds, said)
        assert "Traceback" not in said and "jaxformer: error" not in said, said
        assert "repeat the command to" in said, said
        taken.append(elapsed)
        if index % 7 != 6:  # one while it compiles, one in steps
            continue
        again = start("train", config, "--out", out)
        rest, _ = again.communicate(timeout=300)
        assert again.returncode == 0, rest
        assert (out / "samples.txt").is_file() and (out / "loss.png").is_file()
    print(f"{min(taken):.2f} / {statistics.median(taken):.2f} / {max(taken):.2f} s to the exit")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_while_loading_ends_without_a_traceback(number):
    elapsed, said = stop(process := start("train", "quickstart"), number, None, 0.1)
    assert process.returncode == 128 + number and elapsed < 5
    stopped = f"jaxformer: stopped by {number.name} before the first step"
    assert said == f"{stopped}; repeat the command to start again\n"
