"""Combinations of values, and names of runs by them."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxformer.errors import ConfigError

__all__ = ["combine_values", "name_runs"]


def combine_values(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of values, by name; the last name varies fastest.

    Raises:
        ConfigError: a name has no values.

    Example:
        >>> combine_values({"width": [8, 16], "seed": [0]})
        [{'width': 8, 'seed': 0}, {'width': 16, 'seed': 0}]
    """
    for name, options in values.items():
        if not len(options):
            raise ConfigError(f"a sweep needs at least one value of each name, got none: {name}")
    return [dict(zip(values, one, strict=True)) for one in itertools.product(*values.values())]


def name_runs(combinations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of runs, by the values that distinguish them, in the order of the names of these.

    Args:
        combinations: values of each run, by dotted keys.

    Raises:
        ConfigError: two runs have the same name.

    Example:
        >>> name_runs([{"optimizer.learning_rate": 1e-3, "seed": 0}])
        ['learning_rate=0.001,seed=0']
    """
    names: list[str] = []
    for one in combinations:
        last = [key.rpartition(".")[2] for key in one]
        keys = last if len(set(last)) == len(last) else list(one)
        parts = [f"{key}={_text(value)}" for key, value in zip(keys, one.values(), strict=True)]
        name = ",".join(sorted(parts)) or "run"
        if name in names:
            raise ConfigError(f"the runs of a sweep must differ, got {name} twice; remove one")
        names.append(name)
    return names


def _text(value: Any) -> str:
    """A value in the name of a folder."""
    value = getattr(value, "__name__", value)  # of a function or a class
    is_float = isinstance(value, float | np.floating)
    # Short if nothing is lost, so that unequal numbers have unequal names.
    text = f"{value:g}" if is_float and float(f"{value:g}") == value else str(value)
    return re.sub(r"[^\w.+-]+", "_", text)
