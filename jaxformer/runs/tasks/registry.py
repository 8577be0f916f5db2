"""The built-in tasks, by the model's architecture and the kind of data."""

from jaxformer.config import ExperimentConfig
from jaxformer.runs.tasks.classification import ClassificationTask
from jaxformer.runs.tasks.conversation import ConversationTask
from jaxformer.runs.tasks.language_model import LanguageModelTask
from jaxformer.runs.tasks.masked import MaskedTask
from jaxformer.runs.tasks.task import Task
from jaxformer.runs.tasks.translation import TranslationTask

TASKS: dict[tuple[str, str], type[Task]] = {
    ("decoder", "stream"): LanguageModelTask,
    ("decoder", "conversations"): ConversationTask,
    ("encoder", "stream"): MaskedTask,
    ("encoder", "labelled"): ClassificationTask,
    ("encoder_decoder", "pairs"): TranslationTask,
}


def task_class(config: ExperimentConfig) -> type[Task]:
    """The built-in task class of a config."""
    return TASKS[config.model.architecture, config.data_kind]
