"""jaxformer plot, on the smallest trained runs."""

import json
import re

import pytest

from jaxformer import viz
from jaxformer.training import read_metrics
from tests.cli.commands import one_line, output, write_config
from tests.runs import tiny

STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.fixture
def drawn(monkeypatch):
    """The calls of the functions that draw: (name, arguments, options, figure)."""
    calls = []

    def spy(name, draw):
        def call(*arguments, **options):
            figure = draw(*arguments, **options)
            calls.append((name, arguments, options, figure))
            return figure

        return call

    for name in viz.__all__:
        monkeypatch.setattr(viz, name, spy(name, getattr(viz, name)))
    return calls


def lines(figure):
    return {line.get_label(): line.get_xydata().tolist() for line in figure.axes[0].lines}


@pytest.mark.parametrize("suffix", [".png", ".svg", ".PNG"])
def test_suffix_of_the_output_decides_the_format(translation_run, tmp_path, capsys, suffix):
    path = tmp_path / f"loss{suffix}"
    printed = output(capsys, "plot", "loss", translation_run[0], "--output", path)
    assert printed.out == f"{path}\n" and printed.err == ""
    assert path.read_bytes().startswith(STARTS[suffix.lower()])


def test_losses_are_those_that_the_run_recorded(translation_run, tmp_path, capsys, drawn):
    folder = translation_run[0]
    output(capsys, "plot", "loss", folder, "--output", tmp_path / "loss.png")
    ((name, _, _, figure),) = drawn
    records = read_metrics(folder)
    assert name == "loss_curves" and lines(figure) == {
        "training": [[r["step"], r["loss"]] for r in records if "loss" in r],
        "validation": [
            [r["step"], r["validation_loss"]] for r in records if "validation_loss" in r
        ],
    }
    assert figure.axes[0].get_ylabel() == "loss (nats per token)"
    assert figure.axes[0].get_title() == "Loss of run"


def test_runs_of_one_name_are_named_by_their_folders(translation_run, tmp_path, capsys, drawn):
    folders = translation_run[0], tmp_path / "other" / "run"
    tiny.put_config(folders[1], (folders[0] / "config.toml").read_text())
    (folders[1] / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n')
    output(capsys, "plot", "loss", *folders, "--output", tmp_path / "loss.png")
    ((_, (runs_drawn,), _, figure),) = drawn
    assert runs_drawn == {str(folder): read_metrics(folder) for folder in folders}
    assert figure.axes[0].get_title() == "Losses of several runs"


def test_run_under_way_needs_its_folder_only(
    classification_run, tmp_path, capsys, drawn, monkeypatch
):
    """Without a checkpoint; and the files are in the current folder where none are named."""
    young = tmp_path / "young"
    tiny.put_config(young, (classification_run[0] / "config.toml").read_text(encoding="utf-8"))
    assert "got 0 of 'young' without any" in one_line(capsys, "plot", "loss", young)
    record = json.dumps({"step": 3, "loss": 1.25})
    (young / "metrics.jsonl").write_text(f'{record}\n{{"step": 4, "lo', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert output(capsys, "plot", "loss", "young").out == "loss.png\n"
    assert (tmp_path / "loss.png").is_file()
    figure = drawn[-1][-1]
    assert lines(figure) == {"training": [[3, 1.25]]}
    assert figure.axes[0].get_ylabel() == "loss (nats per text)"


def test_profile_of_a_training_is_drawn_and_printed(tmp_path, capsys, drawn):
    config = write_config(tmp_path)
    printed = output(capsys, "train", config, "--training.steps", 4, "--profile", "2:4").out
    assert re.search(r"\nwall time \d+\.\d s: .*steps \d+\.\d s \(\d+%\)", printed)
    run, picture = tmp_path / "run", tmp_path / "profile.png"
    *lines, last = output(capsys, "plot", "profile", run, "--output", picture).out.splitlines()
    printed = " ".join(" ".join(lines).split())
    assert re.match(r"device .*attention [\d.]+ m?s.* per step host .*", printed)
    assert re.search(r"host .*waiting for data [\d.]+ m?s.* per step$", printed)
    assert last == str(picture) and picture.read_bytes().startswith(STARTS[".png"])
    figure = drawn[-1][-1]
    title = "run: time per training step\n(summed over operations; steps traced: 2)"
    assert figure.axes[0].get_title() == title
    assert output(capsys, "verify", run).out


def test_steps_to_profile_that_are_none_are_refused(tmp_path, capsys):
    words = ("train", write_config(tmp_path), "--training.steps", 4, "--profile")
    assert "--profile must be steps FIRST:END, such as 20:25" in one_line(capsys, *words, "5")
    message = "must be consecutive and in 1 .. 4, got range(3, 9); try 2:5"
    assert message in one_line(capsys, *words, "3:9")


def test_mistakes_of_plot_get_one_line(
    translation_run, classification_run, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run, texts = translation_run[0], classification_run[0]
    for words, message in (
        (["loss"], "plot loss needs RUN [RUN ...]: run folders, such as"),
        (["loss", "absent"], "absent is not a run folder: there is no such folder"),
        (["loss", tmp_path], "is not a run folder: it has no config.toml"),
        (["loss", run, texts], f"got nats per token for {run} and nats per text for {texts}"),
        (["attention", "absent", "a"], "absent is not a run folder"),
        (["attention", run, "a", "--step", 7], "no checkpoint of step 7"),
        (["attention"], "plot attention"),
        (["profile", run], "has no trace of steps; train with --profile 20:25"),
        (["profile", "absent"], "absent has no trace of steps"),
        ([], "one of loss, sweep, profile, attention, got none (see"),
    ):
        assert message in one_line(capsys, "plot", *words)
    words = ("plot", "loss", run, "--output", "no/a.png")
    assert "No such file or directory: 'no/.a.png." in one_line(capsys, *words, status=1)
    assert not list(tmp_path.iterdir())
