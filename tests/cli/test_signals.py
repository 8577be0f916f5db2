"""A signal ends the command line: training saves first; the rest ends as any program does."""

import os
import signal
import statistics
import subprocess
import sys
import time

import pytest

from tests.cli.commands import write_config

# A moment, as the line of output that it follows and seconds after it. The first line follows
# compiling.
PHASES = [
    ("attention:", 0.0), ("step 5/20", 0.0), ("step 5/20", 0.1), ("step 10/20", 0.0),
    ("step 10/20", 0.3), ("step 10: validation", 0.0), ("step 15/20", 0.0),
]  # fmt: skip


def start(*words, cache=True):
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if not cache:
        environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    return subprocess.Popen(
        [sys.executable, "-m", "jaxformer", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip


def stop(process, number, line, seconds):
    """Sends a signal at a moment, and returns seconds to the exit, and the output."""
    lines = []
    while not lines or not lines[-1].startswith(line):
        lines.append(process.stdout.readline())
        assert lines[-1], lines
    time.sleep(seconds)
    assert process.poll() is None, "it came to its end before"
    began = time.monotonic()
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    return time.monotonic() - began, "".join(lines) + output


@pytest.mark.slow
def test_signals_over_all_phases_of_training(tmp_path):
    taken = []
    config = write_config(tmp_path, cpu=("devices = 2", "cpu_devices = 2"))
    for index, (line, seconds) in enumerate(PHASES):
        number = (signal.SIGTERM, signal.SIGINT)[index % 2]
        out = tmp_path / f"run{index}"
        process = start("train", config, "--out", out, cache=False)
        elapsed, text = stop(process, number, line, seconds)
        print(f"{line} + {seconds} s: {number.name}, {elapsed} s: {text.splitlines()[-1:]}")
        assert process.returncode == 128 + number, (line, seconds, text)
        assert "Traceback" not in text and "jaxformer: error" not in text, text
        assert f"stopped by {number.name} at step" in text, text
        taken.append(elapsed)
        if index % 4 != 3:
            continue
        again = start("train", config, "--out", out)
        output, _ = again.communicate(timeout=300)
        assert again.returncode == 0, output
        assert (out / "samples.txt").is_file() and (out / "loss.png").is_file()
    print(f"{min(taken):.2f} / {statistics.median(taken):.2f} / {max(taken):.2f} s to the exit")
