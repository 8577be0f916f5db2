"""Results of a sweep: what its runs have reached, and a table over their seeds."""

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from jaxformer.errors import DataError
from jaxformer.storage import as_path
from jaxformer.sweeps.runs import read_sweep
from jaxformer.training import read_metrics
from jaxformer.training.records import METERS

_SEED = "seed"
_SPEEDS = ("_per_second", "learning_rate", "grad_norm")


@dataclasses.dataclass(frozen=True)
class SweepTable:
    """Mean and standard deviation over the seeds of a sweep, for each combination of values.

    Args:
        keys: keys of the sweep, except the seed.
        metrics: names of the metrics.
        rows: values of the keys, and for each metric the results of the seeds that have one.
        failures: why runs have left the sweep, by name.
    """

    keys: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: tuple[tuple[tuple[Any, ...], tuple[tuple[float, ...], ...]], ...]
    failures: Mapping[str, str]

    def curves(self, metric: int) -> dict[str, list[tuple[Any, float, float]]]:
        """Points (value of the first key, mean, deviation) for each combination of the others."""
        curves: dict[str, list[tuple[Any, float, float]]] = {}
        for values, columns in self.rows:
            results = columns[metric]
            if results and all(map(math.isfinite, results)):
                x, *rest = values or ("",)
                pairs = zip(self.keys[1:], rest, strict=True)
                name = ", ".join(f"{key} {_text(value)}" for key, value in pairs)
                deviation = statistics.stdev(results) if len(results) > 1 else 0.0
                point = x, statistics.fmean(results), deviation
                curves.setdefault(name, []).append(point)
        return curves

    def as_text(self) -> str:
        """The table for a terminal."""
        cells = [[*self.keys, *self.metrics]]
        for values, columns in self.rows:
            cells.append([*map(_text, values), *map(_mean_and_deviation, columns)])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        return "\n".join([*lines, *(f"{name}: {why}" for name, why in self.failures.items())])


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _mean_and_deviation(results: Sequence[float]) -> str:
    if not results:
        return "-"
    mean = f"{statistics.fmean(results):.4f}"
    if len(results) == 1 or not all(map(math.isfinite, results)):
        return mean
    return f"{mean} ± {statistics.stdev(results):.4f}"


def sweep_table(folder: str | pathlib.Path) -> SweepTable:
    """Reads the results of a sweep: the last value of each metric of its runs.

    Args:
        folder: folder of the sweep.

    Raises:
        CheckpointError: it is not the folder of a sweep.
        DataError: no run has metrics yet.
    """
    folder = as_path(folder)
    runs, failures = read_sweep(folder)
    results = {name: _last_metrics(folder / name) for name in runs if name not in failures}
    names = dict.fromkeys(metric for values in results.values() for metric in values)
    if not names:
        raise DataError(f"{folder} has no metrics yet; train the sweep first")
    metrics = [name for name in names if not name.endswith(_SPEEDS) and name not in METERS]
    keys = [key for key in next(iter(runs.values())) if key != _SEED]
    groups: dict[tuple[Any, ...], list[dict[str, float]]] = {}
    for name, values in runs.items():
        group = groups.setdefault(tuple(values[key] for key in keys), [])
        group.append(results.get(name, {}))
    rows = tuple(
        (values, tuple(tuple(run[name] for run in group if name in run) for name in metrics))
        for values, group in groups.items()
    )
    return SweepTable(tuple(keys), tuple(metrics), rows, failures)


def _last_metrics(folder: pathlib.Path) -> dict[str, float]:
    """Last value of each metric of a run, validation metrics first."""
    last: dict[str, float] = {}
    for record in read_metrics(folder):
        last |= {name: value for name, value in record.items() if name != "step"}
    return dict(sorted(last.items(), key=lambda item: "validation" not in item[0]))
