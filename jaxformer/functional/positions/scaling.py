"""Rotary scaling: extends the context beyond the training length."""

import math
from typing import NamedTuple

import numpy as np

from jaxformer.errors import ConfigError
from jaxformer.functional.checks import static_number


class LinearScaling(NamedTuple):
    """Position interpolation: divides every frequency by the same factor.

    References:
        Chen et al., "Extending Context Window of Large Language Models via Positional
        Interpolation", 2023.

    Example:
        >>> scale_frequencies(np.array([1.0, 0.5]), 4.0, LinearScaling(2.0))[0].tolist()
        [0.5, 0.25]
    """

    factor: float


class Llama3Scaling(NamedTuple):
    """Llama 3.1's scaling: divides low frequencies by the factor, and keeps high ones.

    A frequency is high if it makes at least `high_freq_factor` turns in `original_max_len`
    positions, and low if it makes at most `low_freq_factor`. Those in between are blended. Fields
    are those of `jaxformer.config.Llama3ScalingConfig`.

    References:
        Llama Team, "The Llama 3 Herd of Models", 2024; the formula is from the reference code.

    Example:
        >>> scaling = Llama3Scaling(8.0, 1.0, 4.0, 8192)
        >>> scale_frequencies(np.array([1.0, 1e-4]), 1e4, scaling)[0].tolist()
        [1.0, 1.25e-05]
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_len: int


class YarnScaling(NamedTuple):
    """YaRN's scaling: divides low frequencies by the factor, and scales attention scores.

    Feature pairs that make more than `beta_fast` turns in `original_max_len` positions keep their
    frequency. Those that make fewer than `beta_slow` turns have it divided by the factor. In
    between, the blend is linear in the index of the pair. Cosine and sine are multiplied by an
    attention factor. Fields are those of `jaxformer.config.YarnScalingConfig`; an attention factor
    that is set comes before `mscale` and `mscale_all_dim`. With these two, you must multiply the
    scale of the attention scores by the squared denominator of their formula.

    References:
        Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023,
        sections 3.2 to 3.4. DeepSeek-AI, "DeepSeek-V2", 2024.

    Example:
        >>> frequencies, attention_factor = scale_frequencies(
        ...     np.array([1.0, 1e-1, 1e-2, 1e-3]), 1e4, YarnScaling(4.0, 2048)
        ... )
        >>> frequencies.round(6).tolist(), round(attention_factor, 4)
        ([1.0, 0.1, 0.00625, 0.00025], 1.1386)
    """

    factor: float
    original_max_len: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None


class LongropeScaling(NamedTuple):
    """LongRoPE's scaling: divides each frequency by its own factor, found by a search.

    Models have two sets of factors: one for texts of up to `original_max_len` tokens, one for
    longer texts. Choose one and pass it as `factors`, a tuple of H/2. Cosine and sine are
    multiplied by an attention factor. Other fields are those of
    `jaxformer.config.LongropeScalingConfig`.

    References:
        Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", 2024 (the
        paper does not stretch the first tokens; published models do); Abdin et al., "Phi-3
        Technical Report", 2024.

    Example:
        >>> scaling = LongropeScaling((1.0, 4.0), 32.0, 4096)
        >>> frequencies, attention_factor = scale_frequencies(np.array([1.0, 0.5]), 4.0, scaling)
        >>> frequencies.tolist(), round(attention_factor, 4)
        ([1.0, 0.125], 1.1902)
    """

    factors: tuple[float, ...]
    factor: float
    original_max_len: int
    attention_factor: float | None = None


RotaryScaling = LinearScaling | Llama3Scaling | YarnScaling | LongropeScaling


def scale_frequencies(
    frequencies: np.ndarray, base: float, scaling: RotaryScaling | None
) -> tuple[np.ndarray, float]:
    """Scaled rotary frequencies `[H/2]`, radians per position; attention factor of cos and sin."""
    if scaling is None:
        return frequencies, 1.0
    _check_fields(scaling)
    if isinstance(scaling, LinearScaling):
        return frequencies / scaling.factor, 1.0
    if isinstance(scaling, Llama3Scaling):
        turns = scaling.original_max_len * frequencies / (2 * np.pi)
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        return _blend(frequencies, scaling.factor, keep=(turns - low) / (high - low)), 1.0
    if isinstance(scaling, LongropeScaling):
        if len(scaling.factors) != frequencies.size:
            raise ConfigError(
                "factors of LongropeScaling must be one for each of H/2 frequencies, got "
                f"{len(scaling.factors)} for {frequencies.size}"
            )
        return frequencies / np.asarray(scaling.factors, np.float64), _attention_factor(scaling)
    first, last = _blended_pairs(2 * frequencies.size, base, scaling)
    # As in the authors' code: 0.001 avoids a division by zero, and the width is negative if the
    # original length is too short for the blend to start before it ends.
    passed = (np.arange(frequencies.size) - first) / ((last - first) or 0.001)
    return _blend(frequencies, scaling.factor, keep=1 - passed), _attention_factor(scaling)


def _blend(frequencies: np.ndarray, factor: float, *, keep: np.ndarray) -> np.ndarray:
    """Keeps the share `keep` of each frequency, and divides the rest by the factor."""
    keep = keep.clip(0, 1)
    return frequencies * keep + frequencies / factor * (1 - keep)


def _blended_pairs(head_dim: int, base: float, scaling: YarnScaling) -> tuple[float, float]:
    """Indices of the feature pairs, possibly fractional, between which YaRN blends."""
    if base <= 1:
        raise ConfigError(f"base must be more than 1 for YarnScaling, got {base}")
    first, last = (
        head_dim * math.log(scaling.original_max_len / (turns * 2 * math.pi)) / 2 / math.log(base)
        for turns in (scaling.beta_fast, scaling.beta_slow)
    )
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    # The last pair is H/2 - 1, but the authors' code clips at H - 1, and models rely on it.
    return max(first, 0), min(last, head_dim - 1)


def _attention_factor(scaling: YarnScaling | LongropeScaling) -> float:
    if scaling.attention_factor is not None:
        return float(scaling.attention_factor)
    if isinstance(scaling, LongropeScaling):
        return math.sqrt(1 + math.log(scaling.factor) / math.log(scaling.original_max_len))
    growth = 0.1 * math.log(scaling.factor)
    if scaling.mscale is not None and scaling.mscale_all_dim is not None:
        return (growth * scaling.mscale + 1) / (growth * scaling.mscale_all_dim + 1)
    return growth + 1


def _check_fields(scaling: RotaryScaling) -> None:
    """Raises ConfigError unless a scaling consists of positive numbers, known when traced."""
    if not isinstance(scaling, RotaryScaling):
        raise ConfigError(
            "scaling must be a LinearScaling, Llama3Scaling, YarnScaling, LongropeScaling or None, "
            f"got {type(scaling).__name__}"
        )
    values, kind = scaling._asdict(), type(scaling).__name__
    for name, value in values.items():
        may_be_none = name in scaling._field_defaults
        if name == "truncate" or (value is None and may_be_none):
            continue
        for number in value if isinstance(value, tuple) else (value,):
            remedy = "under jit, make scaling a static argument"
            static_number(f"{name} of {kind}", number, positive=True, remedy=remedy)
    for lower, upper in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
        if lower in values and values[lower] >= values[upper]:
            raise ConfigError(
                f"{lower} of {kind} must be less than {upper}, got {values[lower]} and "
                f"{values[upper]}"
            )
