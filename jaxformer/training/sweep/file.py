"""The file of a sweep: its runs, and those that have left it."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from jaxformer.errors import CheckpointError
from jaxformer.storage import make_folder, read_whole, write_whole
from jaxformer.training.sweep.runs import SweepSpec

__all__ = ["read_sweep", "start_folder", "write_sweep"]

_FILE = "sweep.json"


def start_folder(specs: Sequence[SweepSpec], folder: pathlib.Path | None) -> dict[str, str]:
    """Makes the folder of a sweep, or compares it; returns the runs that have failed, and why."""
    if folder is None:
        return {}
    failures: dict[str, str] = {}
    if (folder / _FILE).exists():
        runs, failures = read_sweep(folder)
        keys, now = set(next(iter(runs.values()))), set(specs[0].values)
        if keys != now:
            raise CheckpointError(
                f"{folder} is a sweep of {', '.join(sorted(keys))}, got {', '.join(sorted(now))}; "
                "choose another folder"
            )
    make_folder(folder)
    write_sweep(specs, failures, folder)
    return failures


def write_sweep(
    specs: Sequence[SweepSpec], failures: Mapping[str, str], folder: pathlib.Path | None
) -> None:
    """Writes the file of a sweep; runs of earlier calls stay in it."""
    if folder is None:
        return
    runs = read_sweep(folder)[0] if (folder / _FILE).exists() else {}
    runs = {**runs, **{spec.name: dict(spec.values) for spec in specs}}
    text = json.dumps({"runs": runs, "failures": dict(failures)}, indent=1, default=_plain)
    write_whole(folder / _FILE, text + "\n")


def read_sweep(folder: pathlib.Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Reads which runs a sweep has.

    Args:
        folder: folder of the sweep.

    Returns:
        Values of each run, by its name; and why runs have left the sweep, by their names.

    Raises:
        CheckpointError: the folder has no readable sweep.json.
    """
    try:
        found = json.loads(read_whole(folder / _FILE))
        return dict(found["runs"]), dict(found["failures"])
    except (CheckpointError, FileNotFoundError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder} is not the folder of a sweep: {_FILE} cannot be read ({error}); "
            "jaxformer sweep makes one"
        ) from None


def _plain(value: Any) -> Any:
    """A value of another library, such as a NumPy number, as JSON can hold it."""
    return value.item() if getattr(value, "shape", None) == () else str(value)
