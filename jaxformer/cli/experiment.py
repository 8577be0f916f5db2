"""Reading the config of a command with its flags."""

import os
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from jaxformer.cli.flags import Flag, with_flags
from jaxformer.config import ExperimentConfig, ready_configs
from jaxformer.config.files import config_of_file, read_tables, toml_value
from jaxformer.config.training import Launch
from jaxformer.errors import ConfigError
from jaxformer.storage import as_path

# Keys that only make sense for the data of the config itself.
_OF_DATA = ("data.source", "data.mixture", "data.validation_paths", "samples.prompts")


def config_tables(path: str, flags: Sequence[Flag]) -> dict[str, Any]:
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
    typed = {flag.key: flag.values[0] for flag in flags if flag.values}
    start = typed.get("init_from") or tables.get("init_from")
    if start in (None, "None"):
        return tables
    from jaxformer.runs import complete_tables

    return complete_tables(tables, start, typed.get("out") or tables["out"])


def read_config(
    path: str, flags: Sequence[Flag], *, command: str = "train"
) -> tuple[ExperimentConfig, list[str]]:
    """Config with its flags, and lines on settings that `--data.paths` implies."""
    return merged_config(path, config_tables(path, flags), flags, command=command)


def merged_config(
    path: str, tables: dict[str, Any], flags: Sequence[Flag], *, command: str
) -> tuple[ExperimentConfig, list[str]]:
    """`read_config` of tables that have been read."""
    prog = f"jaxformer {command} {shlex.quote(path)}"
    merged, replaced = with_flags(tables, flags, prog=prog)
    config = config_of_file(path, merged, changed=" with these flags" if flags else "")
    lines, names = [], {flag.key for flag in flags}
    for key in _OF_DATA:
        table, name = key.split(".")
        new = toml_value(getattr(getattr(config, table), name))
        old = toml_value(replaced.get(key))
        if key in replaced and key not in names and new != old:
            lines.append(f"{key} = {new}, not {old}, because data.paths is given")
    return config, lines


def start_jax(config: ExperimentConfig | None = None, launch: Launch | None = None) -> None:
    """Starts JAX, on the devices that a config asks for, or as one of several hosts."""
    from jaxformer.training.parallel import split_cpu, start_hosts

    if config is not None and config.training.cpu_devices is not None:
        split_cpu(config.training.cpu_devices)
    if launch is not None:
        start_hosts(launch)
    import jax

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"JAX cannot start with JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}: "
            f"{str(error) or 'no such platform'}; install the platform, such as jaxformer[tpu] or "
            "jaxformer[cuda13], or unset it"
        ) from error
