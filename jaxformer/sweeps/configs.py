"""The configs of a sweep's runs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxformer.config import ExperimentConfig, config_from_dict
from jaxformer.config.files import tables_of
from jaxformer.config.reading import with_values
from jaxformer.sweeps.runs import combine_values, name_runs

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
    tables = tables_of(config)
    configs = [
        config_from_dict(ExperimentConfig, with_values(tables, _tables_in(combination)))
        for combination in combinations
    ]
    return dict(zip(name_runs(shown), zip(shown, configs, strict=True), strict=True))


def _tables_in(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: tables_of(value) if dataclasses.is_dataclass(value) else value
        for key, value in values.items()
    }
