"""Export of a run as a Hugging Face folder."""

import dataclasses
import pathlib
from typing import Any

import tokenizers
from tokenizers import processors

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.interop import HuggingFaceModel, SpecialTokens, save_huggingface
from jaxformer.runs.text_models.answering import TemplateModel
from jaxformer.runs.text_models.causal import CausalModel
from jaxformer.runs.text_models.classifier import ClassifierModel
from jaxformer.runs.use.run import Run
from jaxformer.text import Tokenizer


def export_run(
    run: Run, folder: pathlib.Path, *, model_type: str | None = None, dtype: str | None = None
) -> str:
    """Saves a run as `save_huggingface` does, with its tokenizer; returns the model_type."""
    model = HuggingFaceModel(
        run.config.model, run.params, _tokenizer(run),
        unchecked_special_tokens=_special_tokens(run), model_type=run.model.decoding.model_type,
    )  # fmt: skip
    if isinstance(run.model, ClassifierModel):
        classes, kind = run.model.classes, run.model.problem_type
        model = model._replace(class_names=classes, problem_type=kind)
    if isinstance(run.model, TemplateModel):
        model = model._replace(chat_template=run.model.chat_template)
    return save_huggingface(folder, model, model_type=model_type, dtype=dtype)


def _tokenizer(run: Run) -> Tokenizer:
    """The tokenizer of what the model reads, which puts its end behind a source by itself."""
    tokenizer = run.model.tokenizers[0]
    if run.config.model.architecture != "encoder_decoder" or tokenizer.roles.surrounded:
        return tokenizer
    made, end = tokenizers.Tokenizer.from_str(tokenizer.to_json()), tokenizer.roles.end_of_text
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, made.token_to_id(end))]
    )
    return Tokenizer(made, tokenizer.roles)


def _special_tokens(run: Run) -> SpecialTokens:
    """Special tokens of a run, and how it decodes."""
    config, special, end = run.config, run.model.decoding, run.model.tokenizer.end_of_text
    stops = run.model.stop_tokens if isinstance(run.model, CausalModel) else special.eos
    values: dict[str, Any] = {"eos": tuple(stops) or (() if end is None else (end,))}
    if config.model.architecture == "decoder":
        values["sampling"] = _only(SamplingConfig, config.samples)
    if config.model.architecture == "encoder_decoder":
        values |= {
            "decoder_start": end if special.decoder_start is None else special.decoder_start,
            "search": _only(BeamSearchConfig, config.translation),
            # Which counts the start; the last token is never read.
            "max_length": 1 + (special.max_new_tokens or config.model.max_len),
        }
    return dataclasses.replace(special, **values)


def _only(kind: type[Any], settings: Any) -> Any:
    """Settings without what a subclass adds."""
    return kind(**{one.name: getattr(settings, one.name) for one in dataclasses.fields(kind)})
