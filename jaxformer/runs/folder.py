"""The files of a run folder besides its checkpoints: written whole, checked when read."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

from jaxformer.config import ExperimentConfig, config_differences, config_to_toml, load_config
from jaxformer.errors import CheckpointError
from jaxformer.runs.draft import DRAFT, discard_draft, drafted, moved_names
from jaxformer.training.checkpoints import require_usable_path
from jaxformer.training.lock import LOCK

__all__ = [
    "CHECKPOINTS",
    "VALIDATION",
    "DataSummary",
    "check_same_run",
    "is_run",
    "load_summary",
    "read_json",
    "read_run_config",
    "require_free",
    "start_folder",
    "tidy",
    "update_config",
    "write_json",
]

T = TypeVar("T")

CHECKPOINTS = "checkpoints"
_CONFIG = "config.toml"
VALIDATION = "validation.json"
_DATA = "data.json"

# What may change when a run goes on: how far, how often, where; never what is computed.
_MAY_CHANGE = ("training.steps", "training.log_every", "training.eval_every",
               "training.checkpoint_every", "training.keep_checkpoints",
               "training.skip_bad_steps", "training.runner", "training.devices",
               "training.cpu_devices", "samples.", "out")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class DataSummary:
    """What a run was trained on.

    Args:
        fingerprint: SHA-256 of the texts, so that a run is not continued on others.
        documents: how many the training text has; pairs or labelled texts, where it is of these.
        train_tokens: how many the training text has; of pairs, the targets.
        validation_tokens: how many the validation text has, likewise.
        shapes: (rows, length) of the batches of sequences of unequal length, else empty. They
            depend on the number of devices, and the order of the batches on them.
    """

    fingerprint: str = ""
    documents: int = 0
    train_tokens: int = 0
    validation_tokens: int = 0
    shapes: tuple[tuple[int, int], ...] = ()


def is_run(folder: pathlib.Path) -> bool:
    """Tells whether a folder is a run folder: whether it has a config."""
    return (folder / _CONFIG).is_file()


def require_free(folder: pathlib.Path) -> None:
    """Checks that a run can be made at a path: nothing is there, or a folder without a file.

    The files of a start that was cut off do not count.

    Raises:
        CheckpointError: something is there, the folder above cannot be made, or the path has
            characters that checkpoints cannot have.
    """
    require_usable_path(folder)
    try:
        if folder.is_symlink() or folder.exists():
            ours = {LOCK, DRAFT, *moved_names(folder)}  # of a start that was cut off
            others = sorted({path.name for path in folder.iterdir()} - ours)
            if others:
                raise CheckpointError(
                    f"out={folder} is not a run folder, and is not empty: it has {others[0]}; "
                    "choose another out"
                )
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"out={folder} cannot be a run folder: {error.strerror}; choose another out"
        ) from None


def start_folder(
    folder: pathlib.Path,
    config: ExperimentConfig,
    summary: DataSummary,
    write: Callable[[pathlib.Path], None],
) -> None:
    """Makes a run folder, whole or not at all: it is one from the moment it has a config.

    Args:
        folder: where; free, as `require_free` checks, and locked.
        config: of the run.
        summary: of the training text.
        write: writes what else there is into the folder: tokenizers and validation data.
    """
    with drafted(folder, last=_CONFIG) as draft:
        write(draft)
        write_json(draft / _DATA, dataclasses.asdict(summary))
        (draft / _CONFIG).write_text(config_to_toml(config), encoding="utf-8")


def tidy(folder: pathlib.Path) -> None:
    """Removes from a run folder, or one that should become a run, what a killed start has left.

    Args:
        folder: the folder, locked.
    """
    discard_draft(folder, last=_CONFIG)


def update_config(folder: pathlib.Path, config: ExperimentConfig) -> None:
    """Replaces the config of a run that goes on, whole or not at all."""
    draft = folder / f".{_CONFIG}.tmp"
    draft.write_text(config_to_toml(config), encoding="utf-8")
    os.replace(draft, folder / _CONFIG)


def read_run_config(folder: pathlib.Path) -> ExperimentConfig:
    """Reads the config of a run folder.

    Raises:
        CheckpointError: the path is no run folder.
    """
    if not is_run(folder):
        reason = "it has no config.toml" if folder.is_dir() else "there is no such folder"
        raise CheckpointError(
            f"{folder} is not a run folder: {reason}; jaxformer train CONFIG makes one"
        )
    return load_config(folder / _CONFIG)


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes JSON that people can read, too."""
    path.write_text(json.dumps(value, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def read_json(path: pathlib.Path, make: Callable[[Any], T]) -> T:
    """Reads JSON of a run folder.

    Args:
        path: of the file.
        make: from what the file holds to what is returned; any error that it raises for a value of
            the wrong type means that the file is damaged.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    try:
        return make(json.loads(path.read_text(encoding="utf-8")))
    except (KeyError, OSError, TypeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointError(
            f"{path} is missing or damaged ({reason}); restore the run folder, or train it anew"
        ) from None


def load_summary(folder: pathlib.Path) -> DataSummary:
    """Reads what a run was trained on.

    Raises:
        CheckpointError: the file is missing or damaged.
    """

    def summary(values: Any) -> DataSummary:
        return DataSummary(**{**values, "shapes": tuple(map(tuple, values["shapes"]))})

    return read_json(folder / _DATA, summary)


def check_same_run(folder: pathlib.Path, config: ExperimentConfig, summary: DataSummary) -> None:
    """Refuses to go on with a run of another config or text.

    Args:
        folder: of the run.
        config: as asked for, its model.vocab_size filled in.
        summary: of the data that the config gives now.

    Raises:
        CheckpointError: with what differs.
    """
    elsewhere = (
        "train in another folder, --out NEW: from nothing, or from its weights by --init-from "
        f"{folder}"
    )
    forbidden = [
        f"{key}: {before!r} there, {after!r} now"
        for key, (before, after) in config_differences(read_run_config(folder), config).items()
        if not key.startswith(_MAY_CHANGE)
    ]
    if forbidden:
        raise CheckpointError(
            f"{folder} belongs to another config ({'; '.join(forbidden)}); undo the change to "
            f"resume it, or {elsewhere}"
        )
    before = load_summary(folder)
    if before.fingerprint != summary.fingerprint:
        raise CheckpointError(
            f"{folder} was trained on another text than data now gives; restore the text to resume "
            f"it, or {elsewhere}"
        )
    if before.shapes != summary.shapes:
        raise CheckpointError(
            f"{folder} has batches of (rows, length) {before.shapes}, got {summary.shapes} with "
            "this number of devices; go on with as many as before, or choose another out"
        )
