"""Commands on runs in a bucket, and what becomes of those that are killed there."""

import json
import pathlib
import random
import shutil

import pytest

from jaxformer.cli import main
from jaxformer.storage import files_below
from jaxformer.training import Checkpoints, read_metrics
from jaxformer.training.checkpoints import checkpoint_steps
from tests.cli.commands import one_line, output, write_config
from tests.cli.forks import Forks
from tests.cli.test_hosts import Job, errors, tiny_config
from tests.cli.test_kills import Case
from tests.records import without_meters


def test_every_command_takes_a_run_in_a_bucket(tmp_path, bucket, capsys, monkeypatch):
    """The run is the one on a disk; what is written in the bucket is read there, too."""
    monkeypatch.chdir(tmp_path)
    config, run = write_config(tmp_path), bucket / "runs" / "a"
    printed = output(capsys, "train", config, "--out", run, "--training.steps", 10).out
    assert f"run folder: {run}" in printed and f"loss curve: {run}/loss.png" in printed
    assert "resuming at step 10 of 10" in output(capsys, "train", run).out
    output(capsys, "train", config, "--training.steps", 10)
    assert without_meters(read_metrics(run)) == without_meters(read_metrics(tmp_path / "run"))
    names = {path.partition("/")[0] for path in files_below(run)}
    assert names == {path.name for path in (tmp_path / "run").iterdir()} - {"lock", "tensorboard"}
    prompt = ["the c", "--temperature", "0", "--max-new-tokens", "4"]
    assert output(capsys, "generate", run, *prompt).out == (
        output(capsys, "generate", "run", *prompt).out
    )
    assert output(capsys, "evaluate", run).out == output(capsys, "evaluate", "run").out
    assert "checkpoints/10: good" in output(capsys, "verify", run).out
    output(capsys, "plot", "loss", run, "run", "--output", bucket / "loss.png")
    assert (bucket / "loss.png").read_bytes().startswith(b"\x89PNG")
    output(capsys, "convert", run, bucket / "model")
    assert output(capsys, "generate", bucket / "model", prompt[0], "--max-new-tokens", "4").out
    output(capsys, "convert", bucket / "model", bucket / "runs" / "b")
    output(capsys, "convert", run, bucket / "params.safetensors")
    assert (bucket / "params.toml").is_file()
    more = ["--init-from", run, "--out", bucket / "runs" / "c", "--training.steps", 5]
    assert f"starting from the weights and tokenizers of {run}" in (
        output(capsys, "train", config, *more).out
    )
    assert "there is no such folder" in one_line(capsys, "evaluate", bucket / "runs" / "cc")


def test_mistakes_get_one_line(tmp_path, bucket, capsys):
    config = write_config(tmp_path)
    for out, message in [
        ("s3://bucket/run", "needs s3fs, which is missing; pip install s3fs"),
        (bucket / "a[b]", "which Orbax cannot read, got '['"),
    ]:
        assert message in one_line(capsys, "train", config, "--out", out)
    assert "data.cache must be a folder on this machine" in one_line(
        capsys, "train", config, "--data.cache", bucket / "cache"
    )


def copied(run, folder):
    """A copy of a run in a bucket on a disk."""
    for path in files_below(run):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes((run / path).read_bytes())
    return folder


@pytest.fixture
def forks(bucket):
    """Processes that know of the bucket."""
    with Forks() as forks:
        yield forks


@pytest.mark.slow
def test_25_random_kills(tmp_path, bucket, forks):
    """The run goes on by the same command, and ends bit for bit as one on a disk."""
    case, chance, kills, runs = Case(tmp_path, forks), random.Random(0), 0, 0
    seconds = case.run(bucket / "whole")
    while kills < 25:
        out = bucket / f"run{runs}"
        while kills < 25:
            if case.run(out, kill_after=chance.uniform(0.05, 0.9) * seconds) is not None:
                break
            kills += 1
        else:
            case.run(out)
        case.check(copied(out, tmp_path / out.name))
        runs += 1
    print(f"{kills} kills in {runs} runs")


@pytest.mark.slow
def test_hosts_without_a_shared_disk_train_in_a_bucket(tmp_path, bucket, monkeypatch):
    """One is killed, both are killed; both, and one alone, go on from what two have saved."""
    text = tmp_path / "text.txt"
    config = tiny_config(tmp_path)
    homes = [tmp_path / "first", tmp_path / "second"]
    for home in homes:
        home.mkdir()
        shutil.copy(text, home / "text.txt")
        (home / "tiny.toml").write_text(
            config.read_text().replace(str(text), "text.txt"), encoding="utf-8"
        )
    where = {
        "folders": homes,
        "env": [{"HOME": str(home), "XDG_CACHE_HOME": str(home)} for home in homes],
    }
    run = bucket / "run"
    flags = ("--out", str(run), "--mesh.fsdp", "4")
    with Job("tiny.toml", *flags, "--training.steps", "100000", **where) as job:
        job.wait_for_steps(run, 1)
        while not checkpoint_steps(run / "checkpoints"):
            pass
        job.processes[1].kill()
        job.processes[0].communicate(timeout=240)
    with Job("tiny.toml", *flags, "--training.steps", "100000", **where) as job:
        before = max(checkpoint_steps(run / "checkpoints"))
        while max(checkpoint_steps(run / "checkpoints")) <= before:
            assert [process.poll() for process in job.processes] == [None, None]
        for process in job.processes:
            process.kill()
    saved = max(checkpoint_steps(run / "checkpoints"))
    with Job("tiny.toml", *flags, "--training.steps", str(saved + 4), **where) as job:
        ends = job.ends()
    assert [status for status, *_ in ends] == [0, 0], ends
    assert errors(ends[0][2]) == []
    copy = copied(run, tmp_path / "one")
    with Checkpoints(run / "checkpoints", read_only=True) as checkpoints:
        assert checkpoints.latest_step == saved + 4
    records = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    steps = [record["step"] for record in records if "loss" in record]
    assert steps == list(range(1, saved + 5))
    assert not list(pathlib.Path(homes[1]).glob("run*"))
    for path in files_below(run):
        (bucket / "alone" / path).write_bytes((run / path).read_bytes())
    more = ("--training.steps", str(saved + 8))
    with Job("tiny.toml", *flags, *more, **where) as job:
        assert [status for status, *_ in job.ends()] == [0, 0]
    monkeypatch.chdir(homes[0])
    flags = ("--out", str(bucket / "alone"), "--mesh.fsdp", "4", "--training.devices", "4")
    main(["train", "tiny.toml", *flags, *more])
    together, alone = (without_meters(read_metrics(bucket / name)) for name in ("run", "alone"))
    assert len(together) == len(alone) > len(records)
    for in_bucket, on_disk in zip(together, alone, strict=True):
        assert in_bucket == pytest.approx(on_disk, rel=1e-5, abs=1e-6)
