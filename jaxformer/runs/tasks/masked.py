"""Documents as the data of a masked language model."""

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

from jaxformer import text
from jaxformer.runs.data.view import MASKED_MARKS, masked_text, real_tokens
from jaxformer.runs.tasks.streams import StreamTask
from jaxformer.runs.text_models.masked import MASK_IN_TEXT, MaskedModel
from jaxformer.text.batches.windows import EncoderWindows
from jaxformer.training import TrainingData
from jaxformer.training.data import BatchSource
from jaxformer.training.parallel import Runner


class MaskedTask(StreamTask):
    """Documents with masked tokens, for an encoder that predicts them."""

    model: MaskedModel
    text_model = MaskedModel
    marks: ClassVar[str] = MASKED_MARKS

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
        return EncoderWindows(stream, self.max_len, before=special.before, after=special.after)

    def training_batches(self, runner: Runner) -> BatchSource:
        """Makes batches of windows, with new masks in every epoch."""
        batches = super().training_batches(runner)
        return text.MaskedBatches(batches, host=runner.host, **self._masking())

    def stream_evaluation(self, validation: text.TokenStream, runner: Runner) -> TrainingData:
        """Makes batches of all windows, with the same masks each time."""
        batches = self.ordered_batches(self.windows(validation), runner)
        masked = text.MaskedBatches(batches, host=runner.host, **self._masking())
        return TrainingData(batches=(), unit=self.model.unit, validation=masked.once)

    def row_texts(self, batch: Any, count: int) -> list[dict[str, str]]:
        """Windows with the answers of their masked tokens."""
        rows = zip(batch["tokens"], batch["labels"], real_tokens(batch), strict=True)
        return [
            {"text": masked_text(self.tokenizer, tokens[real], labels[real])}
            for tokens, labels, real in itertools.islice(rows, count)
        ]

    def _masking(self) -> dict[str, Any]:
        tokenizer = self.tokenizer
        return {
            "seed": self.config.seed,
            "mask_token": tokenizer.mask,
            "vocab_size": tokenizer.vocab_size,
            "rate": self.config.data.mask_rate,
            "special": sorted(tokenizer.special - {tokenizer.mask}),
        }
