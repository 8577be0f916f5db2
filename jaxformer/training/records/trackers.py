"""Metrics for tools that track experiments, each by its own library, imported when it is named."""

import contextlib
import csv
import importlib.util
import pathlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jaxformer.errors import ConfigError
from jaxformer.storage import in_bucket, read_json, write_json

_FILE = "trackers.json"  # the id of the run in each tool, by which a resumed run goes on
_MOST_PARAMS = 100  # that MLflow takes at a time

Log = Callable[[int, Mapping[str, float]], object]
"""Function of (step, metrics)."""


def require_trackers(names: Sequence[str], folder: pathlib.Path | None) -> None:
    """Raises ConfigError if the package of a tool is missing, or there is no folder on a disk."""
    for name in names:
        if name != "csv" and importlib.util.find_spec(name) is None:
            raise ConfigError(f"log_to {name!r} needs its package; pip install {name}")
    if names and (folder is None or in_bucket(folder)):
        raise ConfigError(f"log_to needs a run folder on a disk, got {folder}; remove it")


@contextlib.contextmanager
def trackers(
    names: Sequence[str],
    folder: pathlib.Path,
    settings: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
) -> Iterator[list[Log]]:
    """Opens the run of a folder in the named tools, and closes it at the end, as failed or not.

    A tool gets the name of the folder and the settings. `records` are the metrics that the run
    already has. TensorBoard gets events whenever its package is installed.
    """
    if in_bucket(folder):
        yield []
        return
    if importlib.util.find_spec("tensorboard") is not None:
        names = [*names, "tensorboard"]
    ids = read_json(folder / _FILE, dict) if (folder / _FILE).exists() else {}
    with contextlib.ExitStack() as stack:
        logs = []
        for name in dict.fromkeys(names):
            run = _OPEN[name](folder, ids.get(name), settings, records)
            log, run_id = stack.enter_context(run)
            logs.append(log)
            if run_id != ids.get(name):
                ids[name] = run_id
                write_json(folder / _FILE, ids)
        yield logs


@contextlib.contextmanager
def _wandb(
    folder: pathlib.Path, run_id: str | None, settings: Mapping[str, Any], records: Any
) -> Iterator[tuple[Log, str]]:
    import wandb

    run = wandb.init(
        id=run_id or secrets.token_hex(4), name=folder.name, config=settings, dir=str(folder),
        resume="allow", reinit="create_new",
    )  # fmt: skip
    failed = True
    try:
        yield (lambda step, metrics: run.log(dict(metrics), step=step)), run.id
        failed = False
    finally:
        run.finish(exit_code=int(failed))


@contextlib.contextmanager
def _mlflow(
    folder: pathlib.Path, run_id: str | None, settings: Mapping[str, Any], records: Any
) -> Iterator[tuple[Log, str]]:
    import mlflow

    run = mlflow.start_run(run_id, run_name=folder.name, nested=True)
    if run_id is None:  # a resumed run has its parameters, which MLflow lets nobody change
        params = list(_flat(settings).items())
        for start in range(0, len(params), _MOST_PARAMS):
            mlflow.log_params(dict(params[start : start + _MOST_PARAMS]))
    run_id = run.info.run_id
    # From here on by its id: runs of a sweep train at once, and each would be within the last.
    mlflow.end_run("RUNNING")

    def log(step: int, metrics: Mapping[str, float]) -> None:
        named = {re.sub(r"[^\w\-. :/]", "_", name): value for name, value in metrics.items()}
        mlflow.log_metrics(named, step=step, run_id=run_id)

    status = "FAILED"
    try:
        yield log, run_id
        status = "FINISHED"
    finally:
        mlflow.MlflowClient().set_terminated(run_id, status)


@contextlib.contextmanager
def _trackio(
    folder: pathlib.Path, run_id: str | None, settings: Mapping[str, Any], records: Any
) -> Iterator[tuple[Log, str]]:
    import trackio

    name = run_id or f"{folder.name}-{secrets.token_hex(4)}"
    run = trackio.init("jaxformer", name=name, config=settings, resume="allow")
    try:
        yield (lambda step, metrics: run.log(dict(metrics), step=step)), name
    finally:
        run.finish()


@contextlib.contextmanager
def _csv(
    folder: pathlib.Path, run_id: str | None, settings: Any, records: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Log, None]]:
    """Rows of step, name and value, in metrics.csv; those after the last checkpoint are cut."""
    with open(folder / "metrics.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("step", "metric", "value"))

        def log(step: int, metrics: Mapping[str, float]) -> None:
            writer.writerows((step, name, value) for name, value in metrics.items())
            file.flush()

        for record in records:
            log(record["step"], {name: record[name] for name in record if name != "step"})
        yield log, None


@contextlib.contextmanager
def _tensorboard(
    folder: pathlib.Path, run_id: str | None, settings: Mapping[str, Any], records: Any
) -> Iterator[tuple[Log, None]]:
    from tensorboard.summary import Writer

    events = Writer(str(folder / "tensorboard"))

    def log(step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            events.add_scalar(name, value, step)

    with contextlib.closing(events):
        yield log, None


_OPEN: dict[str, Callable[..., contextlib.AbstractContextManager[tuple[Log, str | None]]]] = {
    "wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio, "csv": _csv,
    "tensorboard": _tensorboard,
}  # fmt: skip


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
