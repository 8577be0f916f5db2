"""The config of rotary scaling: how rotary positions are stretched."""

import dataclasses
from typing import Literal

from jaxformer.config.checks import require, require_choices, require_positive
from jaxformer.errors import ConfigError

__all__ = ["RotaryScalingConfig"]

# What each kind of rotary scaling must be told, and may be.
_SCALING_NEEDS = {
    "none": (),
    "linear": ("factor",),
    "llama3": ("factor", "original_max_len", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "original_max_len"),
}
_SCALING_TAKES = _SCALING_NEEDS | {
    "yarn": ("factor", "original_max_len", "beta_fast", "beta_slow", "attention_factor")
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotaryScalingConfig:
    """How rotary positions are stretched beyond the length that a model was first trained on.

    Args:
        kind: linear divides every frequency by the factor; llama3 and yarn leave high ones as
            they are, divide low ones, and blend between.
        factor: new length over the old one, at least 1; every kind needs it.
        original_max_len: the old length in tokens; llama3 and yarn need it.
        low_freq_factor: at most so many turns in the old length make a frequency low (llama3
            needs it; 1 in Llama 3.1).
        high_freq_factor: at least so many make it high (llama3 needs it; 4 in Llama 3.1).
        beta_fast: turns in the old length from which yarn keeps a frequency; 32 when not given.
        beta_slow: turns up to which yarn divides it fully; 1 when not given.
        attention_factor: what yarn multiplies cosine and sine by; 0.1 * ln(factor) + 1 when not
            given.

    References:
        Chen et al., "Extending Context Window of Large Language Models via Positional
        Interpolation", 2023 (linear); Llama Team, "The Llama 3 Herd of Models", 2024; Peng et
        al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023.
    """

    kind: Literal["none", "linear", "llama3", "yarn"] = "none"
    factor: float | None = None
    original_max_len: int | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        require_choices(self)
        options = [field.name for field in dataclasses.fields(self) if field.name != "kind"]
        require_positive(self, *options)
        for name in options:
            value = getattr(self, name)
            if value is None and name in _SCALING_NEEDS[self.kind]:
                raise ConfigError(f"rotary scaling of kind {self.kind!r} needs {name}, got none")
            if value is not None and name not in _SCALING_TAKES[self.kind]:
                kinds = " or ".join(repr(k) for k, takes in _SCALING_TAKES.items() if name in takes)
                raise ConfigError(
                    f"{name} is for rotary scaling of kind {kinds}, got kind={self.kind!r} and "
                    f"{name}={value!r}; remove it, or change kind"
                )
        if self.factor is not None:
            require(self.factor >= 1, "factor must be at least 1", factor=self.factor)
        if self.low_freq_factor is not None and self.high_freq_factor is not None:
            require(
                self.low_freq_factor < self.high_freq_factor,
                "low_freq_factor must be less than high_freq_factor",
                low_freq_factor=self.low_freq_factor,
                high_freq_factor=self.high_freq_factor,
            )
        beta_slow = 1.0 if self.beta_slow is None else self.beta_slow
        beta_fast = 32.0 if self.beta_fast is None else self.beta_fast
        require(
            beta_slow < beta_fast,
            "beta_slow must be less than beta_fast",
            beta_slow=beta_slow,
            beta_fast=beta_fast,
        )
