"""The task of a language model with a chat template of Hugging Face, which answers, too."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self, Unpack

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.interop import HuggingFaceChatTemplate
from jaxformer.runs.causal import DecodingOptions
from jaxformer.runs.json_files import read_json, write_json
from jaxformer.runs.language_model import LanguageModelTask

__all__ = ["ChatTask", "has_chat_template"]

_FILE = "chat_template.json"


def has_chat_template(folder: pathlib.Path) -> bool:
    """Tells whether a run folder has a chat template of Hugging Face."""
    return (folder / _FILE).exists()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ChatTask(LanguageModelTask):
    """A decoder that continues texts, and answers conversations by a template of its own.

    Args:
        chat_template: how messages become tokens.
    """

    chat_template: HuggingFaceChatTemplate

    kind: ClassVar[str] = "a language model, which continues text, and answers"

    def chat(
        self, params: Any, messages: Sequence[text.Message], **options: Unpack[DecodingOptions]
    ) -> str:
        """Answers a conversation."""
        return "".join(self.chat_stream(params, messages, **options))

    def chat_stream(
        self, params: Any, messages: Sequence[text.Message], **options: Unpack[DecodingOptions]
    ) -> Iterator[str]:
        """Answers a conversation, piece by piece."""
        ids: list[int] = self.chat_template.encode(self.tokenizer, messages).tolist()
        # An answer is a text of its own: what the template ends with is not before it.
        return self.continue_tokens(params, ids, **options)

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
        tokenizers = cls.load_tokenizers(config, folder)
        plain = LanguageModelTask.load(folder, config)
        return cls(
            config=plain.config, tokenizers=tokenizers, decoding=plain.decoding,
            summary=plain.summary, chat_template=template,
        )  # fmt: skip
