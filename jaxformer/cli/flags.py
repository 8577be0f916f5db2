"""Flags of a command line: `--a.b value` sets the key b of the table a."""

import contextlib
import copy
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any

from jaxformer.config import ExperimentConfig
from jaxformer.config.checks import Key
from jaxformer.config.data import READERS
from jaxformer.config.reading import config_keys, with_values
from jaxformer.storage import as_path

ConfigFlags = Annotated[Mapping[str, Any], ExperimentConfig]
"""Parameter of a command for the flags of the keys of a config: values by dotted key."""


def value_of(key: Key, words: Any) -> Any:
    """Value of a flag's word, or words, as TOML would have it; a word that is no value stays."""
    if key.element is not None:
        return tuple(value_of(key.element, word) for word in words)
    if words == "None" and key.optional:
        return None
    if pathlib.Path in key.members:
        return as_path(words)
    if bool in key.members and words.lower() in ("true", "false"):
        return words.lower() == "true"
    if int in key.members or float in key.members:
        with contextlib.suppress(ValueError):
            return int(words) if words.lstrip("+-").isdecimal() else float(words)
    return words


def config_values(words: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the flags of a config, from the words of all flags, by dotted key."""
    keys = config_keys()
    return {name: value_of(keys[name], typed) for name, typed in words.items() if name in keys}


def with_flags(tables: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of a config with flags merged into them; other paths replace its own data."""
    return with_values(_without_data(tables) if "data.paths" in flags else tables, flags)


def _without_data(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables without what only makes sense for the data of the config itself."""
    left: dict[str, Any] = copy.deepcopy(dict(tables))
    data, samples = (left.get(name, {}) for name in ("data", "samples"))
    if not isinstance(data, dict) or not isinstance(samples, dict):
        return left
    if data.get("source", "files") not in READERS["paths"]:
        samples.pop("prompts", None)
        for name in ("source", "synthetic"):
            data.pop(name, None)
    for name in ("paths", "mixture", "validation_paths"):
        data.pop(name, None)
    return left
