"""The task of a language model with a Hugging Face chat template, which can also chat."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import ClassVar, Self

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.interop import HuggingFaceChatTemplate, load_chat_template
from jaxformer.runs.causal import AnsweringTask
from jaxformer.runs.language_model import LanguageModelTask
from jaxformer.runs.pretrained_tokens import is_pretrained
from jaxformer.runs.task import Task
from jaxformer.storage import read_json, write_json

__all__ = ["ChatTask", "with_chat_template"]

_FILE = "chat_template.json"


def with_chat_template(kind: type[Task], folder: pathlib.Path | None) -> type[Task]:
    """Task class that also keeps the chat template of a folder, if there is one.

    Classes other than `LanguageModelTask` are returned unchanged.

    Raises:
        CheckpointError: the template is damaged.
    """
    if kind is LanguageModelTask and folder is not None and _template(folder) is not None:
        return ChatTask
    return kind


def _template(folder: pathlib.Path) -> HuggingFaceChatTemplate | None:
    """Reads the chat template of a run folder or Hugging Face folder; None without one."""
    if is_pretrained(folder):
        return load_chat_template(folder)
    if not (folder / _FILE).exists():
        return None
    return read_json(folder / _FILE, lambda values: HuggingFaceChatTemplate(**values))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ChatTask(AnsweringTask, LanguageModelTask):
    """A decoder that continues texts, and answers conversations with its own template.

    Args:
        chat_template: its chat template.
    """

    chat_template: HuggingFaceChatTemplate = HuggingFaceChatTemplate("")

    kind: ClassVar[str] = "a language model, which continues text, and answers"

    @classmethod
    def prepare(cls, config: ExperimentConfig, folder: pathlib.Path | None = None) -> Self:
        """Prepares the text, and keeps the chat template of the folder."""
        return super().prepare(config, folder)._with_template_of(folder)

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
        return super().load(folder, config)._with_template_of(folder)

    def _with_template_of(self, folder: pathlib.Path | None) -> Self:
        template = None if folder is None else _template(folder)
        return self if template is None else dataclasses.replace(self, chat_template=template)
