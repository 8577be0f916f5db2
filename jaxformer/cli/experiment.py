"""Reading the config of a command with its flags."""

import pathlib
from collections.abc import Mapping
from typing import Any

from jaxformer.cli.flags import with_flags
from jaxformer.config import ExperimentConfig, ready_configs
from jaxformer.config.files import config_of_file, read_tables
from jaxformer.config.training import Launch
from jaxformer.errors import ConfigError
from jaxformer.storage import as_path


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
    """Config of the tables of a file and of flags."""
    changed = " with these flags" if flags else ""
    return config_of_file(path, with_flags(tables, flags), changed=changed)


def start_jax(config: ExperimentConfig | None = None, launch: Launch | None = None) -> None:
    """Prepares JAX: the devices that a config asks for, and the other hosts of a job."""
    from jaxformer.training.parallel import split_cpu, start_hosts

    if config is not None and config.training.cpu_devices is not None:
        split_cpu(config.training.cpu_devices)
    if launch is not None:
        start_hosts(launch)
