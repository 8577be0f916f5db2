"""The task of a decoder: a causal language model, which continues text."""

import dataclasses
from typing import ClassVar

from jaxformer import text
from jaxformer.errors import DataError
from jaxformer.runs.tasks.causal import CausalTask
from jaxformer.runs.tasks.streams import StreamTask, StreamText
from jaxformer.training import TrainingData
from jaxformer.training.parallel import Runner

__all__ = ["LanguageModelTask"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LanguageModelTask(CausalTask, StreamTask):
    """A decoder on documents. `Run` documents the methods that not every task has."""

    kind: ClassVar[str] = "a language model, which continues text"

    def windows(self, stream: text.TokenStream) -> text.Windows:
        """Windows of the stream, or packed documents, depending on the config."""
        kind = {"windows": text.Windows, "documents": text.PackedDocuments}
        return kind[self.config.data.packing](stream, self.max_len)

    def stream_evaluation(self, validation: StreamText, runner: Runner) -> TrainingData:
        """Makes batches of all windows, and counts the bytes that are predicted."""
        data = super().stream_evaluation(validation, runner)
        if validation.num_bytes is None:
            return data
        # The first tokens are not predicted, so their bytes do not count.
        tokens, unpredicted = validation.stream.tokens, self.windows(validation.stream).unpredicted
        free = sum(self.tokenizer.byte_length(int(tokens[i])) for i in unpredicted)
        return data._replace(validation_bytes=validation.num_bytes - free)

    def encode_prompt(self, prompt: str) -> list[int]:
        """Encodes a prompt, after the special tokens that the model reads before every text.

        An empty prompt becomes the end of text of a previous document. This works only if windows
        run from one document into the next: then the model has learnt what follows it.
        """
        ids: list[int] = self._before_text.around(self.tokenizer.encode(prompt)).tolist()
        if not ids and self.tokenizer.end_of_text is not None:
            if self.summary.documents > 1 and self.config.data.packing == "windows":
                return [self.tokenizer.end_of_text]
        if not ids:
            raise DataError("the prompt is empty; give at least one character to continue")
        return ids
