"""Conversations as the data of a chat model."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

from jaxformer import text
from jaxformer.config import ExperimentConfig
from jaxformer.runs.data.prepare import evenly_chosen
from jaxformer.runs.data.view import CAUSAL_MARKS, causal_texts
from jaxformer.runs.tasks.tables import EncodedRows, TableTask
from jaxformer.runs.tasks.task import Split
from jaxformer.runs.text_models.chat import ChatModel
from jaxformer.text.store.arrays import Example
from jaxformer.training.data import BatchSource
from jaxformer.training.parallel import Runner

_PROMPTS, _CANDIDATES = 3, 30


class ConversationTask(TableTask):
    """Conversations, for a decoder that learns the answers.

    Whole conversations are packed into rows, and do not attend to each other.
    """

    model: ChatModel
    text_model = ChatModel
    table: ClassVar[type[text.Table]] = text.Conversations
    marks: ClassVar[str] = CAUSAL_MARKS

    @classmethod
    def phrase_rows(cls, phrases: Sequence[text.Phrase]) -> text.Conversations:
        """Conversations that ask for the translation of each phrase."""
        return text.Conversations.of(
            [
                [
                    {"role": "user", "content": f'How do you say "{phrase.english}" in Kannada?'},
                    {"role": "assistant", "content": phrase.kannada},
                ]
                for phrase in phrases
            ]
        )

    @classmethod
    def training_texts(
        cls, split: Split, config: ExperimentConfig
    ) -> tuple[Sequence[str], Sequence[str]]:
        """The content of all messages, and the text that the template adds to them."""
        train, validation = (
            list(itertools.chain.from_iterable(rows.messages))
            for rows in (split.train.train, split.validation)
        )
        roles = sorted({message["role"] for message in (*train, *validation)})
        frame = functools.partial(text.ChatTemplate.frame, config.data.template)
        texts = [message["content"] for message in train]
        texts += itertools.chain.from_iterable(map(frame, roles))
        return texts, [message["content"] for message in validation]

    def encode_rows(self, rows: text.Conversations) -> Sequence[Example | None]:
        """Encodes conversations."""
        return text.encode_conversations(rows, self.model.template)

    def encoding_key(self) -> tuple[str, ...]:
        """Tokenizer and template."""
        before = self.tokenizer.surrounding_tokens.before
        return "conversations", self.config.data.template, f"{before}", self.tokenizer.identity

    def training_batches(self, runner: Runner) -> BatchSource:
        """Makes batches of packed rows, in a new order in every epoch."""
        packed = text.PackedExamples(self.train.examples, self.max_len)
        return self.shuffled_batches(packed, runner)

    def validation_batches(self, validation: EncodedRows, runner: Runner) -> Any:
        """Makes batches of all packed rows, in order."""
        packed = text.PackedExamples(validation.examples, self.max_len)
        return self.ordered_batches(packed, runner)

    def num_bytes(self, validation: EncodedRows) -> int:
        """UTF-8 bytes of the answers."""
        return validation.rows.num_answer_bytes

    def default_prompts(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Three of the prompts that leave room for an answer."""
        answer = self.config.samples.max_new_tokens or self.max_len // 2
        fitting = [
            prompt
            for prompt in evenly_chosen(texts, _CANDIDATES)
            if len(self.model.encode_prompt(prompt)) + answer <= self.max_len
        ]
        return evenly_chosen(fitting, _PROMPTS)

    def row_texts(self, batch: Any, count: int) -> list[dict[str, str]]:
        """Rows, with marks for text that is not predicted and for ends of conversations."""
        return causal_texts(self.tokenizer, batch, count)
