"""Options of a call: decoding settings that override the config's, and the seed."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import ConfigError

Texts = list[str] | tuple[str, ...]
"""Texts of a method that also takes a single one; a str is a Sequence[str], too."""

Settings = TypeVar("Settings", SamplingConfig, BeamSearchConfig)


def with_options(
    kind: type[Settings], defaults: Settings, options: Mapping[str, Any] = {}, *arguments: str
) -> Settings:
    """Decoding settings of a call, which override the defaults; other options raise ConfigError.

    The defaults may be of a subclass, whose other fields are dropped. The message names further
    `arguments` of the call.
    """
    names: list[str] = [field.name for field in dataclasses.fields(kind)]
    for name in options:
        if name not in names:
            known = ", ".join([*names, *arguments])
            raise ConfigError(f"there is no option {name!r}; the options are {known}")
    return kind(**{name: getattr(defaults, name) for name in names} | dict(options))


def seed_key(seed: int) -> jax.Array:
    """PRNG key of a seed; ConfigError unless it is an integer in 0 .. 2**31 - 1."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise ConfigError(f"seed must be an integer in 0 .. 2**31 - 1, got {seed!r}")
    return jax.random.key(seed)
