"""Runs: train a task in a folder, and open it to generate, translate, predict and evaluate."""

from jaxformer.runs.classification import ClassificationTask, ClassScore
from jaxformer.runs.conditional import Translation
from jaxformer.runs.conversation import ConversationTask
from jaxformer.runs.convert import convert
from jaxformer.runs.data_view import DataView, TextColumn
from jaxformer.runs.folder import read_run_config
from jaxformer.runs.inspection import BatchReport, DataReport, inspect_data
from jaxformer.runs.language_model import LanguageModelTask
from jaxformer.runs.masked import Fill, MaskedTask
from jaxformer.runs.opening import open_run
from jaxformer.runs.positions import (
    PositionBiases,
    PositionRotations,
    Positions,
    PositionTable,
    model_positions,
)
from jaxformer.runs.run import Run
from jaxformer.runs.streams import StreamTask
from jaxformer.runs.tables import TableTask
from jaxformer.runs.task import Task
from jaxformer.runs.task_values import LogLikelihood, LossLabels, Split
from jaxformer.runs.text_figures import LengthHistogram, SharedTexts, TextFigures
from jaxformer.runs.train import train_run
from jaxformer.runs.trained import task_class
from jaxformer.runs.translation import TranslationTask
from jaxformer.runs.verify import Verified, verify_run
from jaxformer.runs.weights import complete_tables, prepare_task

__all__ = [
    "BatchReport",
    "ClassScore",
    "ClassificationTask",
    "ConversationTask",
    "DataReport",
    "DataView",
    "Fill",
    "LanguageModelTask",
    "LengthHistogram",
    "LogLikelihood",
    "LossLabels",
    "MaskedTask",
    "PositionBiases",
    "PositionRotations",
    "PositionTable",
    "Positions",
    "Run",
    "SharedTexts",
    "Split",
    "StreamTask",
    "TableTask",
    "Task",
    "TextColumn",
    "TextFigures",
    "Translation",
    "TranslationTask",
    "Verified",
    "complete_tables",
    "convert",
    "inspect_data",
    "model_positions",
    "open_run",
    "prepare_task",
    "read_run_config",
    "task_class",
    "train_run",
    "verify_run",
]
