"""The configs of a sweep's runs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxformer.config import ExperimentConfig
from jaxformer.config.reading import suggested_keys
from jaxformer.errors import ConfigError
from jaxformer.training.sweep import combine_values, name_runs

NamedConfigs = Mapping[str, tuple[Mapping[str, Any], ExperimentConfig]]
"""What distinguishes each run of a sweep, and its config, by the run's name."""


def sweep_configs(config: ExperimentConfig, values: Mapping[str, Sequence[Any]]) -> NamedConfigs:
    """The configs of all combinations of values.

    Args:
        config: the experiment.
        values: values of each key, such as "optimizer.learning_rate", or of a whole table, such as
            "optimizer".

    Raises:
        ConfigError: there is no such key, a key has no values, or a value is impossible.

    Example:
        >>> from jaxformer.config import load_config
        >>> rates = {"optimizer.learning_rate": [1e-3, 3e-3], "seed": [0, 1]}
        >>> list(sweep_configs(load_config("quickstart"), rates))[-1]
        'learning_rate=0.003,seed=1'
    """
    combinations = combine_values(values)
    shown = [  # of a table its kind, such as "adamw"
        {key: getattr(v, "name", getattr(v, "kind", v)) for key, v in combination.items()}
        for combination in combinations
    ]
    configs = [
        _replaced(config, [(key.split("."), value) for key, value in combination.items()])
        for combination in combinations
    ]
    return dict(zip(name_runs(shown), zip(shown, configs, strict=True), strict=True))


def _replaced(config: Any, settings: Sequence[tuple[Sequence[str], Any]], prefix: str = "") -> Any:
    """A checked copy of a config with other settings, all of which are set at once."""
    names = {field.name: field for field in dataclasses.fields(config)}
    changed: dict[str, Any] = {}
    inner: dict[str, list[tuple[Sequence[str], Any]]] = {}
    for (name, *rest), value in settings:
        if name not in names:
            near = suggested_keys(name, names)
            hint = f"; did you mean {prefix}{near[0]}?" if near else ""
            raise ConfigError(f"a sweep must be over keys of the config, got {prefix}{name}{hint}")
        if rest:
            inner.setdefault(name, []).append((rest, value))
        else:
            changed[name] = value
    for name, settings_of_table in inner.items():
        table = changed.get(name, getattr(config, name))
        changed[name] = _replaced(table, settings_of_table, f"{prefix}{name}.")
    return dataclasses.replace(config, **changed)
