"""The config of a command with its flags: `--a.b value` sets the key b of the table a."""

import contextlib
import copy
import functools
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any

from jaxformer.config import ExperimentConfig, load_config, ready_configs
from jaxformer.config.checks import Key, keys_of
from jaxformer.config.data import READERS
from jaxformer.config.depth import at_depth
from jaxformer.config.files import config_of_file, read_tables
from jaxformer.config.reading import config_keys, with_values
from jaxformer.config.training import Launch
from jaxformer.errors import ConfigError
from jaxformer.storage import as_path

ConfigFlags = Annotated[Mapping[str, Any], ExperimentConfig]
"""Parameter of a command for the flags of a config: values of its keys by dotted key, and depth."""


@functools.cache
def flag_keys() -> dict[str, Key]:
    """What the flags of a config set: its keys, and the depth that its rules start from."""
    return {"depth": keys_of(load_config)["depth"], **config_keys()}


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
    keys = flag_keys()
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


def read_config(path: str, flags: Mapping[str, Any]) -> ExperimentConfig:
    """Config of a file, a name or a run folder, with flags."""
    return merged_config(path, config_tables(path, flags), flags)


def config_tables(path: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of a config or of a run folder, completed from the model that they start from."""
    folder = as_path(path)
    is_run = folder.is_dir() and path not in ready_configs()
    if is_run and not (folder / "config.toml").exists():
        raise ConfigError(
            f"{path} is a folder, but not a run: it has no config.toml; to start from a model in "
            f"it: jaxformer train CONFIG --init-from {path}"
        )
    tables = read_tables(folder / "config.toml" if is_run else path)
    if is_run:  # it may have been moved
        tables["out"] = str(folder)
    tables.setdefault("out", f"runs/{pathlib.Path(path).stem}")
    start = flags.get("init_from", tables.get("init_from"))
    if start is None:
        return tables
    from jaxformer.runs.weights.preparing import complete_tables

    return complete_tables(tables, start, flags.get("out") or tables["out"])


def merged_config(
    path: str, tables: Mapping[str, Any], flags: Mapping[str, Any]
) -> ExperimentConfig:
    """Config of the tables of a file and of flags, which take precedence over rules for a depth."""
    changed, values = " with these flags" if flags else "", dict(flags)
    depth = values.pop("depth", None)
    return config_of_file(
        path, lambda: with_flags(at_depth(tables, depth), values), changed=changed
    )


def start_jax(config: ExperimentConfig | None = None, launch: Launch | None = None) -> None:
    """Prepares JAX: the devices that a config asks for, and the other hosts of a job."""
    from jaxformer.training.parallel import split_cpu, start_hosts

    if config is not None and config.training.cpu_devices is not None:
        split_cpu(config.training.cpu_devices)
    if launch is not None:
        start_hosts(launch)
