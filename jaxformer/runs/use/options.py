"""Options of a call: decoding settings that override the run's own, and the seed."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import ConfigError

__all__ = ["seed_key", "with_options"]

Settings = TypeVar("Settings", SamplingConfig, BeamSearchConfig)


def with_options(
    kind: type[Settings], own: Settings, options: Mapping[str, Any], *others: str
) -> Settings:
    """The run's own decoding settings, with those of a call in place.

    `own` may be of a subclass, whose other fields are dropped. `others` are further arguments of
    the call, for the message.

    Raises:
        ConfigError: an option is not a field of the class, or its value is out of range.

    Example:
        >>> own = SamplingConfig(temperature=0.8, top_k=40)
        >>> sampling = with_options(SamplingConfig, own, {"top_k": None})
        >>> sampling.temperature, sampling.top_k
        (0.8, None)
    """
    names: list[str] = [field.name for field in dataclasses.fields(kind)]
    for name in options:
        if name not in names:
            known = ", ".join([*names, *others])
            raise ConfigError(f"there is no option {name!r}; the options are {known}")
    return kind(**{name: getattr(own, name) for name in names} | dict(options))


def seed_key(seed: int) -> jax.Array:
    """PRNG key of a seed.

    Raises:
        ConfigError: the seed is not an integer or is out of range.
    """
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise ConfigError(f"seed must be an integer in 0 .. 2**31 - 1, got {seed!r}")
    return jax.random.key(seed)
