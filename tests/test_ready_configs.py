"""The configs that come with the project: each loads, says how to run it, and fits any text."""

import dataclasses
import pathlib
import re

import pytest

from jaxformer import runs
from jaxformer.config import load_config

TEXT = "the cat sat on the mat; the dog sat on the log."


def on_any_text(config, folder):
    """The config with a text in which a prompt chosen beforehand would have unknown characters."""
    if config.data.source in ("python", "files"):
        path, line = folder / "text.txt", "{}"
    elif config.data.source in ("pairs", "labelled"):
        path, line = folder / "text.tsv", "{}\t{}"
    else:
        return config
    lines = [line.format(*[f"{part} {i}" for part in (TEXT, "a")]) for i in range(100)]
    if config.data.source == "labelled":
        lines = [f"{TEXT} {i}\t{'ab'[i % 2]}" for i in range(100)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = dataclasses.replace(
        config.data, source="files" if path.suffix == ".txt" else config.data.source,
        paths=(str(path),), validation_paths=(), validation_fraction=0.1,  # ten lines
    )  # fmt: skip
    return dataclasses.replace(config, data=data)


@pytest.mark.parametrize("path", sorted(pathlib.Path("configs").glob("*.toml")), ids=str)
def test_samples_of_ready_configs_fit_any_text(path, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = on_any_text(load_config(path), tmp_path)
    task = runs.task_class(config).prepare(config)
    assert len(task.config.samples.prompts) == 3


@pytest.mark.parametrize("path", sorted(pathlib.Path("configs").glob("*.toml")), ids=str)
def test_ready_configs_load_and_say_how_to_run_them(path):
    config, header = load_config(path), path.read_text(encoding="utf-8")
    assert config.out == f"runs/{path.stem}"
    assert re.search(rf"jaxformer train {path.stem}(?!\w)", header)
    for word in ("Command:", "Expected:", "Time:"):
        assert word in header


@pytest.mark.parametrize("path", sorted(pathlib.Path("configs").glob("*.toml")), ids=str)
def test_samples_of_ready_configs_follow_the_context(path):
    """Else --model.max-len of less than that would need a second flag."""
    assert load_config(path).samples.max_new_tokens is None
