"""The config of what a trained model is asked to write, and how its tokens are chosen."""

import dataclasses
from typing import Literal

from jaxformer.config.checks import (
    require,
    require_at_least_zero,
    require_choices,
    require_positive,
)

__all__ = ["BeamSearchConfig", "SamplesConfig", "SamplingConfig", "TranslationConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How the next token is chosen from the logits; filters apply in the order listed.

    Args:
        repetition_penalty: divides positive and multiplies negative logits of tokens already in
            the row (Keskar et al., CTRL, 2019); 1 changes nothing.
        temperature: divides the logits; 0 takes the most likely token (greedy).
        top_k: keep the k most likely tokens.
        top_p: keep the fewest most likely tokens whose probability reaches p.
        min_p: keep the tokens at least min_p times as likely as the most likely one.
    """

    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        require_positive(self, "repetition_penalty", "top_k")
        require_at_least_zero(self, "temperature")
        if self.top_p is not None:
            require(0 < self.top_p <= 1, "top_p must be in (0, 1]", top_p=self.top_p)
        if self.min_p is not None:
            require(0 <= self.min_p <= 1, "min_p must be in [0, 1]", min_p=self.min_p)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplesConfig(SamplingConfig):
    """What a training run shows at its end: continuations, translations or predictions.

    Args:
        prompts: texts to continue, to translate, to fill in where they have [MASK], or to
            classify; taken from the held-out text when not given.
        max_new_tokens: longest continuation in tokens; what fits the context when not given.
    """

    prompts: tuple[str, ...] = ()
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "max_new_tokens")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearchConfig:
    """How beam search looks for likely continuations.

    Args:
        beam_size: hypotheses that are followed at a time; 1 is greedy.
        length_penalty: exponent of the length that a hypothesis' log-probability is divided by.
        early_stopping: when a search ends that has beam_size finished hypotheses: at once (true),
            when the likeliest running one scores no better at its present length (false), or
            when none that runs can come to score better ("never").
        num_best: how many hypotheses to return, the best first; at most beam_size.

    References:
        Wu et al., "Google's Neural Machine Translation System", 2016 (length penalties).
    """

    beam_size: int = 4
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    num_best: int = 1

    def __post_init__(self) -> None:
        require_choices(self)
        require_positive(self, "beam_size", "num_best")
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationConfig(BeamSearchConfig):
    """How an encoder-decoder translates.

    Args:
        metrics_pairs: held-out pairs, the first ones, that are translated at every evaluation
            during training, greedily, for BLEU and chrF (needs jaxformer[eval]); 0 = none.
    """

    metrics_pairs: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_zero(self, "metrics_pairs")
