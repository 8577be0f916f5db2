"""Several processes on this computer, as on several hosts: with two devices each, over loopback."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from jaxformer.cli import main
from jaxformer.cli.commands import COMMANDS
from jaxformer.cli.parsing import Command
from jaxformer.config import TranslationConfig, config_to_toml
from jaxformer.config.training import Launch
from jaxformer.training import Checkpoints, read_metrics
from tests.cli.commands import one_line, write_config
from tests.records import without_meters
from tests.runs import test_translation, tiny

LIMIT = 240  # seconds, after which what hangs has failed
HOST_TIMEOUT = 10  # seconds


def tiny_config(folder, **changes):
    """A config of 8 steps without dropout, evaluated and saved after 4 and 8."""
    return write_config(
        folder,
        devices=("devices = 2\n", 'runner = "mesh"\n'),
        dropout=("dropout_rate = 0.1", "dropout_rate = 0.0"),
        layers=("num_layers = 2", "num_layers = 1"),
        length=("max_len = 32", "max_len = 16"),
        width=("d_model = 16", "d_model = 8"),
        steps=("steps = 20", "steps = 8"),
        log=("log_every = 5", "log_every = 1"),
        evaluate=("eval_every = 10", "eval_every = 4"),
        save=("checkpoint_every = 10", "checkpoint_every = 4"),
        prompts=('["the c", "the d", "on"]', '["on"]'),
        **changes,
    )


class Job:
    """Two processes of `jaxformer train`, or the first; flags and folders are for each of them."""

    def __init__(
        self, config, *words, flags=((), ()), folders=(None, None), env=({}, {}), alone=False
    ):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "jaxformer", "train", str(config),
                 "--training.cpu-devices", "2", "--coordinator", f"127.0.0.1:{port}",
                 "--num-processes", "2", "--process-id", str(process),
                 "--host-timeout", str(HOST_TIMEOUT), *words, *flags[process]],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                cwd=folders[process], env={**os.environ, "JAX_PLATFORMS": "cpu", **env[process]},
            )
            for process in range(1 if alone else 2)
        ]  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()

    def wait_for_steps(self, folder, count):
        """Waits until so many steps are in the metrics."""
        deadline = time.monotonic() + LIMIT
        while len(read_metrics(folder)) < count:
            assert time.monotonic() < deadline
            assert [process.poll() for process in self.processes] == [None, None]
            time.sleep(0.1)

    def ends(self):
        """(status, standard output, standard error) of each process."""
        outputs = [process.communicate(timeout=LIMIT) for process in self.processes]
        statuses = [process.returncode for process in self.processes]
        return [(status, *texts) for status, texts in zip(statuses, outputs, strict=True)]


def own_lines(text):
    """Lines that are not written by the C++ of JAX, which reports its connections."""
    return [line for line in text.splitlines() if not re.search(r"\[Gloo]|peer ranks", line)]


def errors(text):
    return [line for line in text.splitlines() if line.startswith("jaxformer: ")]


@pytest.mark.slow
def test_two_processes_train_as_one_with_their_devices_which_resumes_their_run(tmp_path, capsys):
    config = tiny_config(tmp_path)
    with Job(config) as job:
        (first, printed, _), (second, silent, complaints) = job.ends()
    assert (first, second) == (0, 0)
    assert own_lines(silent) == [] and errors(complaints) == []
    assert "step 8: validation loss" in printed and "run folder:" in printed
    main(["train", str(config), "--training.devices", "4", "--out", str(tmp_path / "one")])
    together, alone = (without_meters(read_metrics(tmp_path / name)) for name in ("run", "one"))
    assert len(together) == len(alone) == 10
    for together_record, alone_record in zip(together, alone, strict=True):
        assert together_record == pytest.approx(alone_record, rel=1e-6, abs=1e-6)
    more = ["--training.devices", "4", "--training.steps", "10"]
    main(["train", str(config), *more])
    main(["train", str(config), *more, "--out", str(tmp_path / "one")])
    assert "resuming at step 8 of 10" in capsys.readouterr().out
    together, alone = (read_metrics(tmp_path / name)[-1] for name in ("run", "one"))
    assert together["step"] == alone["step"] == 10
    assert together["validation_loss"] == pytest.approx(alone["validation_loss"], rel=1e-6)


@pytest.mark.slow
def test_model_that_is_split_over_both_processes_is_scored_sampled_and_started_from(tmp_path):
    """Each process decodes with its own devices, and reads no more than its part of a start."""
    tiny.write(tmp_path / "pairs.tsv", test_translation.LINES)
    translation = test_translation.config(
        tmp_path, translation=TranslationConfig(metrics_pairs=3),
        training={"runner": "auto", "steps": 4, "eval_every": 4, "checkpoint_every": 4},
    )  # fmt: skip
    config = tmp_path / "tiny.toml"
    config.write_text(config_to_toml(translation), encoding="utf-8")
    with Job(config, "--mesh.fsdp", "4") as job:
        ends = job.ends()
    assert [status for status, *_ in ends] == [0, 0], ends
    assert errors(ends[0][2]) == [] and "\n--- " in ends[0][1]
    main(["train", str(config), "--mesh.fsdp", "4", "--training.devices", "4",
          "--out", str(tmp_path / "one")])  # fmt: skip
    together, alone = (read_metrics(tmp_path / name)[-1] for name in ("run", "one"))
    for name in ("validation_loss", "bleu", "chrf", "exact"):
        assert together[name] == pytest.approx(alone[name], rel=1e-5), name
    with Job(config, "--mesh.fsdp", "4", "--init-from", str(tmp_path / "run"), "--out",
             str(tmp_path / "next"), "--optimizer.learning-rate", "1e-30") as job:  # fmt: skip
        ends = job.ends()
    assert [status for status, *_ in ends] == [0, 0], ends
    after = read_metrics(tmp_path / "next")[-1]["validation_loss"]
    assert after == pytest.approx(together["validation_loss"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [(), ("--mesh.sequence", "4")], ids=["rows", "one row on both"])
def test_a_signal_to_one_process_stops_both_at_the_same_saved_step(tmp_path, mesh):
    folder = tmp_path / "run"
    with Job(tiny_config(tmp_path), "--training.steps", "100000", *mesh) as job:
        job.wait_for_steps(folder, 6)
        job.processes[1].send_signal(signal.SIGTERM)
        ends = job.ends()
    assert [status for status, *_ in ends] == [143, 143]
    steps = [re.findall(r"stopped by SIGTERM at step (\d+), saved in", text) for *_, text in ends]
    assert len(steps[0]) == 1 and steps[0] == steps[1]
    with Checkpoints(folder / "checkpoints", read_only=True) as checkpoints:
        assert checkpoints.latest_step == int(steps[0][0])


@pytest.mark.slow
@pytest.mark.parametrize("killed", [1, 0])
def test_processes_end_in_time_when_one_is_killed(tmp_path, killed):
    folder = tmp_path / "run"
    with Job(tiny_config(tmp_path), "--training.steps", "100000") as job:
        job.wait_for_steps(folder, 8)
        job.processes[killed].kill()
        left, began = job.processes[1 - killed], time.monotonic()
        left.communicate(timeout=LIMIT)
        assert left.returncode != 0 and time.monotonic() - began < 2 * HOST_TIMEOUT + 10


@pytest.mark.slow
def test_copies_of_a_run_folder_are_not_taken_for_one_that_is_shared(tmp_path):
    """As on hosts whose disks are their own: the second process resumes a copy."""
    config, copy = tiny_config(tmp_path), tmp_path / "copy"
    main(["train", str(config), "--training.devices", "2", "--training.steps", "4"])
    shutil.copytree(tmp_path / "run", copy / "run")
    with Job(config, "--out", "run", folders=(tmp_path, copy)) as job:
        ends = job.ends()
    assert [status for status, *_ in ends] == [2, 2]
    assert "must be on a file system that all hosts share" in errors(ends[1][2])[0]


def test_unequal_hosts_are_named_in_one_line_by_each(tmp_path):
    config = tiny_config(tmp_path)
    with Job(config, flags=((), ("--seed", "7", "--training.batch-size", "16"))) as job:
        ends = job.ends()
    assert [status for status, *_ in ends] == [2, 2]
    for _, printed, text in ends:
        (line,) = errors(text)
        assert own_lines(printed) == []
        assert "all hosts must have the same versions, devices and config: " in line
        assert re.search(r"seed is not set on process 0 \(.+\), 7 on process 1", line)
        assert re.search(r"training.batch_size is 8 on process 0 \(.+\), 16 on process 1", line)
    assert not (tmp_path / "run").exists()


LAUNCH = {
    "--num-processes two": "--num-processes must be an integer, got 'two'",
    "--process-id": "argument --process-id: expected one argument",
    "--host-timeout 1": "--host-timeout must be at least 5, got 1",
    **dict.fromkeys(
        (
            "--process-id 1", "--coordinator auto --num-processes 2",
            "--num-processes 2 --process-id 0 --coordinator here",
            "--num-processes 2 --process-id 2 --coordinator here:1",
            "--num-processes 0 --process-id 0 --coordinator here:1",
        ),
        "or --coordinator auto alone; got coordinator=",
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", LAUNCH)
def test_flags_of_the_launch_are_checked(tmp_path, capsys, words):
    assert LAUNCH[words] in one_line(capsys, "train", write_config(tmp_path), *words.split())
    assert not (tmp_path / "run").exists()


def test_flags_of_the_launch_are_taken_out_of_those_of_the_config():
    words = ["c", "--coordinator=h:1", "--num_processes=1", "--process-id", "0", "--seed", "1"]
    values = Command.of("train", COMMANDS["train"]).parse(words)
    assert values["launch"] == Launch(coordinator="h:1", num_processes=1, process_id=0)
    assert values["flags"] == {"seed": 1}


def test_launch_files_are_whole():
    folder = pathlib.Path(__file__).parents[2] / "experiments" / "launch"
    jobs = {"slurm.sh", "tpu_pod.sh", "gke_jobset.yaml"}  # on several hosts
    paths = [path for path in folder.iterdir() if path.suffix in (".sh", ".yaml")]
    assert {path.name for path in paths} == jobs | {"first_hour_gpu.sh", "first_hour_tpu.sh"}
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert "# CHANGE: " in text and "jaxformer" in text
        assert (re.search("--coordinator[^a-z]+auto", text) is not None) == (path.name in jobs)
    for path in folder.glob("*.sh"):
        for linter in (["bash", "-n"], ["shellcheck"]):
            if any(os.access(f"{at}/{linter[0]}", os.X_OK) for at in os.get_exec_path()):
                done = subprocess.run([*linter, path], capture_output=True, text=True)
                assert done.returncode == 0, done.stdout + done.stderr
