"""The config of what a trained model is asked to write, and how its tokens are chosen."""

import dataclasses

from jaxformer.config.checks import require, require_at_least_zero, require_positive

__all__ = ["SamplesConfig", "SamplingConfig", "TranslationConfig"]


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
class TranslationConfig:
    """How an encoder-decoder translates.

    Args:
        beam_size: hypotheses that are followed at a time; 1 is greedy.
        length_penalty: exponent of the length that a hypothesis' log-probability is divided by.
        metrics_pairs: held-out pairs, the first ones, that are translated at every evaluation
            during training, greedily, for BLEU and chrF (needs jaxformer[eval]); 0 = none.
    """

    beam_size: int = 4
    length_penalty: float = 1.0
    metrics_pairs: int = 0

    def __post_init__(self) -> None:
        require_positive(self, "beam_size")
        require_at_least_zero(self, "metrics_pairs")
        require(
            -10 <= self.length_penalty <= 10,
            "length_penalty must be in -10 .. 10",
            length_penalty=self.length_penalty,
        )
