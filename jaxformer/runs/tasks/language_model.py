"""Documents as the data of a causal language model."""

from typing import Any, ClassVar

from jaxformer import text
from jaxformer.runs.data.view import CAUSAL_MARKS, causal_texts
from jaxformer.runs.tasks.streams import StreamTask, WindowsWithLengths
from jaxformer.runs.text_models.language_model import LanguageModel
from jaxformer.training import TrainingData
from jaxformer.training.parallel import Runner


class LanguageModelTask(StreamTask):
    """Documents, for a decoder."""

    model: LanguageModel
    text_model = LanguageModel
    marks: ClassVar[str] = CAUSAL_MARKS

    def windows(self, stream: text.TokenStream) -> text.Windows:
        """Windows of the stream, or packed documents, depending on the config."""
        before = self.model.surrounding_tokens.before
        if self.config.data.packing == "documents":
            return text.PackedDocuments(stream, self.max_len, before=before)
        kind = text.Windows if self.config.model.experts is None else WindowsWithLengths
        return kind(stream, self.max_len, before=before)

    def stream_evaluation(self, validation: text.TokenStream, runner: Runner) -> TrainingData:
        """Makes batches of all windows, and counts the bytes that are predicted."""
        data = super().stream_evaluation(validation, runner)
        if validation.num_bytes is None:
            return data
        # The first tokens are not predicted, so their bytes do not count.
        tokens, unpredicted = validation.tokens, self.windows(validation).unpredicted
        free = sum(self.tokenizer.byte_length(int(tokens[i])) for i in unpredicted)
        return data._replace(validation_bytes=validation.num_bytes - free)

    def row_texts(self, batch: Any, count: int) -> list[dict[str, str]]:
        """Windows, with marks for text that is not predicted and for ends of documents."""
        return causal_texts(self.tokenizer, batch, count)
