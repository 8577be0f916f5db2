"""Configs of the smallest runs, files that they are trained on, and finished runs."""

import contextlib
import dataclasses
import fcntl
import io
import json
import logging
import os
import pathlib
import shutil

import chex
import jax
import numpy as np
import pytest

from jaxformer import runs, text
from jaxformer.cli import main
from jaxformer.config import (
    AdamWConfig,
    DataConfig,
    ExperimentConfig,
    ModelConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainingConfig,
    config_to_toml,
    load_config,
)
from jaxformer.runs.folder.files import write_folder_manifest

SENTENCES = [
    f"the {animal} sat on the {place}" for animal in ("cat", "dog") for place in ("mat", "log")
]
_WORDS = ["cat", "dog", "mat", "log", "sat", "ran", "on", "to", "the", "a"]
_RNG = np.random.default_rng(0)
TEXTS = [" ".join(_RNG.choice(_WORDS, 30)) + "." for _ in range(40)]


def config(folder, *, architecture, data, tokenizer=None, model=None, training=None, **fields):
    """An experiment of one layer on one device, in the folder's run."""
    unequal = data["source"] not in ("files", "python", "tokens", "conversations")
    return ExperimentConfig(
        out=str(folder / "run"),
        model=ModelConfig(
            **{
                "architecture": architecture, "max_len": 12, "num_layers": 1, "d_model": 16,
                "num_heads": 2, "dropout_rate": 0.1, "layer_execution": "loop",
            } | (model or {})
        ),
        data=DataConfig(**({"num_buckets": 1} if unequal else {}) | data),
        tokenizer=TokenizerConfig(**{"kind": "word"} | (tokenizer or {})),
        optimizer=AdamWConfig(learning_rate=2e-2),
        schedule=fields.pop("schedule", ScheduleConfig(name="constant")),
        training=TrainingConfig(
            **{
                "steps": 20, "runner": "single", "log_every": 5, "eval_every": 10,
                "checkpoint_every": 10,
                "batch_tokens" if unequal else "batch_size": 96 if unequal else 8,
            } | (training or {})
        ),
        **fields,
    )  # fmt: skip


def write_bodies(path, texts):
    """Writes JSON Lines, each with a text under "body"; returns the path."""
    return write(path, (json.dumps({"body": body}) for body in texts))


def config_of_text(folder, data, architecture="decoder", **changes):
    """An experiment of four steps without dropout, whose tokens are kept in the folder."""
    data = {"source": "files", "validation_fraction": 0.3, "cache": str(folder / "cache")} | data
    changes["training"] = {"steps": 4, "eval_every": 4} | changes.get("training", {})
    changes["model"] = {"dropout_rate": 0.0} | changes.get("model", {})
    return config(folder, architecture=architecture, data=data, **changes)


def config_of_sentences(folder, sentences=SENTENCES, **changes):
    """An experiment with a decoder whose vocabulary is larger than its tokenizer's."""
    paths = (write(folder / "text.txt", sentences * 9),)
    data = {"source": "files", "paths": paths}
    changes["model"] = {"vocab_size": 17, "dropout_rate": 0.0} | changes.get("model", {})
    changes["training"] = {"steps": 4, "checkpoint_every": 2} | changes.get("training", {})
    return config(folder, architecture="decoder", data=data, **changes)


def change(config, **tables):
    """The config with other values in its tables."""
    replaced = {
        name: dataclasses.replace(getattr(config, name), **values)
        for name, values in tables.items()
    }
    return dataclasses.replace(config, **replaced)


def standing_still(config):
    """The config with one step, which changes next to nothing."""
    config = change(config, training={"steps": 1})
    return dataclasses.replace(config, optimizer=AdamWConfig(learning_rate=1e-30))


def assert_stood_still(before, after):
    """Parameters are the same, but for what a step of 1e-30 makes of zeros."""
    chex.assert_trees_all_close(before, after, rtol=0, atol=1e-20)


@contextlib.contextmanager
def logged():
    """A list of what the package logs meanwhile, warnings marked as the command line does."""
    lines, logger = [], logging.getLogger("jaxformer")

    class Lines(logging.Handler):
        def emit(self, record):
            mark = "warning: " if record.levelno >= logging.WARNING else ""
            lines.append(mark + record.getMessage())

    handler, level = Lines(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def train(config, **options):
    """Trains, and returns the lines that say what became of the data."""
    with logged() as lines:
        runs.train_run(config, **options)
    return lines


class ReadyError(Exception):
    """Ends training before the first step."""


def logged_before_the_first_step(config):
    """Makes or resumes a run without training; returns what is logged of data and settings."""

    def stop(task):
        raise ReadyError

    with contextlib.suppress(ReadyError), logged() as lines:
        runs.train_run(config, on_start=stop)
    return lines


def logged_of_data(config):
    """Prepares the data of a config; returns the task, and what is logged of it."""
    with logged() as lines:
        task = prepare(config)
    return task, lines


def untrained_language_model(folder, **model):
    """A run of a language model of bytes that was not trained, of two layers."""
    run_config = config(
        folder, architecture="decoder", data={"source": "files", "paths": ("none.txt",)},
        tokenizer={"kind": "byte"}, model={"vocab_size": 257, "num_layers": 2} | model,
    )  # fmt: skip
    model = runs.LanguageModel(
        config=run_config, tokenizers=(text.byte_tokenizer(),), folder=folder
    )
    return dataclasses.replace(model, params=jax.jit(model.initializer)(jax.random.key(0)))


def validation_of(run):
    """The encoded validation data of an opened run of a built-in task."""
    return runs.task_class(run.config)(model=run).load_validation(run.folder)


def prepare(config):
    """The task of a config before the first step."""
    return runs.task_class(config).prepare(config)


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def put_config(folder, toml):
    """Makes a folder, if need be, and its config, a run folder whose manifest is right."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(toml, encoding="utf-8")
    write_folder_manifest(folder)


def metrics(folder):
    """The records of a run with a value of that name, by step."""
    records = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in records]


def figures(folder, name):
    """A metric by step."""
    return {record["step"]: record[name] for record in metrics(folder) if name in record}


def evaluated_as_trained(folder, run, rel=1e-6):
    """Evaluates an opened run; loss and bits per byte must be those recorded at its step."""
    result = run.evaluate()
    for name, value in (("validation_loss", result.loss), ("bits_per_byte", result.bits_per_byte)):
        recorded = figures(folder, name).get(run.step)
        assert value == (None if recorded is None else pytest.approx(recorded, rel=rel)), name
    return result


def print_of_training(path):
    """Trains a config file by the command line, and returns what was printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["train", str(path)])
    return out.getvalue()


def finish(config):
    """Trains by the command line, deletes what it was trained on, and returns what it printed."""
    path = pathlib.Path(config.out).parent / "tiny.toml"
    path.write_text(config_to_toml(config), encoding="utf-8")
    printed = print_of_training(path)
    for path in config.data.paths:
        pathlib.Path(path).unlink()
    return printed


def share(factory, name, train):
    """A finished run in a folder of this worker's own, and what its training printed.

    The first worker that asks for a run trains it while the others wait. Each gets a copy, which
    its tests may change. `train` makes run/ and tiny.toml in a folder.
    """
    session = factory.getbasetemp()
    session = session.parent if "PYTEST_XDIST_WORKER" in os.environ else session
    first, copy = session / name, factory.mktemp(f"own_{name}")
    with open(session / f"{name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not first.exists():
            folder = factory.mktemp(f"made_{name}")
            (folder / "printed.txt").write_text(train(folder), encoding="utf-8")
            folder.rename(first)
    shutil.copytree(first, copy, dirs_exist_ok=True)
    trained_at = load_config(copy / "tiny.toml").out.removesuffix("/run")
    for path in (copy / "printed.txt", copy / "tiny.toml", copy / "run" / "config.toml"):
        path.write_text(
            path.read_text(encoding="utf-8").replace(trained_at, str(copy)), encoding="utf-8"
        )
    write_folder_manifest(copy / "run")
    return copy / "run", (copy / "printed.txt").read_text(encoding="utf-8")
