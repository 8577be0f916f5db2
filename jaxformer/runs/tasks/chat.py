"""The task of a language model with a Hugging Face chat template, which can also chat."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import ClassVar, Self

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.interop import HuggingFaceChatTemplate
from jaxformer.runs.tasks.causal import AnsweringTask
from jaxformer.runs.tasks.language_model import LanguageModelTask
from jaxformer.runs.tasks.task import Task
from jaxformer.storage import read_json, write_json

__all__ = ["ChatTask", "has_chat_template", "with_chat_template"]

_FILE = "chat_template.json"


def has_chat_template(folder: pathlib.Path) -> bool:
    """Whether a run folder has a Hugging Face chat template."""
    return (folder / _FILE).exists()


def with_chat_template(kind: type[Task], has_template: bool) -> type[Task]:
    """`ChatTask` for a `LanguageModelTask` with a chat template; other classes are unchanged."""
    return ChatTask if has_template and kind is LanguageModelTask else kind


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ChatTask(AnsweringTask, LanguageModelTask):
    """A decoder that continues texts, and answers conversations with its own template.

    Args:
        chat_template: its chat template.
    """

    chat_template: HuggingFaceChatTemplate = HuggingFaceChatTemplate("")

    kind: ClassVar[str] = "a language model, which continues text, and answers"

    @classmethod
    def prepare(cls, config: ExperimentConfig, start: Task | None = None) -> Self:
        """Prepares the text, and keeps the chat template of the start."""
        task = super().prepare(config, start)
        template = getattr(start, "chat_template", task.chat_template)
        return dataclasses.replace(task, chat_template=template)

    def encode_messages(self, messages: Sequence[text.Message]) -> list[int]:
        """Encodes messages and the start of the answer with the template."""
        ids: list[int] = self.chat_template.encode(self.tokenizer, messages).tolist()
        return ids

    def save(self, folder: pathlib.Path) -> None:
        """Writes tokenizer, validation text and chat template."""
        super().save(folder)
        template = self.chat_template
        values = {
            "template": template.template, "names": dict(template.names),
            "prefix_once": template.prefix_once,
        }  # fmt: skip
        write_json(folder / _FILE, values)

    @classmethod
    def load(cls, folder: pathlib.Path, config: ExperimentConfig) -> Self:
        """Reads tokenizer and chat template."""
        template = read_json(folder / _FILE, lambda values: HuggingFaceChatTemplate(**values))
        return dataclasses.replace(super().load(folder, config), chat_template=template)
