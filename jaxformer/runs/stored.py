"""Loading the stored parameters of a run, and the parameters that a run starts from.

A run stores all parameters of its model; with LoRA, only the matrices. Its base is the run or
folder that it started from. The base may be a LoRA run, too, so the functions call each other.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from jaxformer.config import ExperimentConfig
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.runs.folder import CHECKPOINTS, read_run_config
from jaxformer.runs.memory import param_shapes, split_shapes
from jaxformer.runs.pretrained_tokens import is_pretrained
from jaxformer.runs.start import new_parameters, start_digest
from jaxformer.runs.start_config import (
    folder_and_step,
    read_pretrained,
    source_folder,
    start_class,
)
from jaxformer.runs.task import Task
from jaxformer.storage import read_json, write_json
from jaxformer.training import Checkpoints, SingleRunner, combine_low_rank, merge_low_rank
from jaxformer.training.parallel import Runner

__all__ = ["load_base", "start_params", "stored_params", "write_base"]

_BASE = "base.json"


class _Base(NamedTuple):
    """Record of the base of a run with LoRA.

    Args:
        path: absolute path of its folder.
        relative: path from the run folder, in case both were moved.
        sha256: SHA-256 of the weights.
    """

    path: str
    relative: str
    sha256: str


def write_base(draft: pathlib.Path, folder: pathlib.Path, config: ExperimentConfig) -> None:
    """Writes the record of its base into a new run folder with LoRA.

    Args:
        draft: folder to write to.
        folder: the run folder that the draft becomes.
        config: config from `with_start`.
    """
    path = os.path.abspath(source_folder(config) or "")
    relative = os.path.relpath(path, os.path.abspath(folder))
    write_json(draft / _BASE, _Base(path, relative, start_digest(config))._asdict())


def load_base(
    task: Task, folder: pathlib.Path, runner: Runner, base: str | os.PathLike[str] | None = None
) -> tuple[Any, tuple[str, ...]]:
    """Loads and verifies the base weights of a run with LoRA, from `base` if they have moved.

    Returns:
        Parameters of the model, and the names of those that the base does not have.

    Raises:
        CheckpointError: the weights are missing, damaged, or not those of the training.
    """
    record = read_json(folder / _BASE, lambda values: _Base(**values))
    assert task.config.init_from is not None
    _, step = folder_and_step(task.config.init_from)
    if base is None:
        own, moved = pathlib.Path(record.path), folder / record.relative
        base = moved if moved.exists() and not own.exists() else own
    init_from = os.fspath(base) if step is None else f"{os.fspath(base)}@{step}"
    config = dataclasses.replace(task.config, init_from=init_from)
    started_there = dataclasses.replace(task, config=config)

    def missing(what: str) -> CheckpointError:
        return CheckpointError(
            f"{folder} has only the matrices of LoRA, and its base model, {config.init_from}, "
            f"{what}; restore the base, or pass its new location: --base FOLDER, in Python "
            "base=FOLDER"
        )

    try:
        found = start_digest(config)
    except CheckpointError:
        found = record.sha256  # missing; reported below
    if found != record.sha256:
        raise missing("is not the one of the training: its SHA-256 differs")
    try:
        params, _ = start_params(started_there, runner)
    except (CheckpointError, ConfigError) as error:
        raise missing(f"cannot be read: {error}") from None
    return params, new_parameters(started_there)


def stored_params(
    task: Task, folder: pathlib.Path, step: int | None, runner: Runner,
    base: str | os.PathLike[str] | None = None,
) -> Any:  # fmt: skip
    """Loads all parameters of a run, by default of the best checkpoint; with LoRA, merges them.

    Raises:
        CheckpointError: the checkpoint or the base is missing or damaged, or has other parameters.
    """
    lora = task.config.lora
    if lora is None:
        return _restored(folder, step, runner, param_shapes(task))
    start, new = load_base(task, folder, runner, base)
    frozen = {name: inner for name, inner in start.items() if name not in new}
    params = _restored(folder, step, runner, split_shapes(task, new)[0])
    return merge_low_rank(combine_low_rank(params, frozen, scale=lora.scale))


def _restored(folder: pathlib.Path, step: int | None, runner: Runner, shapes: Any) -> Any:
    with Checkpoints(folder / CHECKPOINTS, read_only=True) as checkpoints:
        return checkpoints.restore_params(runner.template(shapes), step)


def start_params(task: Task, runner: Runner) -> tuple[Any, str]:
    """Parameters that a new run starts from, and a report line that names their origin.

    If the runner splits parameters, no device ever has all of them.

    Raises:
        CheckpointError: the checkpoint is missing or damaged, or has other parameters.
    """
    assert task.config.init_from is not None
    folder, step = folder_and_step(task.config.init_from)
    loads = SingleRunner() if runner.has_all_params else runner
    if is_pretrained(folder):
        params = read_pretrained(task.config).read_params(loads)
        report = f"starting from the weights and tokenizers of {folder}"
    else:
        kind = start_class(type(task), task.config, read_run_config(folder))
        params = stored_params(kind.load(folder, read_run_config(folder)), folder, step, loads)
        report = f"starting from the weights and tokenizers of {folder} at step {step}"
    params = _with_rows(params, task.max_len)
    if not (new := new_parameters(task)):
        return params, report
    drawn = loads.create(task.draw_params, jax.random.key(task.config.seed))
    # A masked language model may also have an output table, which a classifier does not need.
    taken = {name: _part(params[name], drawn[name]) for name in drawn if name not in new}
    return {**drawn, **taken}, f"{report}; the scores of the classes start anew"


def _part(params: Any, like: Any) -> Any:
    """The parameters that also exist in another tree."""
    if not isinstance(like, Mapping):
        return params
    return {name: _part(params[name], inner) for name, inner in like.items()}


def _with_rows(params: Any, max_len: int) -> Any:
    """The parameters, with tables of learned positions cut to max_len rows."""

    def cut(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        of_positions = [str(entry.key) for entry in path[-2:]] == ["positions", "embedding"]
        return leaf[:max_len] if of_positions and leaf.shape[0] > max_len else leaf

    return jax.tree_util.tree_map_with_path(cut, params)
