"""Export of a run as a Hugging Face folder."""

import pathlib

from jaxformer.interop import HuggingFaceModel, save_huggingface
from jaxformer.runs.text_models.answering import TemplateModel
from jaxformer.runs.text_models.classifier import ClassifierModel
from jaxformer.runs.use.run import Run


def export_run(
    run: Run, folder: pathlib.Path, *, model_type: str | None = None, dtype: str | None = None
) -> str:
    """Saves a run as `save_huggingface` does, with its tokenizer; returns the model_type."""
    model = HuggingFaceModel(
        run.config.model, run.params, run.model.tokenizer_to_export(),
        unchecked_special_tokens=run.model.decoding_to_export(),
        model_type=run.model.decoding.model_type,
    )  # fmt: skip
    if isinstance(run.model, ClassifierModel):
        classes, kind = run.model.classes, run.model.problem_type
        model = model._replace(class_names=classes, problem_type=kind)
    if isinstance(run.model, TemplateModel):
        model = model._replace(chat_template=run.model.chat_template)
    return save_huggingface(folder, model, model_type=model_type, dtype=dtype)
