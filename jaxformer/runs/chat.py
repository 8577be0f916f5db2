"""The task of a language model with a chat template of Hugging Face, which answers, too."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import ClassVar, Self

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.interop import HuggingFaceChatTemplate
from jaxformer.runs.answering import AnsweringTask
from jaxformer.runs.json_files import read_json, write_json
from jaxformer.runs.language_model import LanguageModelTask

__all__ = ["ChatTask", "has_chat_template"]

_FILE = "chat_template.json"


def has_chat_template(folder: pathlib.Path) -> bool:
    """Tells whether a run folder has a chat template of Hugging Face."""
    return (folder / _FILE).exists()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ChatTask(AnsweringTask, LanguageModelTask):
    """A decoder that continues texts, and answers conversations by a template of its own.

    Args:
        chat_template: how messages become tokens.
    """

    chat_template: HuggingFaceChatTemplate

    kind: ClassVar[str] = "a language model, which continues text, and answers"

    def encode_messages(self, messages: Sequence[text.Message]) -> list[int]:
        """Encodes messages by the template, and the beginning of the answer to them."""
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
        plain = LanguageModelTask.load(folder, config)
        return cls(
            config=plain.config, tokenizers=plain.tokenizers, decoding=plain.decoding,
            summary=plain.summary, chat_template=template,
        )  # fmt: skip
