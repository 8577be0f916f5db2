"""Configs of position schemes and of the scaling of rotary ones, one class for each kind."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Annotated, Literal

from jaxformer.config.checks import Config, NonNegativeInt, PositiveFloat, PositiveInt, at_least


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearScalingConfig(Config):
    """Position interpolation: divides every rotary frequency by the same factor.

    `jaxformer.functional.LinearScaling` has the formula and its papers.

    Args:
        factor: ratio of the new length to the one that the model was first trained on, at least 1.
    """

    kind: Literal["linear"] = "linear"
    factor: Annotated[float, at_least(1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Llama3ScalingConfig(Config):
    """Llama 3.1: divides low rotary frequencies, keeps high ones, and interpolates in between.

    `jaxformer.functional.Llama3Scaling` has the formula and its papers.

    Args:
        factor: divisor of low frequencies, at least 1; 8 in Llama 3.1.
        low_freq_factor: a frequency counts as low if it makes at most this many turns within
            original_max_len tokens; 1 in Llama 3.1.
        high_freq_factor: a frequency counts as high if it makes at least this many turns within
            original_max_len tokens; 4 in Llama 3.1.
        original_max_len: length that the model was first trained on, in tokens.
    """

    kind: Literal["llama3"] = "llama3"
    factor: Annotated[float, at_least(1)]
    low_freq_factor: PositiveFloat
    high_freq_factor: PositiveFloat
    original_max_len: PositiveInt

    def _mistakes(self) -> Iterator[str]:
        if self.low_freq_factor >= self.high_freq_factor:
            got = self.got("low_freq_factor", "high_freq_factor")
            yield f"low_freq_factor must be less than high_freq_factor, {got}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class YarnScalingConfig(Config):
    """YaRN: divides low rotary frequencies, keeps high ones, and scales attention scores.

    `jaxformer.functional.YarnScaling` has the formula and its papers.

    Args:
        factor: divisor of low frequencies, at least 1.
        original_max_len: length that the model was first trained on, in tokens.
        beta_fast: a frequency counts as high if it makes at least this many turns within
            original_max_len tokens.
        beta_slow: a frequency counts as low if it makes at most this many turns within
            original_max_len tokens; frequencies between low and high ones are interpolated.
        attention_factor: factor of cosine and sine, so attention scores are multiplied by its
            square. If not set, it is the ratio given under mscale if mscale and mscale_all_dim are
            set, and else 0.1 * ln(factor) + 1.
        truncate: whether the interpolated range starts and ends at whole feature pairs, as in the
            authors' code; false for models trained without this, such as gpt-oss.
        mscale: mscale in this formula of the attention factor, as in DeepSeek-V2: `(0.1 * mscale *
            ln(factor) + 1) / (0.1 * mscale_all_dim * ln(factor) + 1)`; needs mscale_all_dim.
        mscale_all_dim: mscale_all_dim in the formula of mscale; needs mscale.
    """

    kind: Literal["yarn"] = "yarn"
    factor: Annotated[float, at_least(1)]
    original_max_len: PositiveInt
    beta_fast: PositiveFloat = 32.0
    beta_slow: PositiveFloat = 1.0
    attention_factor: PositiveFloat | None = None
    truncate: bool = True
    mscale: PositiveFloat | None = None
    mscale_all_dim: PositiveFloat | None = None

    def _mistakes(self) -> Iterator[str]:
        if self.beta_slow >= self.beta_fast:
            yield f"beta_slow must be less than beta_fast, {self.got('beta_slow', 'beta_fast')}"
        names = ("attention_factor", "mscale", "mscale_all_dim")
        if tuple(filter(self.sets, names)) not in ((), names[:1], names[1:]):
            yield (
                "yarn scaling takes attention_factor, or mscale and mscale_all_dim, or none of "
                f"them, {self.got(*names)}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongropeScalingConfig(Config):
    """LongRoPE: divides each rotary frequency by its own factor; long texts have other factors.

    `jaxformer.functional.LongropeScaling` has the formula and its papers.

    The factors are chosen per call, for all rows and positions, by the capacity of the cache or,
    without one, by the padded length T: short_factor up to original_max_len tokens, long_factor
    beyond. So a cache gives what one pass over as many tokens as its capacity gives, and a model
    whose max_len is at most original_max_len always uses short_factor. If every layer has a window
    that is smaller than the cache, max_len counts as the capacity.

    transformers chooses by the length of the text so far, and computes the cache anew when the text
    grows beyond original_max_len. The two differ for texts that grow beyond it during generation:
    here, long_factor applies from their first token.

    Args:
        factor: ratio of the new length to original_max_len, at least 1.
        original_max_len: length that the model was first trained on, in tokens.
        short_factor: divisors of the frequencies, highest frequency first: rotary_dim / 2 numbers.
            Used if the length is at most original_max_len tokens. The length is that of the rows,
            including padding; with a cache, it is the capacity of the cache.
        long_factor: divisors of the frequencies, highest frequency first: rotary_dim / 2 numbers.
            Used if the length, as for short_factor, is more than original_max_len tokens.
        attention_factor: factor of cosine and sine, so attention scores are multiplied by its
            square; if not set, sqrt(1 + ln(factor) / ln(original_max_len)).
    """

    kind: Literal["longrope"] = "longrope"
    factor: Annotated[float, at_least(1)]
    original_max_len: Annotated[int, at_least(2)]
    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    attention_factor: PositiveFloat | None = None

    def _mistakes(self) -> Iterator[str]:
        for name in ("short_factor", "long_factor"):
            values = getattr(self, name)
            if not values or not all(0 < value < math.inf for value in values):
                yield f"{name} must be positive numbers, one for each frequency, got {values!r}"
        if len(self.short_factor) != len(self.long_factor):
            yield (
                "short_factor and long_factor must have the same length, got "
                f"{len(self.short_factor)} and {len(self.long_factor)} numbers"
            )


RotaryScalingConfig = (
    LinearScalingConfig | Llama3ScalingConfig | YarnScalingConfig | LongropeScalingConfig
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotaryConfig(Config):
    """Rotary positions (RoPE): rotate queries and keys by angles that grow with the position.

    Args:
        base: base of the frequencies: the features of pair i rotate by base ** (-2i / R) radians
            per token, where R is rotary_dim.
        layout: features that form the rotated pair i: i and i + R/2 ("half", as in GPT-NeoX and
            Llama) or 2i and 2i + 1 ("interleaved", as in Su et al., 2021), where R is rotary_dim.
        rotary_dim: number of features of each head, counted from the first, that are rotated, as in
            GPT-NeoX (Black et al., 2022); even; all of head_dim if not set.
        scaling: change of the rotary frequencies for texts that are longer than those the model was
            first trained on; no change if not set.

    References:
        Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
    """

    kind: Literal["rotary"] = "rotary"
    base: PositiveFloat = 10_000.0
    layout: Literal["half", "interleaved"] = "half"
    rotary_dim: PositiveInt | None = None
    scaling: RotaryScalingConfig | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoPositionsConfig(Config):
    """No position encoding: only a causal mask conveys the order of tokens.

    References:
        Kazemnejad et al., "The Impact of Positional Encoding on Length Generalization in
        Transformers", 2023.
    """

    kind: Literal["none"] = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SinusoidalConfig(Config):
    """Sines and cosines of the position, added to the embeddings.

    Args:
        base: base of the wavelengths, which grow from 2 pi to almost 2 pi * base tokens.
        layout: order of the features: sine and cosine in turn ("interleaved", as in Vaswani et
            al., 2017), or all sines and then all cosines ("half", as in Marian).
        offset: position that the first token is encoded as, 0 or more; 2 in M2M-100 (Fan et
            al., "Beyond English-Centric Multilingual Machine Translation", 2020).

    References:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.5.
    """

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: PositiveFloat = 10_000.0
    layout: Literal["interleaved", "half"] = "interleaved"
    offset: NonNegativeInt = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnedConfig(Config):
    """A learned vector for each of the max_len positions, added to the embeddings.

    References:
        Gehring et al., "Convolutional Sequence to Sequence Learning", 2017.
    """

    kind: Literal["learned"] = "learned"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlibiConfig(Config):
    """ALiBi: a penalty on attention scores, linear in the distance, with a fixed slope per head.

    References:
        Press et al., "Train Short, Test Long: Attention with Linear Biases Enables Input Length
        Extrapolation", 2022.
    """

    kind: Literal["alibi"] = "alibi"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelativeConfig(Config):
    """Relative positions: a learned bias on attention scores per head and bucket of distances.

    Args:
        num_buckets: number of buckets, each with one bias per head; at least 2. In an encoder, half
            of them are for keys after the query, so it must be even and at least 4.
        max_distance: distance in tokens; all distances of at least this one share the last bucket.
        table: index of the table of biases: layers with the same index share their biases, and
            those with different indices do not, as in UMT5 (Chung et al., "UniMax", 2023).

    References:
        Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
        Transformer" (T5), 2020.
    """

    kind: Literal["relative"] = "relative"
    num_buckets: Annotated[int, at_least(2)] = 32
    max_distance: PositiveInt = 128
    table: NonNegativeInt = 0

    def _mistakes(self) -> Iterator[str]:
        if self.max_distance <= self.num_buckets // 2:
            yield (
                "max_distance must be more than num_buckets // 2, the distances that each have "
                f"their own bucket, {self.got('max_distance', 'num_buckets')}"
            )


PositionsConfig = (
    NoPositionsConfig | SinusoidalConfig | LearnedConfig | RotaryConfig | AlibiConfig
    | RelativeConfig
)  # fmt: skip

IN_EMBEDDINGS = ("sinusoidal", "learned")
"""Kinds that are added to the embeddings, which all layers share."""
