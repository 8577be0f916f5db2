"""Conversion between run folders, folders of Hugging Face, and files of parameters."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

import optax

from jaxformer.errors import ConfigError
from jaxformer.interop.params_files import save_params
from jaxformer.runs.data_summary import DataSummary
from jaxformer.runs.exporting import export_run
from jaxformer.runs.folder import CHECKPOINTS, require_free, start_folder
from jaxformer.runs.opening import open_run
from jaxformer.runs.pretrained import Pretrained
from jaxformer.runs.pretrained_tokens import is_pretrained
from jaxformer.training import Checkpoints, SingleRunner, TrainState

__all__ = ["convert"]


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
) -> str:
    """Converts a run to a folder of Hugging Face, or such a folder to a run.

    A target that ends in .safetensors gets the parameters alone, under their own paths, and a TOML
    file of the model's config beside it.

    Args:
        source: run folder; or folder of Hugging Face, or id of a model there, OWNER/MODEL.
        target: folder or file to write; not there yet, or an empty folder.
        step: checkpoint of the run; the one with the lowest validation loss when not given.
        model_type: family at Hugging Face to write, such as "llama"; when not given, the first that
            computes what the model does.
        dtype: of the parameters that are written, "float32" or "bfloat16"; as they are when not
            given.
        ignore: fields in the JSON files of a folder of Hugging Face that are known not to matter.
        source_language: language that is read, of a folder of Hugging Face whose model translates
            several, in its own names, such as "eng_Latn" or "en"; what the folder says when not
            given.
        target_language: language that is written, likewise.
        base: of a run with LoRA, where its base lies now; as in `open_run`.

    Returns:
        What was written, in a line.

    Raises:
        CheckpointError: the source is damaged, or the target is not free.
        ConfigError: no family of Hugging Face computes what the model does, or an option is for
            another kind of target.
        StorageError: a file cannot be written.
    """
    source, target = pathlib.Path(source), pathlib.Path(target)
    to_file, imports = target.suffix == ".safetensors", is_pretrained(source)
    for name, value, fits in (
        ("model_type", model_type, not to_file and not imports), ("step", step, not imports),
        ("base", base, not imports),
        ("dtype", dtype, imports or not to_file), ("ignore", ignore or None, imports),
        ("source_language", source_language, imports and not to_file),
        ("target_language", target_language, imports and not to_file),
    ):  # fmt: skip
        if value is not None and not fits:
            raise ConfigError(
                f"{name} has no effect on what is written here, got {value}; remove it"
            )
    if to_file:
        run = open_run(source, step, dtype=dtype, ignore=ignore, base=base)
        save_params(target, run.config.model, run.params)
        return f"wrote the parameters to {target}, and the config to {target.with_suffix('.toml')}"
    require_free(target, "target")
    if imports:
        return _import(
            source, target, dtype=dtype, param_dtype=dtype, ignore=tuple(ignore),
            source_language=source_language, target_language=target_language,
        )  # fmt: skip
    run = open_run(source, step, base=base)
    written = export_run(run, target, model_type=model_type, dtype=dtype)
    return f"wrote a model of type {written} to {target}"


def _import(source: pathlib.Path, target: pathlib.Path, **options: Any) -> str:
    """Makes a run folder of a folder of Hugging Face, with a checkpoint of step 0."""
    pretrained = Pretrained.read(source, **options)
    task = pretrained.task
    params = pretrained.read_params(SingleRunner())

    def save(draft: pathlib.Path) -> None:
        task.save(draft)
        # Orbax saves no state that is empty, so that the optimizer counts steps.
        counting = optax.scale_by_schedule(optax.constant_schedule(1.0))
        with Checkpoints(draft / CHECKPOINTS) as checkpoints:
            checkpoints.save(TrainState.create(params, counting))

    start_folder(target, task.config, DataSummary(), save)
    return f"wrote a run to {target}: {task.kind}"
