"""A trained run: generating, translating and predicting."""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Unpack, overload

import numpy as np

from jaxformer.config import (
    BeamSearchConfig,
    SamplingConfig,
    SamplingOptions,
    SearchOptions,
)
from jaxformer.runs.classification import ClassScore
from jaxformer.runs.conditional import Translation
from jaxformer.runs.masked import Fill
from jaxformer.runs.options import seed_key, with_options
from jaxformer.runs.trained import Texts, TrainedTask
from jaxformer.text import Message

__all__ = ["Run"]

_SHOWN = 5  # words in a warning


@dataclasses.dataclass(frozen=True, repr=False)
class Run(TrainedTask):
    """A trained run, which generates, translates, fills in masks or labels.

    A run can do what its task can; every other method raises ConfigError, which says what the run
    is, and what could.

    Args:
        folder: the run folder.
        task: what the model does, with its config and tokenizers.
        params: parameters of the checkpoint that was opened.
        step: of that checkpoint; None of a folder of Hugging Face.
        runner: of the devices that the parameters are on.
    """

    def generate(
        self,
        prompt: str,
        *,
        max_new_tokens: int | None = None,
        seed: int = 0,
        **sampling: Unpack[SamplingOptions],
    ) -> str:
        """Continues a text.

        Args:
            prompt: the text to continue; an empty one starts a new document, where the run was
                trained on windows of several.
            max_new_tokens: longest continuation; what fits the context when not given.
            seed: seed of the draws.
            **sampling: temperature, top_k, top_p, min_p, repetition_penalty,
                no_repeat_ngram_size, min_length and min_new_tokens, as in `SamplingOptions`; those
                of the run's samples when not given.

        Returns:
            The continuation, without the prompt.

        Raises:
            ConfigError: the model continues no texts, or comes from a folder with settings of
                generation that are not supported; or an option is unknown or impossible.
            DataError: the prompt is empty or too long, or cannot be encoded.
        """
        return self._continue("generate", prompt, max_new_tokens, seed, sampling)

    def generate_stream(
        self,
        prompt: str,
        *,
        max_new_tokens: int | None = None,
        seed: int = 0,
        **sampling: Unpack[SamplingOptions],
    ) -> Iterator[str]:
        """Continues a text as `generate` does, yielding pieces as they come."""
        return self._continue("generate_stream", prompt, max_new_tokens, seed, sampling)

    def chat(
        self,
        messages: Sequence[Message],
        *,
        max_new_tokens: int | None = None,
        seed: int = 0,
        **sampling: Unpack[SamplingOptions],
    ) -> str:
        """Answers a conversation.

        Args:
            messages: dicts with "role" ("user", "assistant", or another that the run was trained
                on, such as "system") and "content", the last one the message to answer.
            max_new_tokens: longest answer; what fits the context when not given.
            seed: seed of the draws.
            **sampling: as in `generate`.

        Returns:
            The answer.

        Raises:
            ConfigError: the model was not trained on conversations, or as in `generate`.
            DataError: there is no message, one is malformed, or they are too long.
        """
        return self._continue("chat", messages, max_new_tokens, seed, sampling)

    def chat_stream(
        self,
        messages: Sequence[Message],
        *,
        max_new_tokens: int | None = None,
        seed: int = 0,
        **sampling: Unpack[SamplingOptions],
    ) -> Iterator[str]:
        """Answers a conversation as `chat` does, yielding pieces as they come."""
        return self._continue("chat_stream", messages, max_new_tokens, seed, sampling)

    def _continue(
        self,
        ability: str,
        prompt: str | Sequence[Message],
        max_new_tokens: int | None,
        seed: int,
        sampling: SamplingOptions,
    ) -> Any:
        return self._call(
            ability,
            prompt,
            rng=seed_key(seed),
            sampling=self._sampling(sampling, "seed", "max_new_tokens"),
            max_new_tokens=max_new_tokens,
        )

    def _sampling(self, options: SamplingOptions, *others: str) -> SamplingConfig:
        return with_options(SamplingConfig, self.config.samples, options, *others)

    @overload
    def translate(self, sentences: str, **search: Unpack[SearchOptions]) -> list[Translation]: ...

    @overload
    def translate(
        self, sentences: Texts, **search: Unpack[SearchOptions]
    ) -> list[list[Translation]]: ...

    def translate(
        self, sentences: str | Texts, **search: Unpack[SearchOptions]
    ) -> list[Translation] | list[list[Translation]]:
        """Translates sentences by beam search, each as it would be alone.

        Warns of words that the training sources never had.

        Args:
            sentences: one, or a list of any number.
            **search: beam_size, num_best, length_penalty, early_stopping, no_repeat_ngram_size and
                min_new_tokens, as in `SearchOptions`; those of the run's config when not given.

        Returns:
            The best translations of a sentence, best first; of a list, those of every sentence.

        Raises:
            ConfigError: the model does not translate, or comes from a folder with settings of
                generation that are not supported; or an option is unknown or impossible.
            DataError: a sentence is empty or too long, or cannot be encoded.
        """
        settings = self._search(search)
        self._warn_of_new_words(sentences)
        return self._call_for(sentences, "translate", search=settings)

    def translate_stream(
        self, sentences: Texts, **search: Unpack[SearchOptions]
    ) -> Iterator[tuple[int, list[Translation]]]:
        """Translates a list as `translate` does, yielding (index, translations) as they come."""
        settings = self._search(search)
        self._warn_of_new_words(sentences)
        return self._call("translate_stream", sentences, search=settings)

    def _search(self, options: SearchOptions) -> BeamSearchConfig:
        return with_options(BeamSearchConfig, self.config.translation, options)

    @overload
    def sample_translations(
        self, sentences: str, *, seed: int = 0, **sampling: Unpack[SamplingOptions]
    ) -> str: ...

    @overload
    def sample_translations(
        self, sentences: Texts, *, seed: int = 0, **sampling: Unpack[SamplingOptions]
    ) -> list[str]: ...

    def sample_translations(
        self, sentences: str | Texts, *, seed: int = 0, **sampling: Unpack[SamplingOptions]
    ) -> str | list[str]:
        """Translates by drawing tokens rather than by a search; warns as `translate` does.

        Args:
            sentences: one, or a list of any number.
            seed: seed of the draws.
            **sampling: as in `generate`. no_repeat_ngram_size and min_length, which counts the
                start token, are those of the run's search when not given.

        Returns:
            A translation of the sentence; of a list, one of each.

        Raises:
            ConfigError: the model does not translate, or comes from a folder with settings of
                generation that are not supported; or an option is unknown or impossible.
            DataError: a sentence is empty or too long, or cannot be encoded.
        """
        rng, settings = seed_key(seed), self._drawing(sampling)
        self._warn_of_new_words(sentences)
        return self._call_for(sentences, "sample_translations", rng=rng, sampling=settings)

    def sample_translations_stream(
        self, sentences: Texts, *, seed: int = 0, **sampling: Unpack[SamplingOptions]
    ) -> Iterator[tuple[int, str]]:
        """Draws translations of a list, yielding (index, translation) as they come."""
        rng, settings = seed_key(seed), self._drawing(sampling)
        self._warn_of_new_words(sentences)
        return self._call("sample_translations_stream", sentences, rng=rng, sampling=settings)

    def _drawing(self, options: SamplingOptions) -> SamplingConfig:
        """Sampling of translations, whose n-grams and lengths follow the rules of the search."""
        search = self.config.translation
        rules: SamplingOptions = {
            "no_repeat_ngram_size": search.no_repeat_ngram_size,
            # With the start token, which counts in a row's length.
            "min_length": search.min_new_tokens + 1 if search.min_new_tokens else 0,
        }
        return self._sampling({**rules, **options}, "seed")

    def _warn_of_new_words(self, sentences: str | Texts) -> None:
        """Warns the caller of the method that calls this of words that are new to the model."""
        if not hasattr(self.task, "unseen_words"):
            return
        texts = [sentences] if isinstance(sentences, str) else sentences
        if words := self.task.unseen_words(texts):
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
        """Predicts what stands where texts have [MASK].

        Args:
            prompts: a text with at least one [MASK], each of which stands for one token; or a list
                of any number.
            num_best: how many tokens to return for each mask; all, where there are fewer.

        Returns:
            For every mask of a text, the likeliest tokens, best first; of a list, those of every
            text. Each mask is predicted with the others masked.

        Raises:
            DataError: a text has no [MASK], or is too long, or num_best is not positive.
        """
        return self._call_for(prompts, "fill_masks", num_best=num_best)

    @overload
    def classify(self, texts: str, num_best: int = 1) -> list[ClassScore]: ...

    @overload
    def classify(self, texts: Texts, num_best: int = 1) -> list[list[ClassScore]]: ...

    def classify(
        self, texts: str | Texts, num_best: int = 1
    ) -> list[ClassScore] | list[list[ClassScore]]:
        """Labels texts, each as it would be alone.

        Args:
            texts: one, or a list of any number.
            num_best: how many classes to return for each; all, where there are fewer.

        Returns:
            The likeliest classes of a text, best first; of a list, those of every text.

        Raises:
            ConfigError: the model labels no texts, or gives scores that are no probabilities.
            DataError: a text is empty or too long, or num_best is not positive.
        """
        return self._call_for(texts, "classify", num_best=num_best)

    def score(self, texts: Sequence[str], second_texts: Sequence[str] | None = None) -> np.ndarray:
        """Scores texts, such as by a reranker: the logits of a classifier, as they are.

        Args:
            texts: any number, in batches of about one length; padding changes nothing.
            second_texts: as many, each read behind its text, such as the passages of queries.

        Returns:
            float64 [texts, classes], in the order of the task's classes.

        Raises:
            ConfigError: the model is no classifier.
            DataError: a text is empty or too long; with its index. Or second_texts are given to a
                model whose tokenizer has no tokens between two texts.
        """
        return self._call("score", texts, second_texts)
