"""Configs of position schemes, one class for each.

Each says by `acts_on` what it changes: "embeddings", the "heads" of queries and keys, or the
attention "scores". Rules that hold for only some of the three ask for it.
"""

import dataclasses
from typing import ClassVar, Literal

from jaxformer.config.checks import (
    require,
    require_at_least_zero,
    require_positive,
    require_types,
)
from jaxformer.config.kinds import resolve_kinds
from jaxformer.config.rotary_scaling import RotaryScalingConfig, YarnScalingConfig

__all__ = [
    "AlibiConfig",
    "LearnedConfig",
    "NoPositionsConfig",
    "PositionsConfig",
    "RelativeConfig",
    "RotaryConfig",
    "SinusoidalConfig",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoPositionsConfig:
    """No position encoding; a causal mask alone tells the order of tokens.

    Args:
        kind: "none".

    References:
        Kazemnejad et al., "The Impact of Positional Encoding on Length Generalization in
        Transformers", 2023.
    """

    acts_on: ClassVar[str] = "nothing"
    kind: Literal["none"] = "none"

    def __post_init__(self) -> None:
        require_types(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SinusoidalConfig:
    """Sines and cosines of the position, added to the embeddings.

    Args:
        kind: "sinusoidal".
        base: wavelengths grow from 2 pi to almost 2 pi * base tokens.
        layout: order of the features: sine and cosine in turn ("interleaved", as in the paper), or
            all sines and then all cosines ("half", as in Marian).
        offset: position that the first token is encoded as; 2 in M2M-100 (Fan et al., "Beyond
            English-Centric Multilingual Machine Translation", 2020).

    References:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.5.
    """

    acts_on: ClassVar[str] = "embeddings"
    kind: Literal["sinusoidal"] = "sinusoidal"
    base: float = 10_000.0
    layout: Literal["interleaved", "half"] = "interleaved"
    offset: int = 0

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "base")
        require_at_least_zero(self, "offset")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnedConfig:
    """A learned vector for each of max_len positions, added to the embeddings.

    Args:
        kind: "learned".

    References:
        Gehring et al., "Convolutional Sequence to Sequence Learning", 2017.
    """

    acts_on: ClassVar[str] = "embeddings"
    kind: Literal["learned"] = "learned"

    def __post_init__(self) -> None:
        require_types(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotaryConfig:
    """Rotary positions: queries and keys are rotated by an angle that grows with the position.

    Args:
        kind: "rotary".
        base: base of the frequencies.
        layout: features that form a rotated pair: i and i + H/2 ("half", as in GPT-NeoX and
            Llama) or 2i and 2i + 1 ("interleaved", as in the paper).
        rotary_dim: how many features of a head are rotated, the first ones, as in GPT-NeoX (Black
            et al., 2022); all when not given.
        scaling: how positions are stretched beyond the length that the model was first trained
            on: of kind linear, llama3, yarn or longrope; not at all when not given.

    References:
        Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
    """

    acts_on: ClassVar[str] = "heads"
    kind: Literal["rotary"] = "rotary"
    base: float = 10_000.0
    layout: Literal["half", "interleaved"] = "half"
    rotary_dim: int | None = None
    scaling: RotaryScalingConfig | None = None

    def __post_init__(self) -> None:
        require_types(self)
        resolve_kinds(self)
        require_positive(self, "base", "rotary_dim")
        if self.rotary_dim is not None:
            require(self.rotary_dim % 2 == 0, "rotary_dim must be even", rotary_dim=self.rotary_dim)
        if isinstance(self.scaling, YarnScalingConfig):
            # YaRN divides by the logarithm of the base.
            require(self.base > 1, "base must be more than 1 for yarn scaling", base=self.base)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlibiConfig:
    """ALiBi: a bias on the attention scores that falls with the distance, head by head.

    Args:
        kind: "alibi".

    References:
        Press et al., "Train Short, Test Long: Attention with Linear Biases Enables Input Length
        Extrapolation", 2022.
    """

    acts_on: ClassVar[str] = "scores"
    kind: Literal["alibi"] = "alibi"

    def __post_init__(self) -> None:
        require_types(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelativeConfig:
    """A learned bias on the attention scores for each bucket of distances and each head.

    Args:
        kind: "relative".
        num_buckets: number of biases of each head; where attention is not causal, half of them are
            for keys after the query.
        max_distance: distance in tokens from which on all share the last bucket.
        table: number of the table of biases: layers of `ModelConfig.layers` whose numbers differ
            have biases of their own, as in UMT5 (Chung et al., "UniMax", 2023).

    References:
        Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
        Transformer" (T5), 2020.
    """

    acts_on: ClassVar[str] = "scores"
    kind: Literal["relative"] = "relative"
    num_buckets: int = 32
    max_distance: int = 128
    table: int = 0

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "num_buckets", "max_distance")
        require_at_least_zero(self, "table")
        require(
            self.num_buckets >= 2,
            "num_buckets must be at least 2, for near and far",
            num_buckets=self.num_buckets,
        )
        require(
            self.max_distance > self.num_buckets // 2,
            "max_distance must be more than num_buckets // 2, the distances with a bucket of "
            "their own",
            max_distance=self.max_distance,
            num_buckets=self.num_buckets,
        )


PositionsConfig = (
    NoPositionsConfig | SinusoidalConfig | LearnedConfig | RotaryConfig | AlibiConfig
    | RelativeConfig
)  # fmt: skip
