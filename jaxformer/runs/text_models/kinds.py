"""The built-in text models, by the model's architecture and the kind of data."""

from jaxformer.config import ExperimentConfig
from jaxformer.runs.text_models.chat import ChatModel
from jaxformer.runs.text_models.classifier import Classifier
from jaxformer.runs.text_models.language_model import LanguageModel
from jaxformer.runs.text_models.masked import MaskedModel
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.text_models.translator import Translator

MODELS: dict[tuple[str, str], type[TextModel]] = {
    ("decoder", "stream"): LanguageModel,
    ("decoder", "conversations"): ChatModel,
    ("encoder", "stream"): MaskedModel,
    ("encoder", "labelled"): Classifier,
    ("encoder_decoder", "pairs"): Translator,
}


def model_class(config: ExperimentConfig) -> type[TextModel]:
    """The built-in text model of a config."""
    return MODELS[config.model.architecture, config.data_kind]
