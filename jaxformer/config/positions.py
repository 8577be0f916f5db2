"""Configs of position schemes, one class for each kind.

`acts_on` says what a scheme changes: "embeddings", the "heads" of queries and keys, attention
"scores", or "nothing".
"""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from jaxformer.config.checks import (
    Config,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    at_least,
)
from jaxformer.config.rotary import RotaryConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoPositionsConfig(Config):
    """No position encoding: only a causal mask conveys the order of tokens.

    Args:
        kind: selects this position scheme.

    References:
        Kazemnejad et al., "The Impact of Positional Encoding on Length Generalization in
        Transformers", 2023.
    """

    acts_on: ClassVar[str] = "nothing"
    kind: Literal["none"] = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SinusoidalConfig(Config):
    """Sines and cosines of the position, added to the embeddings.

    Args:
        kind: selects this position scheme.
        base: base of the wavelengths, which grow from 2 pi to almost 2 pi * base tokens.
        layout: order of the features: sine and cosine in turn ("interleaved", as in Vaswani et
            al., 2017), or all sines and then all cosines ("half", as in Marian).
        offset: position that the first token is encoded as, 0 or more; 2 in M2M-100 (Fan et
            al., "Beyond English-Centric Multilingual Machine Translation", 2020).

    References:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.5.
    """

    acts_on: ClassVar[str] = "embeddings"
    kind: Literal["sinusoidal"] = "sinusoidal"
    base: PositiveFloat = 10_000.0
    layout: Literal["interleaved", "half"] = "interleaved"
    offset: NonNegativeInt = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnedConfig(Config):
    """A learned vector for each of the max_len positions, added to the embeddings.

    Args:
        kind: selects this position scheme.

    References:
        Gehring et al., "Convolutional Sequence to Sequence Learning", 2017.
    """

    acts_on: ClassVar[str] = "embeddings"
    kind: Literal["learned"] = "learned"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlibiConfig(Config):
    """ALiBi: a penalty on attention scores, linear in the distance, with a fixed slope per head.

    Args:
        kind: selects this position scheme.

    References:
        Press et al., "Train Short, Test Long: Attention with Linear Biases Enables Input Length
        Extrapolation", 2022.
    """

    acts_on: ClassVar[str] = "scores"
    kind: Literal["alibi"] = "alibi"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelativeConfig(Config):
    """Relative positions: a learned bias on attention scores per head and bucket of distances.

    Args:
        kind: selects this position scheme.
        num_buckets: number of buckets, each with one bias per head; at least 2. In an encoder, half
            of them are for keys after the query, so it must be even and at least 4.
        max_distance: distance in tokens; all distances of at least this one share the last bucket.
        table: index of the table of biases: layers with the same index share their biases, and
            those with different indices do not, as in UMT5 (Chung et al., "UniMax", 2023).

    References:
        Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
        Transformer" (T5), 2020.
    """

    acts_on: ClassVar[str] = "scores"
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
