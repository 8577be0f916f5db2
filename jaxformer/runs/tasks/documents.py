"""Documents as the data of causal and masked language models."""

from collections.abc import Sequence
from typing import Any, ClassVar

from jaxformer import text
from jaxformer.runs.data.view import CAUSAL_MARKS, causal_texts
from jaxformer.runs.tasks.streams import StreamTask
from jaxformer.runs.text_models.language_model import LanguageModel
from jaxformer.runs.text_models.masked import MASK_IN_TEXT, MaskedModel
from jaxformer.text.batches.windows import WindowsWithLengths
from jaxformer.training.data import BatchSource
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
        # A mixture of experts must not balance padding.
        kind = text.Windows if self.config.model.experts is None else WindowsWithLengths
        return kind(stream, self.max_len, before=before)

    def num_bytes(self, validation: text.TokenStream) -> int | None:
        """UTF-8 bytes of the text; the first tokens are not predicted, so theirs do not count."""
        if validation.num_bytes is None:
            return None
        tokens, unpredicted = validation.tokens, self.windows(validation).unpredicted
        free = sum(self.tokenizer.byte_length(int(tokens[i])) for i in unpredicted)
        return validation.num_bytes - free

    def row_texts(self, batch: Any, count: int) -> list[dict[str, str]]:
        """Windows, with marks for text that is not predicted and for ends of documents."""
        return causal_texts(self.tokenizer, batch, count)


class MaskedTask(StreamTask):
    """Documents with masked tokens, for an encoder that predicts them."""

    model: MaskedModel
    text_model = MaskedModel
    marks: ClassVar[str] = "masked tokens are predicted, and some that are shown; ‖ ends a document"

    def default_prompts(self, documents: Sequence[str]) -> tuple[str, ...]:
        """Starts of lines, with the last word or character masked."""
        prompts = []
        for line in super().default_prompts(documents):
            head = line.rpartition(" ")[0] or line[:-1]
            spaced = self.tokenizer.has_leading_spaces
            prompts.append(f"{head} {MASK_IN_TEXT}".strip() if spaced else head + MASK_IN_TEXT)
        return tuple(prompts)

    def windows(self, stream: text.TokenStream) -> text.Rows:
        """Windows of the stream, with their lengths."""
        special = self.model.surrounding_tokens
        return WindowsWithLengths(stream, self.max_len, before=special.before, after=special.after)

    def training_batches(self, runner: Runner) -> BatchSource:
        """Makes batches of windows, with new masks in every epoch."""
        return self._masked(super().training_batches(runner), runner)

    def validation_batches(self, validation: text.TokenStream, runner: Runner) -> Any:
        """Makes batches of all windows, with the same masks each time."""
        return self._masked(super().validation_batches(validation, runner), runner)

    def _masked(self, batches: BatchSource, runner: Runner) -> text.MaskedBatches:
        """The batches with masks."""
        tokenizer, mask = self.tokenizer, self.tokenizer.mask
        assert mask is not None  # the model has added it
        return text.MaskedBatches(
            batches,
            seed=self.config.seed,
            mask_token=mask,
            vocab_size=tokenizer.vocab_size,
            rate=self.config.data.mask_rate,
            special=sorted(tokenizer.special - {mask}),
            host=runner.host,
        )
