"""Tasks: the data that a run trains a text model on; built-in ones by architecture and data."""

from jaxformer.config import ExperimentConfig
from jaxformer.runs.tasks.classification import ClassificationTask
from jaxformer.runs.tasks.conversation import ConversationTask
from jaxformer.runs.tasks.documents import LanguageModelTask, MaskedTask
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
