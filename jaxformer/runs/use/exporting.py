"""Export of a run as a Hugging Face folder."""

import pathlib
from typing import Any

from jaxformer.interop import save_huggingface
from jaxformer.runs.text_models.answering import TemplateModel
from jaxformer.runs.text_models.classifier import ClassifierModel
from jaxformer.runs.use.run import Run


def export_run(
    run: Run, folder: pathlib.Path, *, model_type: str | None = None, dtype: str | None = None
) -> str:
    """Saves a run as `save_huggingface` does, with its tokenizer; returns the model_type."""
    model = run.model
    options: dict[str, Any] = {}
    if isinstance(model, ClassifierModel):
        options = {"class_names": model.classes, "problem_type": model.problem_type}
    if isinstance(model, TemplateModel):
        options = {"chat_template": model.chat_template}
    return save_huggingface(
        folder, run.config.model, run.params, model.tokenizer_to_export(), model_type=model_type,
        preferred_type=model.decoding.model_type, dtype=dtype,
        special_tokens=model.decoding_to_export(),
        **options,
    )  # fmt: skip
