"""Opening a run or a Hugging Face folder."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

from jaxformer.config import MeshConfig
from jaxformer.errors import ConfigError
from jaxformer.programs import keep_programs
from jaxformer.runs.tasks import task_class
from jaxformer.runs.tasks.task import Task
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.weights.huggingface import HuggingFaceWeights, is_adapter, is_huggingface
from jaxformer.runs.weights.run_folder import RunWeights
from jaxformer.runs.weights.source import WeightSource
from jaxformer.storage import as_path
from jaxformer.training.parallel import make_inference_runner


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
) -> TextModel:
    """Opens a run folder or a Hugging Face folder; verifies every file of a run that it reads.

    A model that is too large for one device is split over several. All its methods still work.
    Attention is automatic, whatever it was in training.

    Args:
        path: path of the folder, or a Hugging Face model id, OWNER/MODEL. The folder of a LoRA
            adapter of PEFT is opened with its model, and merged into one.
        step: step of the checkpoint. Default: the intact one with the lowest validation loss; a
            `CheckpointWarning` names damaged ones.
        task: task that the run was trained with; default: the built-in task of its config.
        mesh: how devices of this host split the parameters, such as `MeshConfig(fsdp=4)`; `data`
            defaults to 1. Without a mesh, the parameters are on one device if they fit in it twice,
            as decoding needs. Otherwise they are split as in training, if there are enough devices,
            or over all devices with `fsdp`.
        dtype: for a Hugging Face folder, dtype of parameters and computation; default: as in
            `load_huggingface`.
        max_len: for a Hugging Face folder, longest sequence in tokens; default: as in
            `load_huggingface`.
        ignore: unsupported generation settings of a Hugging Face folder, or of the folder that a
            run's model comes from, that you know to be irrelevant.
        source_language: for a Hugging Face folder of a multilingual translator, the source
            language by the model's own name, such as "eng_Latn" or "en"; default: the folder's.
        target_language: the target language, likewise.
        base: for a LoRA run or an adapter, the current path of its base model; default: its path
            during training. Base and LoRA matrices are merged into one model.

    Returns:
        The model with its parameters: a `LanguageModel`, `ChatModel`, `MaskedModel`, `Classifier`,
        `Translator`, or the `text_model` of your task. For a type checker,
        `open_run(path).require(LanguageModel)` says which one it is.

    Raises:
        CheckpointError: the path is not a run folder, or the folder or checkpoint is missing or
            damaged; or the base model of a LoRA run is missing or has changed.
        ConfigError: there are not enough devices, an axis does not divide a parameter, or an option
            is for another kind of folder.
    """
    keep_programs()
    languages = {"source_language": source_language, "target_language": target_language}
    source: WeightSource
    if is_huggingface(path):
        moved = None if is_adapter(as_path(path)) else base
        _refuse(path, "a Hugging Face folder", "a run", step=step, task=task, base=moved)
        options = {"dtype": dtype, "param_dtype": dtype, "max_len": max_len}
        source = HuggingFaceWeights(
            as_path(path),
            base=base,
            source_language=source_language,
            target_language=target_language,
            options={**options, "ignore": tuple(ignore)},
        )
        source.require_head()
        model = source.model
    else:
        _refuse(path, "a run", "a Hugging Face folder", dtype=dtype, max_len=max_len, **languages)
        kind = None if task is None else task.text_model
        source = RunWeights(as_path(path), step, kind, base=base)
        if source.config.lora is None:
            _refuse(path, "a run without LoRA", "a LoRA run", base=base)
        model, settings = source.model, source.model.decoding.unsupported
        supported = {name: value for name, value in settings.items() if name not in ignore}
        decoding = dataclasses.replace(model.decoding, unsupported=supported)
        model = dataclasses.replace(model, decoding=decoding)
    # The kernel of training may be one of another platform.
    automatic = dataclasses.replace(model.config.model, attention_implementation="auto")
    model = dataclasses.replace(model, config=dataclasses.replace(model.config, model=automatic))
    runner = make_inference_runner(source.shapes, source.config.mesh, mesh)
    params = source.params(runner)
    evaluator = (task_class(source.config) if task is None else task).evaluate
    return dataclasses.replace(
        model, params=params, folder=source.folder, step=source.step, runner=runner,
        evaluator=evaluator,
    )  # fmt: skip


def _refuse(path: str | pathlib.Path, kind: str, other: str, **options: Any) -> None:
    """Raises ConfigError for options that only apply to another kind of folder."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(
                f"{name} can only be set for {other}, got {value} for {path}, which is {kind}; "
                "leave it out"
            )
