"""Runs: train a task in a folder, and open it to generate, translate, predict and evaluate."""

from jaxformer.runs.convert import convert
from jaxformer.runs.data.view import DataView, SharedTexts
from jaxformer.runs.folder.files import read_run_config, verify_run
from jaxformer.runs.harness import evaluate_tasks, harness_model
from jaxformer.runs.inspection import DataReport, inspect_data
from jaxformer.runs.opening import open_run
from jaxformer.runs.tasks import task_class
from jaxformer.runs.tasks.classification import ClassificationTask
from jaxformer.runs.tasks.conversation import ConversationTask
from jaxformer.runs.tasks.documents import LanguageModelTask, MaskedTask
from jaxformer.runs.tasks.streams import StreamTask
from jaxformer.runs.tasks.tables import TableTask
from jaxformer.runs.tasks.task import Split, Task
from jaxformer.runs.tasks.translation import TranslationTask
from jaxformer.runs.text_models.chat import ChatModel
from jaxformer.runs.text_models.classifier import Classifier, ClassScore
from jaxformer.runs.text_models.forward import LogLikelihood
from jaxformer.runs.text_models.language_model import LanguageModel
from jaxformer.runs.text_models.masked import Fill, MaskedModel
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.text_models.translator import Translation, Translator
from jaxformer.runs.train import train_run
from jaxformer.runs.weights.preparing import prepare_task

__all__ = [
    "ChatModel",
    "ClassScore",
    "ClassificationTask",
    "Classifier",
    "ConversationTask",
    "DataReport",
    "DataView",
    "Fill",
    "LanguageModel",
    "LanguageModelTask",
    "LogLikelihood",
    "MaskedModel",
    "MaskedTask",
    "SharedTexts",
    "Split",
    "StreamTask",
    "TableTask",
    "Task",
    "TextModel",
    "Translation",
    "TranslationTask",
    "Translator",
    "convert",
    "evaluate_tasks",
    "harness_model",
    "inspect_data",
    "open_run",
    "prepare_task",
    "read_run_config",
    "task_class",
    "train_run",
    "verify_run",
]
