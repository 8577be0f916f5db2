"""Conversion between run folders, Hugging Face folders, and parameter files."""

import os
import pathlib
from collections.abc import Sequence
from typing import Literal

import optax

from jaxformer.errors import ConfigError
from jaxformer.interop import (
    Adapter,
    HuggingFaceModel,
    save_adapter,
    save_huggingface,
    save_params,
)
from jaxformer.interop.hub import upload
from jaxformer.runs.folder.files import CHECKPOINTS, DataSummary, require_free, start_folder
from jaxformer.runs.model_card import write_model_card
from jaxformer.runs.opening import open_run
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.weights.huggingface import is_huggingface
from jaxformer.runs.weights.run_folder import RunWeights
from jaxformer.storage import as_path
from jaxformer.training import Checkpoints, SingleRunner, TrainState


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    step: int | None = None,
    model_type: str | None = None,
    dtype: Literal["float32", "bfloat16"] | None = None,
    ignore: Sequence[str] = (),
    source_language: str | None = None,
    target_language: str | None = None,
    base: str | os.PathLike[str] | None = None,
    adapter: bool = False,
    push: str | None = None,
) -> str:
    """Converts a run to a Hugging Face folder, or a Hugging Face folder to a run.

    If the target ends in .safetensors, only the parameters are written, under jaxformer's own
    paths, with the model's config in a TOML file next to them.

    Args:
        source: run folder, Hugging Face folder, or id of a model at Hugging Face, OWNER/MODEL.
        target: folder or file to write; must not exist, or be an empty folder.
        step: step of the run's checkpoint; default: the one with the lowest validation loss.
        model_type: Hugging Face model type to write, such as "llama"; default: the one that the
            model was loaded from, if it can represent the model, else the first that can.
        dtype: dtype of the written parameters, "float32" or "bfloat16"; default: unchanged.
        ignore: unsupported generation settings that you know to be irrelevant; as in `open_run`.
        source_language: as in `open_run`.
        target_language: as in `open_run`.
        base: as in `open_run`.
        adapter: whether to write only the matrices of a run with LoRA, which started from a Hugging
            Face folder, as an adapter that PEFT loads.
        push: id of a model at Hugging Face, OWNER/MODEL, as which the folder of a run is uploaded,
            with a model card: its config, data, validation loss, and commands.

    Returns:
        A line that says what was written.

    Raises:
        CheckpointError: the source is damaged, the target exists, or the upload fails.
        ConfigError: no Hugging Face model type can represent the model, or an option is for another
            kind of target.
        OSError: a file cannot be written.
    """
    source, target = as_path(source), as_path(target)
    to_file, imports = target.suffix == ".safetensors", is_huggingface(source)
    for name, value, fits in (
        ("model_type", model_type, not (to_file or imports or adapter)),
        ("adapter", adapter, not (to_file or imports)),
        ("dtype", dtype, not adapter),
        ("push", push, not (to_file or imports or adapter)),
        ("ignore", ignore, not adapter),
        ("source_language", source_language, not (to_file or adapter)),
        ("target_language", target_language, not (to_file or adapter)),
    ):
        if value and not fits:
            raise ConfigError(
                f"{name} has no effect on what is written here, got {value}; remove it"
            )
    if not to_file:
        require_free(target, "target")
    if adapter:
        return _write_adapter(RunWeights(source, step, base=base), target)
    model = open_run(
        source, step, dtype=dtype if to_file or imports else None, ignore=ignore, base=base,
        source_language=source_language, target_language=target_language,
    )  # fmt: skip
    if to_file:
        save_params(target, model.config.model, model.params)
        return f"wrote the parameters to {target}, and the config to {target.with_suffix('.toml')}"
    if imports:
        return _write_run(model, target)
    written = save_huggingface(target, model.to_huggingface(), model_type=model_type, dtype=dtype)
    if push is None:
        return f"wrote a model of type {written} to {target}"
    write_model_card(target, push, model, source)
    return f"wrote a model of type {written} to {target}, and uploaded it: {upload(target, push)}"


def _write_adapter(source: RunWeights, target: pathlib.Path) -> str:
    """Writes the matrices of a run with LoRA as an adapter of PEFT."""
    lora, init_from = source.config.lora, source.config.init_from
    model_type = source.model.decoding.model_type
    if lora is None or init_from is None or model_type is None:
        raise ConfigError(
            f"adapter is for a run with LoRA that started from a Hugging Face folder, got "
            f"{source.folder}, {'without LoRA' if lora is None else f'from {init_from}'}; leave it "
            "out, to write the whole model"
        )
    matrices, start = source.matrices(SingleRunner())
    if start.new:
        raise ConfigError(
            f"an adapter has no room for {', '.join(start.new)}, which {source.folder} trained "
            "anew; leave adapter out, to write the whole model"
        )
    model = HuggingFaceModel(source.config.model, start.stored, model_type=model_type)
    save_adapter(target, model, Adapter(matrices, lora), base=init_from)
    return f"wrote an adapter of {init_from} to {target}"


def _write_run(model: TextModel, target: pathlib.Path) -> str:
    """Makes a run folder of a model, with a checkpoint of step 0."""

    def save(draft: pathlib.Path) -> None:
        model.save(draft)
        # Orbax cannot save an empty state, so the optimizer counts steps.
        counting = optax.scale_by_schedule(optax.constant_schedule(1.0))
        with Checkpoints(draft / CHECKPOINTS) as checkpoints:
            checkpoints.save(TrainState.create(model.params, counting))

    start_folder(target, model.config, DataSummary(), save)
    return f"wrote a run to {target}: {model.kind}"
