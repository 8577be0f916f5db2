"""Configs of sampling, beam search, translation and samples, and their options in a call."""

import dataclasses
from typing import Literal, TypedDict

from jaxformer.config.checks import (
    require,
    require_at_least_zero,
    require_at_most,
    require_positive,
    require_types,
)

__all__ = [
    "BeamSearchConfig",
    "SamplesConfig",
    "SamplingConfig",
    "SamplingOptions",
    "SearchOptions",
    "TranslationConfig",
]

_MAX_BEAMS = 10_000  # with more than a hundred, translations hardly change


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """Sampling of the next token from the logits; filters apply in the order listed.

    Args:
        repetition_penalty: divides positive and multiplies negative logits of tokens already in
            the row (Keskar et al., CTRL, 2019); 1 changes nothing.
        no_repeat_ngram_size: n of the n-grams that a row, its prompt included, has at most once
            (Paulus et al., 2018); 0 lets all repeat.
        min_length: tokens of a row, its prompt included, before its stop token.
        min_new_tokens: tokens of a continuation before its stop token; it wins over min_length.
        temperature: divides the logits; 0 takes the likeliest token (greedy).
        top_k: keep the k likeliest tokens.
        top_p: keep the fewest likeliest tokens whose probabilities sum to top_p.
        min_p: keep the tokens at least min_p times as likely as the likeliest one.
    """

    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_length: int = 0
    min_new_tokens: int = 0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "repetition_penalty", "top_k")
        require_at_least_zero(
            self, "temperature", "no_repeat_ngram_size", "min_length", "min_new_tokens"
        )
        if self.top_p is not None:
            require(0 < self.top_p <= 1, "top_p must be in (0, 1]", top_p=self.top_p)
        if self.min_p is not None:
            require(0 <= self.min_p <= 1, "min_p must be in [0, 1]", min_p=self.min_p)


class SamplingOptions(TypedDict, total=False):
    """Sampling of the next token; a setting that is not given is the run's own.

    Args:
        repetition_penalty: divides positive and multiplies negative logits of tokens already in
            the text; 1 changes nothing.
        no_repeat_ngram_size: n of the n-grams that a text, its prompt included, has at most once;
            0 lets all repeat.
        min_length: tokens of a text, its prompt included, before its end.
        min_new_tokens: tokens of a continuation before its end; it wins over min_length.
        temperature: divides the logits; 0 takes the likeliest token (greedy).
        top_k: keep the k likeliest tokens; None keeps all.
        top_p: keep the fewest likeliest tokens whose probabilities sum to top_p; None keeps all.
        min_p: keep the tokens at least min_p times as likely as the likeliest one; None keeps all.
    """

    repetition_penalty: float
    no_repeat_ngram_size: int
    min_length: int
    min_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplesConfig(SamplingConfig):
    """Samples at the end of training: continuations, translations or predictions.

    Args:
        prompts: texts to continue, to translate, to fill in where they have [MASK], or to
            classify; taken from the validation text when not given.
        max_new_tokens: length of the longest continuation; what fits the context when not given.
    """

    prompts: tuple[str, ...] = ()
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "max_new_tokens")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearchConfig:
    """Beam search.

    Args:
        beam_size: number of running hypotheses; 1 is greedy.
        length_penalty: exponent of the length that a hypothesis' log-probability is divided by.
        early_stopping: when a search with beam_size finished hypotheses ends: at once (true), when
            the likeliest running one scores no better at its present length (false), or when no
            running one can become better ("never").
        no_repeat_ngram_size: n of the n-grams that a hypothesis, the start token included, has at
            most once; 0 lets all repeat.
        min_new_tokens: tokens of a hypothesis before its end token.
        num_best: number of hypotheses to return, best first; at most beam_size.

    References:
        Wu et al., "Google's Neural Machine Translation System", 2016 (length penalties); Paulus et
        al., "A Deep Reinforced Model for Abstractive Summarization", 2018 (n-grams).
    """

    beam_size: int = 4
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 0
    num_best: int = 1

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "beam_size", "num_best")
        require_at_least_zero(self, "no_repeat_ngram_size", "min_new_tokens")
        require_at_most(self, _MAX_BEAMS, "beam_size")
        require(
            -10 <= self.length_penalty <= 10,
            "length_penalty must be in -10 .. 10",
            length_penalty=self.length_penalty,
        )
        require(
            self.num_best <= self.beam_size,
            "num_best must be at most beam_size",
            num_best=self.num_best,
            beam_size=self.beam_size,
        )


class SearchOptions(TypedDict, total=False):
    """Beam search; a setting that is not given is the run's own.

    Args:
        beam_size: number of running hypotheses; 1 is greedy.
        length_penalty: exponent of the length that a hypothesis' log-probability is divided by.
        early_stopping: when a search with beam_size finished hypotheses ends: at once (True), when
            the likeliest running one scores no better at its present length (False), or when no
            running one can become better ("never").
        no_repeat_ngram_size: n of the n-grams that a translation, the start token included, has at
            most once; 0 lets all repeat.
        min_new_tokens: tokens of a translation before its end.
        num_best: number of translations of each sentence, best first; at most beam_size.
    """

    beam_size: int
    length_penalty: float
    early_stopping: bool | Literal["never"]
    no_repeat_ngram_size: int
    min_new_tokens: int
    num_best: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationConfig(BeamSearchConfig):
    """Translation by beam search, and its metrics during training.

    Args:
        metrics_pairs: number of validation pairs, from the first, that are translated greedily at
            every evaluation during training, for BLEU and chrF (needs jaxformer[eval]); 0 = none.
    """

    metrics_pairs: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_zero(self, "metrics_pairs")
