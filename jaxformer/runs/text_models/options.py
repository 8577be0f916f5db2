"""Options of a call: decoding settings that override the config's, and the seed."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from jaxformer.config import BeamSearchConfig, SamplingConfig
from jaxformer.errors import DataError
from jaxformer.interop import SpecialTokens

_NEW_TOKENS = 256  # of a continuation by a model made elsewhere, if its folder does not say

Settings = TypeVar("Settings", SamplingConfig, BeamSearchConfig)


def with_options(
    kind: type[Settings], defaults: Settings, options: Mapping[str, Any] = {}
) -> Settings:
    """Settings of `kind` for a call, from defaults and options; TypeError for unknown ones."""
    values = {field.name: getattr(defaults, field.name) for field in dataclasses.fields(kind)}
    return kind(**{**values, **options})


def longest_continuation(special: SpecialTokens, max_len: int, num_tokens: int) -> int:
    """Largest number of new tokens after a prompt: that of the model's folder, else what fits."""
    longest, room = special.max_length, max(1, max_len - num_tokens)
    if longest is not None and special.max_new_tokens is None:
        if num_tokens >= longest:
            raise DataError(
                f"the model's folder has max_length={longest}, which counts the tokens of the "
                f"prompt, got {num_tokens} of them; set max_new_tokens"
            )
        return min(room, longest - num_tokens)
    # The context of a model made elsewhere is often much longer than any text.
    return min(room, special.max_new_tokens or (_NEW_TOKENS if special.model_type else room))
