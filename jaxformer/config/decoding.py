"""Configs of sampling, beam search, translation and samples."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Literal

from jaxformer.config.checks import (
    Config,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UpToOne,
    within,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig(Config):
    """Sampling of the next token from the logits; settings apply in the order listed.

    Args:
        repetition_penalty: penalty on tokens already in the text: divides their positive logits,
            and multiplies their negative ones (Keskar et al., CTRL, 2019); 1 = no penalty.
        no_repeat_ngram_size: size of n-grams that may occur at most once in a text, including its
            prompt (Paulus et al., 2018); 0 = no limit.
        min_length: minimum number of tokens, including the prompt, before a text may end; not used
            if min_new_tokens is set.
        min_new_tokens: minimum number of new tokens before a text may end; takes precedence over
            min_length.
        temperature: divisor of the logits; 0 takes the most likely token (greedy).
        top_k: number of most likely tokens to choose from; all if not set.
        top_p: chooses from the smallest set of most likely tokens whose total probability reaches
            this number, from 0 (the most likely alone) to 1; all tokens if not set.
        min_p: chooses from the tokens whose probability is at least min_p times that of the most
            likely token, from 0 to 1; all tokens if not set.
    """

    repetition_penalty: PositiveFloat = 1.0
    no_repeat_ngram_size: NonNegativeInt = 0
    min_length: NonNegativeInt = 0
    min_new_tokens: NonNegativeInt = 0
    temperature: NonNegativeFloat = 1.0
    top_k: PositiveInt | None = None
    top_p: UpToOne | None = None
    min_p: UpToOne | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplesConfig(SamplingConfig):
    """Samples written at the end of training: continuations, translations or predictions.

    Args:
        prompts: texts to continue, translate, fill in at [MASK], or classify; from the validation
            data if empty.
        max_new_tokens: largest number of tokens of a continuation; what fits in the context if not
            set.
    """

    prompts: tuple[str, ...] = ()
    max_new_tokens: PositiveInt | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearchConfig(Config):
    """Beam search: keeps several hypotheses, and returns the best.

    Args:
        beam_size: number of running hypotheses; 1 = greedy.
        length_penalty: exponent e, from -10 to 10: the log-probability of a hypothesis is divided
            by its length ** e, so positive values favor long hypotheses.
        early_stopping: when to stop, once a search has beam_size finished hypotheses. true: at
            once. false: when the most probable running hypothesis, scored at its present length, is
            no better than the worst finished hypothesis. "never": when no running hypothesis can
            become better than the worst finished one.
        no_repeat_ngram_size: size of n-grams that may occur at most once in a hypothesis, including
            its start token; 0 = no limit.
        min_new_tokens: minimum number of tokens of a hypothesis before its end token.
        num_best: number of hypotheses to return, best first; at most beam_size.

    References:
        Wu et al., "Google's Neural Machine Translation System", 2016 (length penalties); Paulus et
        al., "A Deep Reinforced Model for Abstractive Summarization", 2018 (n-grams).
    """

    beam_size: PositiveInt = 4
    length_penalty: Annotated[float, within(-10, 10)] = 1.0
    early_stopping: bool | Literal["never"] = False
    no_repeat_ngram_size: NonNegativeInt = 0
    min_new_tokens: NonNegativeInt = 0
    num_best: PositiveInt = 1

    def _mistakes(self) -> Iterator[str]:
        if self.num_best > self.beam_size:
            yield f"num_best must be at most beam_size, {self.got('num_best', 'beam_size')}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationConfig(BeamSearchConfig):
    """Translation by beam search, and its metrics during training.

    Args:
        metrics_pairs: number of validation pairs, counted from the first, that are translated
            greedily at every validation to measure BLEU and chrF (needs jaxformer[eval]); 0 = none.
    """

    metrics_pairs: NonNegativeInt = 0
