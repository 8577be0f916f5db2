"""A trained run: generating, translating and predicting."""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.runs.text_models.answering import AnsweringModel
from jaxformer.runs.text_models.causal import CausalModel, DecodingOptions
from jaxformer.runs.text_models.classifier import ClassifierModel, ClassScore
from jaxformer.runs.text_models.masked import Fill, MaskedModel
from jaxformer.runs.text_models.translation import Translation, TranslationModel
from jaxformer.runs.use.options import seed_key, with_options
from jaxformer.runs.use.trained import Texts, TrainedTask
from jaxformer.text import Message

_SHOWN = 5  # words shown in a warning


@dataclasses.dataclass(frozen=True, repr=False)
class Run(TrainedTask):
    """A trained run, to generate, translate, fill in masks or classify.

    A method that is for another kind of model raises ConfigError, naming the kinds that have it.

    Args:
        folder: the run folder.
        task: the task; its model has the config and the tokenizers.
        params: parameters of the opened checkpoint.
        step: step of that checkpoint; None for a Hugging Face folder.
        runner: runner for the devices that hold the parameters.
    """

    def generate(
        self,
        prompt: str,
        *,
        max_new_tokens: int | None = None,
        seed: int = 0,
        **sampling: Any,
    ) -> str:
        """Continues a text.

        Args:
            prompt: text to continue. An empty prompt starts a new document, if the run was trained
                on windows of several documents.
            max_new_tokens: longest continuation, in tokens; default: what fits in the context.
            seed: seed of the sampling.
            **sampling: temperature, top_k, top_p, min_p, repetition_penalty,
                no_repeat_ngram_size, min_length and min_new_tokens, as in `SamplingConfig`;
                default: those of the config's samples.

        Returns:
            The continuation, without the prompt.

        Raises:
            ConfigError: the model does not generate text, or comes from a folder with unsupported
                generation settings; or an option is unknown or out of range.
            DataError: the prompt is empty or too long, or cannot be encoded.
        """
        model = self._require_generating(CausalModel, "generate")
        return model.generate(self.params, prompt, **self._options(seed, max_new_tokens, sampling))

    def generate_stream(
        self,
        prompt: str,
        *,
        max_new_tokens: int | None = None,
        seed: int = 0,
        **sampling: Any,
    ) -> Iterator[str]:
        """Continues a text like `generate`, yielding pieces as they are generated."""
        model = self._require_generating(CausalModel, "generate_stream")
        return model.generate_stream(
            self.params, prompt, **self._options(seed, max_new_tokens, sampling)
        )

    def chat(
        self,
        messages: Sequence[Message],
        *,
        max_new_tokens: int | None = None,
        seed: int = 0,
        **sampling: Any,
    ) -> str:
        """Answers a conversation.

        Args:
            messages: dicts with "content" and "role" ("user", "assistant", or another that the run
                was trained on, such as "system"). The last message is the one to answer.
            max_new_tokens: longest answer, in tokens; default: what fits in the context.
            seed: seed of the sampling.
            **sampling: as in `generate`.

        Returns:
            The answer.

        Raises:
            ConfigError: the model was not trained on conversations, or as in `generate`.
            DataError: there is no message, a message is malformed, or they are too long.
        """
        model = self._require_generating(AnsweringModel, "chat")  # type: ignore[type-abstract]
        return model.chat(self.params, messages, **self._options(seed, max_new_tokens, sampling))

    def chat_stream(
        self,
        messages: Sequence[Message],
        *,
        max_new_tokens: int | None = None,
        seed: int = 0,
        **sampling: Any,
    ) -> Iterator[str]:
        """Answers a conversation like `chat`, yielding pieces as they are generated."""
        model = self._require_generating(AnsweringModel, "chat_stream")  # type: ignore[type-abstract]
        return model.chat_stream(
            self.params, messages, **self._options(seed, max_new_tokens, sampling)
        )

    def _options(
        self, seed: int, max_new_tokens: int | None, sampling: dict[str, Any]
    ) -> DecodingOptions:
        return {
            "rng": seed_key(seed),
            "sampling": self._sampling(sampling, "seed", "max_new_tokens"),
            "max_new_tokens": max_new_tokens,
        }

    def _sampling(self, options: dict[str, Any], *others: str) -> SamplingConfig:
        return with_options(SamplingConfig, self.config.samples, options, *others)

    @overload
    def translate(self, sentences: str, **search: Any) -> list[Translation]: ...

    @overload
    def translate(self, sentences: Texts, **search: Any) -> list[list[Translation]]: ...

    def translate(
        self, sentences: str | Texts, **search: Any
    ) -> list[Translation] | list[list[Translation]]:
        """Translates sentences by beam search. The other sentences do not affect a result.

        Warns of words that never occur in the training sources.

        Args:
            sentences: one sentence, or a list.
            **search: beam_size, num_best, length_penalty, early_stopping, no_repeat_ngram_size and
                min_new_tokens, as in `BeamSearchConfig`; default: those of the run's config.

        Returns:
            The translations of a sentence, best first; for a list, a list of these.

        Raises:
            ConfigError: the model does not translate, or comes from a folder with unsupported
                generation settings; or an option is unknown or out of range.
            DataError: a sentence is empty or too long, or cannot be encoded.
        """
        settings = self._search(search)
        self._warn_of_new_words(sentences)
        model = self._require_generating(TranslationModel, "translate")
        return self._each(sentences, model.translate, search=settings)

    def translate_stream(
        self, sentences: Texts, **search: Any
    ) -> Iterator[tuple[int, list[Translation]]]:
        """Translates a list like `translate`, yielding (index, translations) as they are done."""
        settings = self._search(search)
        self._warn_of_new_words(sentences)
        model = self._require_generating(TranslationModel, "translate_stream")
        return model.translate_stream(self.params, sentences, search=settings)

    def _search(self, options: dict[str, Any]) -> BeamSearchConfig:
        return with_options(BeamSearchConfig, self.config.translation, options)

    @overload
    def sample_translations(self, sentences: str, *, seed: int = 0, **sampling: Any) -> str: ...

    @overload
    def sample_translations(
        self, sentences: Texts, *, seed: int = 0, **sampling: Any
    ) -> list[str]: ...

    def sample_translations(
        self, sentences: str | Texts, *, seed: int = 0, **sampling: Any
    ) -> str | list[str]:
        """Translates by sampling instead of beam search; warns like `translate`.

        Args:
            sentences: one sentence, or a list.
            seed: seed of the sampling.
            **sampling: as in `generate`. no_repeat_ngram_size and min_length (which counts the
                start token) default to those of the run's search.

        Returns:
            A translation of the sentence; for a list, one of each.

        Raises:
            ConfigError: the model does not translate, or comes from a folder with unsupported
                generation settings; or an option is unknown or out of range.
            DataError: a sentence is empty or too long, or cannot be encoded.
        """
        rng, settings = seed_key(seed), self._drawing(sampling)
        self._warn_of_new_words(sentences)
        model = self._require_generating(TranslationModel, "sample_translations")
        return self._each(sentences, model.sample_translations, rng=rng, sampling=settings)

    def sample_translations_stream(
        self, sentences: Texts, *, seed: int = 0, **sampling: Any
    ) -> Iterator[tuple[int, str]]:
        """Samples translations of a list, yielding (index, translation) as they are done."""
        rng, settings = seed_key(seed), self._drawing(sampling)
        self._warn_of_new_words(sentences)
        model = self._require_generating(TranslationModel, "sample_translations_stream")
        return model.sample_translations_stream(self.params, sentences, rng=rng, sampling=settings)

    def _drawing(self, options: dict[str, Any]) -> SamplingConfig:
        """Sampling settings for translations; rules on n-grams and lengths come from the search."""
        search = self.config.translation
        rules: dict[str, Any] = {
            "no_repeat_ngram_size": search.no_repeat_ngram_size,
            # A row's length includes the start token.
            "min_length": search.min_new_tokens + 1 if search.min_new_tokens else 0,
        }
        return self._sampling({**rules, **options}, "seed")

    def _warn_of_new_words(self, sentences: str | Texts) -> None:
        """Warns of words that are new to the model, on behalf of the calling method."""
        if not isinstance(self.model, TranslationModel):
            return  # the calling method raises the error
        texts = [sentences] if isinstance(sentences, str) else sentences
        if words := self.model.unseen_words(texts):
            more = f" and {len(words) - _SHOWN:,} more" if len(words) > _SHOWN else ""
            shown = ", ".join(map(repr, words[:_SHOWN]))
            warnings.warn(
                f"never seen in training: {shown}{more}; what they become is a guess",
                stacklevel=3,
            )

    @overload
    def fill_masks(self, prompts: str, num_best: int = 5) -> list[list[Fill]]: ...

    @overload
    def fill_masks(self, prompts: Texts, num_best: int = 5) -> list[list[list[Fill]]]: ...

    def fill_masks(
        self, prompts: str | Texts, num_best: int = 5
    ) -> list[list[Fill]] | list[list[list[Fill]]]:
        """Predicts the tokens at [MASK] in texts.

        Args:
            prompts: a text with at least one [MASK], or a list. Each [MASK] stands for one token.
            num_best: number of tokens to return for each mask; all if there are fewer.

        Returns:
            For each mask of a text, the likeliest tokens, best first; for a list, a list of these.
            Each mask is predicted with the others masked.

        Raises:
            DataError: a text has no [MASK], or is too long, or num_best is not positive.
        """
        model = self.require(MaskedModel, user="fill_masks")
        return self._each(prompts, model.fill_masks, num_best=num_best)

    @overload
    def classify(self, texts: str, num_best: int = 1) -> list[ClassScore]: ...

    @overload
    def classify(self, texts: Texts, num_best: int = 1) -> list[list[ClassScore]]: ...

    def classify(
        self, texts: str | Texts, num_best: int = 1
    ) -> list[ClassScore] | list[list[ClassScore]]:
        """Classifies texts. The other texts do not affect a result.

        Args:
            texts: one text, or a list.
            num_best: number of classes to return for each text; all if there are fewer.

        Returns:
            The likeliest classes of a text, best first; for a list, a list of these.

        Raises:
            ConfigError: the model does not classify, or its scores are not probabilities.
            DataError: a text is empty or too long, or num_best is not positive.
        """
        model = self.require(ClassifierModel, user="classify")
        return self._each(texts, model.classify, num_best=num_best)

    def score(self, texts: Sequence[str], second_texts: Sequence[str] | None = None) -> np.ndarray:
        """Returns the logits of a classifier, such as a reranker.

        Args:
            texts: list of texts. Padding in batches does not affect the result.
            second_texts: list of as many texts, each read after its first text, such as the
                passages of queries.

        Returns:
            float64 [texts, classes], in the order of the model's classes.

        Raises:
            ConfigError: the model is not a classifier.
            DataError: a text is empty or too long (the message has its index); or second_texts are
                given, but the tokenizer has no template for two texts.
        """
        model = self.require(ClassifierModel, user="score")
        return model.score(self.params, texts, second_texts)
