"""Reading the config of a command with its overrides."""

import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import tyro

from jaxformer.cli.overrides import implied_settings, override_config, split_flags
from jaxformer.cli.parsing import parse
from jaxformer.config import ExperimentConfig, load_config, ready_configs
from jaxformer.errors import ConfigError
from jaxformer.storage import as_path

ConfigPath = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG")]


def config_path(kind: type, words: Sequence[str]) -> tuple[str, list[str]]:
    """Splits the words of a command without flags of its own into config and flags."""
    if not words[0].startswith("-"):
        return words[0], list(words[1:])
    # A flag such as --help comes first.
    return parse(kind, args=list(words), prog=f"jaxformer {kind.__name__.lower()}").config, []


def load_with_start(path: str, words: Sequence[str]) -> ExperimentConfig:
    """Reads a config, or that of a run folder, which is then the run to resume.

    What a config leaves out is taken from the run or folder that it starts from.
    """
    folder = as_path(path)
    is_run = folder.is_dir() and path not in ready_configs()
    if is_run and not (folder / "config.toml").exists():
        raise ConfigError(
            f"{path} is a folder, but not a run: it has no config.toml; to start from a model in "
            f"it: jaxformer train CONFIG --init-from {path}"
        )

    def complete(values: Mapping[str, Any]) -> Mapping[str, Any]:
        if is_run:  # it may have been moved
            values = {**values, "out": str(folder)}
        typed = {flag.key: flag.values[0] for flag in reversed(split_flags(words)) if flag.values}
        start = typed.get("init_from") or values.get("init_from")
        if start is None:
            return values
        from jaxformer.runs import complete_tables

        out = typed.get("out") or values.get("out") or f"runs/{pathlib.Path(path).stem}"
        return complete_tables(values, start, out)

    return load_config(folder / "config.toml" if is_run else path, complete=complete)


def read_config(
    path: str, words: Sequence[str], *, command: str = "train", launches: bool = False
) -> tuple[ExperimentConfig, list[str]]:
    """Config with its overrides, and lines on settings that these imply; `command` has the help."""
    loaded = load_with_start(path, words)
    prog = f"jaxformer {command} {shlex.quote(path)}"
    config = override_config(loaded, words, prog=prog, launches=launches)
    return config, implied_settings(loaded, config, words)


def split_cpu_for(config: ExperimentConfig) -> None:
    """Splits the CPU into the number of devices in a config; call it before JAX starts."""
    if config.training.cpu_devices is not None:
        from jaxformer.training.parallel import split_cpu

        split_cpu(config.training.cpu_devices)
