"""The runs of a sweep before and after they are trained: their names, and the sweep's file."""

import itertools
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.storage import make_folder, read_json, write_whole
from jaxformer.training.fit import FitResult
from jaxformer.training.trial import RunSpec

_FILE = "sweep.json"


class SweepRun(NamedTuple):
    """A run of a sweep.

    Args:
        name: name of the run, and of its folder.
        values: what distinguishes it, by name.
        result: how its training ended; its params, after the last step that it took part in. They
            are None if the run failed in an earlier call, or if a signal stopped the sweep before
            the run began.
        failure: why the run left the sweep early, such as a loss that is not finite.
    """

    name: str
    values: Mapping[str, Any]
    result: FitResult
    failure: str | None = None


class SweepSpec(NamedTuple):
    """A run of a sweep before it is trained on `num_devices`, with its values by name."""

    run: RunSpec
    values: Mapping[str, Any]
    num_devices: int | None = None


def combine_values(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of values, by name; the last name varies fastest."""
    for name, options in values.items():
        if not len(options):
            raise ConfigError(f"a sweep needs at least one value of each name, got none: {name}")
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def name_runs(combinations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of runs, by the values that distinguish them, in the order of the names of these."""
    names: list[str] = []
    for values in combinations:
        last = [key.rpartition(".")[2] for key in values]
        keys = last if len(set(last)) == len(last) else list(values)
        parts = [f"{key}={_text(value)}" for key, value in zip(keys, values.values(), strict=True)]
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


def failures_before(specs: Sequence[SweepSpec], folder: pathlib.Path | None) -> dict[str, str]:
    """The runs that have failed in earlier calls, and why; raises if these swept other names."""
    if folder is None or not (folder / _FILE).exists():
        return {}
    runs, failures = read_sweep(folder)
    keys, now = set(next(iter(runs.values()))), set(specs[0].values)
    if keys != now:
        raise CheckpointError(
            f"{folder} is a sweep of {', '.join(sorted(keys))}, got {', '.join(sorted(now))}; "
            "choose another folder"
        )
    return failures


def write_sweep(
    specs: Sequence[SweepSpec], failures: Mapping[str, str], folder: pathlib.Path | None
) -> None:
    """Writes the file of a sweep; runs of earlier calls stay in it."""
    if folder is None:
        return
    runs = read_sweep(folder)[0] if (folder / _FILE).exists() else {}
    make_folder(folder)
    runs = {**runs, **{spec.run.name: dict(spec.values) for spec in specs}}
    text = json.dumps({"runs": runs, "failures": dict(failures)}, indent=1, default=_plain)
    write_whole(folder / _FILE, text + "\n")


def read_sweep(folder: pathlib.Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Values of each run of a sweep, by its name; and why runs have left it."""

    def parse(content: Any) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        return dict(content["runs"]), dict(content["failures"])

    try:
        return read_json(folder / _FILE, parse)
    except CheckpointError as error:
        raise CheckpointError(
            f"{folder} is not the folder of a sweep: {error}; jaxformer sweep makes one"
        ) from error


def _plain(value: Any) -> Any:
    """A value of another library, such as a NumPy number, as JSON can hold it."""
    return value.item() if getattr(value, "shape", None) == () else str(value)
