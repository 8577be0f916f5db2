"""Results of a sweep: what its runs have reached, and a table over their seeds."""

import csv
import dataclasses
import html
import io
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from jaxformer.errors import DataError
from jaxformer.training import read_metrics
from jaxformer.training.records import METERS
from jaxformer.training.sweep import read_sweep

_SEED = "seed"
_LOWER_IS_BETTER = ("loss", "bits", "perplexity")
_SPEEDS = ("_per_second", "learning_rate", "grad_norm", "skipped_steps")


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

    def best(self, metric: int) -> int | None:
        """Row with the best mean of a metric, among those with the most seeds."""
        most = max((len(found[metric]) for _, found in self.rows), default=0)
        means = {
            row: statistics.fmean(found[metric])
            for row, (_, found) in enumerate(self.rows)
            if len(found[metric]) == most > 0
        }
        if not means:
            return None
        lower = any(part in self.metrics[metric] for part in _LOWER_IS_BETTER)
        return min(means, key=lambda row: means[row] if lower else -means[row])

    @property
    def cells(self) -> list[list[str]]:
        """Header and rows as text; a standard deviation needs two seeds."""
        body = [
            [*(_text(value) for value in values), *map(_mean_and_deviation, found)]
            for values, found in self.rows
        ]
        return [[*self.keys, *self.metrics], *body]

    def curves(self, metric: int) -> dict[str, list[tuple[Any, float, float]]]:
        """Points (value of the first key, mean, deviation) for each combination of the others."""
        curves: dict[str, list[tuple[Any, float, float]]] = {}
        for values, found in self.rows:
            results = found[metric]
            if results and all(map(math.isfinite, results)):
                x, *others = values or ("",)
                pairs = zip(self.keys[1:], others, strict=True)
                name = ", ".join(f"{key} {_text(value)}" for key, value in pairs)
                deviation = statistics.stdev(results) if len(results) > 1 else 0.0
                point = x, statistics.fmean(results), deviation
                curves.setdefault(name, []).append(point)
        return curves

    def as_text(self) -> str:
        """The table for a terminal; the best of each column has a star."""
        marked = [row[:] for row in self.cells]
        for metric in range(len(self.metrics)):
            best = self.best(metric)
            if best is not None:
                marked[best + 1][len(self.keys) + metric] += " *"
        widths = [max(map(len, column)) for column in zip(*marked, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in marked
        ]
        return "\n".join([*lines, *(f"{name}: {why}" for name, why in self.failures.items())])

    def as_csv(self) -> str:
        """The table as CSV, with mean, standard deviation and number of seeds of each metric."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        parts = [f"{name} {part}" for name in self.metrics for part in ("mean", "sd", "seeds")]
        writer.writerow([*self.keys, *parts])
        for values, found in self.rows:
            numbers: list[Any] = []
            for results in found:
                numbers += [
                    statistics.fmean(results) if results else "",
                    statistics.stdev(results) if len(results) > 1 else "",
                    len(results),
                ]
            writer.writerow([*values, *numbers])
        return out.getvalue()

    def as_html(self) -> str:
        """The table as an HTML element; the best of each column is bold."""
        best = [self.best(metric) for metric in range(len(self.metrics))]
        header, *body = self.cells
        names = "".join(f"<th>{html.escape(name)}</th>" for name in header)
        lines = ["<table>", f"<tr>{names}</tr>"]
        for row, cells in enumerate(body):
            shown = [html.escape(cell) for cell in cells]
            for metric, chosen in enumerate(best):
                if chosen == row:
                    index = len(self.keys) + metric
                    shown[index] = f"<b>{shown[index]}</b>"
            lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in shown) + "</tr>")
        failed = [
            f"<p>{html.escape(name)}: {html.escape(why)}</p>" for name, why in self.failures.items()
        ]
        return "\n".join([*lines, "</table>", *failed, ""])


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _mean_and_deviation(results: Sequence[float]) -> str:
    if not results:
        return "-"
    mean = f"{statistics.fmean(results):.4f}"
    if len(results) == 1 or not all(map(math.isfinite, results)):
        return mean
    return f"{mean} ± {statistics.stdev(results):.4f}"


def sweep_table(folder: pathlib.Path) -> SweepTable:
    """Reads the results of a sweep: the last value of each metric of its runs.

    Args:
        folder: folder of the sweep.

    Raises:
        CheckpointError: it is not the folder of a sweep.
        DataError: no run has metrics yet.
    """
    runs, failures = read_sweep(folder)
    results = {name: _last_metrics(folder / name) for name in runs if name not in failures}
    names = dict.fromkeys(name for found in results.values() for name in found)
    if not names:
        raise DataError(f"{folder} has no metrics yet; train the sweep first")
    metrics = [name for name in names if not name.endswith(_SPEEDS) and name not in METERS]
    keys = [key for key in next(iter(runs.values())) if key != _SEED]
    rows: dict[tuple[Any, ...], list[dict[str, float]]] = {}
    for name, values in runs.items():
        group = rows.setdefault(tuple(values[key] for key in keys), [])
        group.append(results.get(name, {}))
    return SweepTable(
        keys=tuple(keys),
        metrics=tuple(metrics),
        rows=tuple(
            (values, tuple(tuple(one[name] for one in found if name in one) for name in metrics))
            for values, found in rows.items()
        ),
        failures=failures,
    )


def _last_metrics(folder: pathlib.Path) -> dict[str, float]:
    """Last value of each metric of a run, validation metrics first."""
    last: dict[str, float] = {}
    for record in read_metrics(folder):
        last |= {name: value for name, value in record.items() if name != "step"}
    return dict(sorted(last.items(), key=lambda item: "validation" not in item[0]))
