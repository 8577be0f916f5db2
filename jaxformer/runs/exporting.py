"""A run as a folder of Hugging Face."""

import dataclasses
import pathlib
from typing import Any

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.interop import SpecialTokens, save_huggingface
from jaxformer.runs.run import Run

__all__ = ["export_run"]


def export_run(
    run: Run, folder: pathlib.Path, *, model_type: str | None = None, dtype: str | None = None
) -> str:
    """Saves a run as a folder that transformers can load: model, tokenizer, and how it decodes.

    Args:
        run: the run.
        folder: to write to.
        model_type: as in `save_huggingface`.
        dtype: as in `save_huggingface`.

    Returns:
        The model_type.

    Raises:
        ConfigError: no family computes what the model does.
        StorageError: a file cannot be written.
    """
    return save_huggingface(
        folder, run.config.model, run.params, run.task.tokenizers[0], model_type=model_type,
        dtype=dtype, special_tokens=_special_tokens(run),
        class_names=getattr(run.task, "classes", None),
        chat_template=getattr(run.task, "chat_template", None),
    )  # fmt: skip


def _special_tokens(run: Run) -> SpecialTokens:
    """Special tokens of a run, and how it decodes."""
    config, decoding, end = run.config, run.task.decoding, run.task.tokenizer.end_of_text
    values: dict[str, Any] = {"bos": decoding.bos, "pad": decoding.pad}
    stops = getattr(run.task, "stop_tokens", decoding.stop)
    values["eos"] = tuple(stops) or (() if end is None else (end,))
    if config.model.architecture == "decoder":
        values["sampling"] = _only(SamplingConfig, config.samples)
    if config.model.architecture == "encoder_decoder":
        values |= {
            "decoder_start": end if decoding.start is None else decoding.start,
            "search": _only(BeamSearchConfig, config.translation),
            "max_length": run.config.model.max_len,
        }
    return SpecialTokens(
        forbidden=decoding.forbidden, forced_first=decoding.forced_first,
        forced_last=decoding.forced_last, max_new_tokens=decoding.max_new_tokens, **values,
    )  # fmt: skip


def _only(kind: type[Any], settings: Any) -> Any:
    """Settings without what a subclass adds."""
    return kind(**{one.name: getattr(settings, one.name) for one in dataclasses.fields(kind)})
