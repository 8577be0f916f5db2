"""Opening a run, or a folder of Hugging Face, to be used."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

from jaxformer.config import MeshConfig
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.memory import require_memory
from jaxformer.runs import folder as files
from jaxformer.runs.chat import with_chat_template
from jaxformer.runs.memory import param_shapes
from jaxformer.runs.pretrained import Pretrained
from jaxformer.runs.pretrained_tokens import is_pretrained
from jaxformer.runs.run import Run
from jaxformer.runs.stored import stored_params
from jaxformer.runs.task import Task
from jaxformer.runs.trained import task_class
from jaxformer.training import Checkpoints
from jaxformer.training.parallel import Runner, make_inference_runner

__all__ = ["open_run"]


def open_run(
    path: str | pathlib.Path,
    step: int | None = None,
    *,
    task: type[Task] | None = None,
    mesh: MeshConfig | None = None,
    dtype: Literal["float32", "bfloat16"] | None = None,
    max_len: int | None = None,
    ignore: Sequence[str] = (),
    source_language: str | None = None,
    target_language: str | None = None,
    base: str | os.PathLike[str] | None = None,
) -> Run:
    """Opens a run folder, and verifies what it reads of it; or a folder of Hugging Face.

    A model that is too large for one device is split over several, and everything that a run does
    works so.

    Args:
        path: of the folder; or the id of a model at Hugging Face, OWNER/MODEL.
        step: which checkpoint; the one with the lowest validation loss when not given, of those
            that are not damaged; a `CheckpointWarning` names damaged ones.
        task: that the run was trained with; the built-in one that its config means when not given.
        mesh: how devices of this host split the parameters, such as `MeshConfig(fsdp=4)`, `data` 1
            when not given. Without a mesh, the parameters are on one device, where there is room
            for them twice, as decoding needs; else they are split as in training, if there are so
            many devices, or by `fsdp` over all.
        dtype: of parameters and computation, of a folder of Hugging Face; as in `load_huggingface`
            when not given.
        max_len: longest sequence in tokens, of a folder of Hugging Face; likewise.
        ignore: fields in the JSON files of a folder of Hugging Face that are known not to matter;
            or settings of generation of the folder that the model of a run comes from, likewise.
        source_language: language that is read, of a folder of Hugging Face whose model translates
            several, in its own names, such as "eng_Latn" or "en"; what the folder says when not
            given.
        target_language: language that is written, likewise.
        base: of a run with LoRA, where the run or folder lies now whose weights it has matrices
            beside; where they were in training when not given. They are merged into one model.

    Returns:
        The run.

    Raises:
        CheckpointError: the path is no run folder, or a damaged one, or has no such checkpoint, or
            that is damaged; or the base of a run with LoRA is missing, or has changed.
        ConfigError: there are not so many devices, or an axis does not divide a parameter, or the
            parameters do not fit the memory; or an option is for another kind of folder.
    """
    if is_pretrained(path):
        _refuse(path, "a folder of Hugging Face", "a run", step=step, task=task, base=base)
        languages = {"source_language": source_language, "target_language": target_language}
        options = {"dtype": dtype, "param_dtype": dtype, "max_len": max_len, **languages}
        return _open_pretrained(path, mesh, ignore=tuple(ignore), **options)
    own = {"dtype": dtype, "max_len": max_len, "source_language": source_language,
           "target_language": target_language}  # fmt: skip
    _refuse(path, "a run", "a folder of Hugging Face", **own)
    folder = pathlib.Path(path)
    config = files.read_run_config(folder)
    if task is None:
        task = with_chat_template(task_class(config), folder)
    opened = _ignoring(task.load(folder, config), ignore, folder)
    shapes = param_shapes(opened)
    runner = make_inference_runner(shapes, config.mesh, mesh)
    _require_room(runner, shapes, folder)
    if base is not None and config.lora is None:
        raise ConfigError(
            f"base is for a run with LoRA, got {base} for {folder}, which has all of its weights; "
            "leave it out"
        )
    params, chosen = _load_params(opened, folder, step, runner, base)
    return Run(folder, opened, params, chosen, runner)


def _load_params(
    task: Task, folder: pathlib.Path, step: int | None, runner: Runner,
    base: str | os.PathLike[str] | None,
) -> tuple[Any, int]:  # fmt: skip
    """Loads a checkpoint: the best, until one is not removed by a training before it is read."""
    path = folder / files.CHECKPOINTS
    while True:
        with Checkpoints(path, read_only=True) as checkpoints:
            chosen = checkpoints.require_step(step)
        try:
            return stored_params(task, folder, chosen, runner, base), chosen
        except CheckpointError:
            if step is not None or os.path.lexists(path / str(chosen)):
                raise


def _refuse(path: str | pathlib.Path, kind: str, other: str, **options: Any) -> None:
    """Raises ConfigError for options that are of another kind of folder."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(
                f"{name} is for {other}, got {value} for {path}, which is {kind}; leave it out"
            )


def _ignoring(task: Task, ignore: Sequence[str], folder: pathlib.Path) -> Task:
    """The task of a run, without settings of generation that are not supported."""
    unsupported = dict(task.decoding.unsupported)
    for name in ignore:
        if name not in unsupported:
            known = " and ".join(unsupported) or "none"
            raise ConfigError(
                f"ignore names settings of generation that a run cannot follow, of which {folder} "
                f"has {known}, got {name!r}; leave it out"
            )
        del unsupported[name]
    decoding = dataclasses.replace(task.decoding, unsupported=unsupported)
    return dataclasses.replace(task, decoding=decoding) if ignore else task


def _open_pretrained(path: str | pathlib.Path, mesh: MeshConfig | None, **options: Any) -> Run:
    pretrained = Pretrained.read(path, **options)
    task, shapes = pretrained.task, pretrained.opened.shapes
    runner = make_inference_runner(shapes, MeshConfig(), mesh)
    _require_room(runner, shapes, path)
    params = pretrained.read_params(runner)
    return Run(pretrained.opened.path, task, params, None, runner)


def _require_room(runner: Runner, shapes: Any, path: str | pathlib.Path) -> None:
    require_memory(
        {"parameters": runner.num_bytes(shapes)}, runner.memory, what=f"opening {path}",
        remedy="open it where there are more devices, or larger ones",
    )  # fmt: skip
