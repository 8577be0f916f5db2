"""The files of a run folder except its checkpoints: atomic writes, checked reads."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

from jaxformer import __version__
from jaxformer.config import ExperimentConfig, config_differences, config_to_toml, load_config
from jaxformer.errors import CheckpointError
from jaxformer.storage import (
    DRAFT,
    HOLDER,
    LOCK,
    Manifest,
    as_path,
    drafted,
    in_bucket,
    lexists,
    read_json,
    read_manifest,
    remove,
    sha256,
    write_json,
    write_manifest,
    write_whole,
)
from jaxformer.training.checkpoints import checkpoint_damage, checkpoint_steps

CHECKPOINTS = "checkpoints"
_CONFIG = "config.toml"
VALIDATION = "validation.json"
_DATA = "data.json"

_MANIFEST = "manifest.json"
# Files that grow or are rewritten during a run, so the manifest does not cover them.
_GROWING = (
    "checkpoints", "metrics.jsonl", "tensorboard", "metrics.csv", "trackers.json", "wandb",
    "profile", "samples.txt", "loss.png", LOCK, HOLDER,
)  # fmt: skip

# Settings that may change when a run is resumed: how long, how often, where; never what is
# computed.
_MAY_CHANGE = ("training.steps", "training.log_every", "training.eval_every",
               "training.checkpoint_every", "training.keep_checkpoints",
               "training.log_to", "training.runner", "training.devices",
               "training.cpu_devices", "mesh.", "samples.", "out", "data.cache")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class DataSummary:
    """Summary of the data of a run; a run is not resumed with another one."""

    fingerprint: str = ""  # SHA-256 of the texts
    documents: int = 0  # for training; or rows, such as pairs
    train_tokens: int = 0  # for pairs, of the targets
    validation_tokens: int = 0
    # (rows, length) of the batches, if sequences differ in length; it depends on the devices.
    shapes: tuple[tuple[int, int], ...] = ()


def load_summary(folder: pathlib.Path) -> DataSummary:
    """Reads the summary of a run; CheckpointError if it is missing or damaged."""

    def summary(values: Any) -> DataSummary:
        return DataSummary(**{**values, "shapes": tuple(map(tuple, values["shapes"]))})

    return read_json(folder / _DATA, summary)


def is_run(folder: pathlib.Path) -> bool:
    """Whether a folder is a run folder, damaged or not: whether it has a config."""
    return lexists(folder / _CONFIG)


def require_free(folder: pathlib.Path, name: str = "out") -> None:
    """Raises CheckpointError unless a path is absent, empty, or an interrupted start."""
    try:
        if lexists(folder):
            started = {LOCK, HOLDER, DRAFT, *_started_names(folder)}
            foreign = sorted({path.name for path in folder.iterdir()} - started)
            if foreign:
                raise CheckpointError(
                    f"{name}={folder} is not a run folder, and is not empty: it has {foreign[0]}; "
                    f"choose another {name}"
                )
        if not in_bucket(folder):
            folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{name}={folder} cannot be a run folder: {error.strerror}; choose another {name}"
        ) from error


def start_folder(
    folder: pathlib.Path,
    config: ExperimentConfig,
    summary: DataSummary,
    write: Callable[[pathlib.Path], None],
) -> None:
    """Makes a run folder, free and locked, whole or not at all; `write` adds its data."""
    tidy(folder)
    with drafted(folder, first=_MANIFEST, last=_CONFIG) as draft:
        write(draft)
        write_json(draft / _DATA, dataclasses.asdict(summary))
        write_whole(draft / _CONFIG, config_to_toml(config))
        write_folder_manifest(draft)


def tidy(folder: pathlib.Path) -> None:
    """Removes what a killed start has left in a folder; the manifest, which names it, last."""
    for name in sorted(_started_names(folder), key=lambda name: name == _MANIFEST):
        remove(folder / name)


def _started_names(folder: pathlib.Path) -> set[str]:
    """Names in a folder that a killed start has left, whose manifest names them."""
    if is_run(folder) or not lexists(folder / _MANIFEST):
        return set()
    try:
        files = read_manifest(folder / _MANIFEST).files
    except CheckpointError:  # a file of the user
        return set()
    return {_MANIFEST, *(path.partition("/")[0] for path in files)} - {"", ".", ".."}


def remove_run(folder: pathlib.Path) -> None:
    """Removes a locked run, but neither its lock nor other files in its folder."""
    manifest = read_manifest(folder / _MANIFEST)
    names = {*_GROWING, *(path.partition("/")[0] for path in manifest.files), _MANIFEST}
    for name in (*names - {_CONFIG, LOCK, HOLDER}, _CONFIG):  # the last one makes it a run folder
        remove(folder / name)


def update_config(folder: pathlib.Path, config: ExperimentConfig) -> None:
    """Replaces the config of a resumed run atomically."""
    text, manifest = config_to_toml(config), read_manifest(folder / _MANIFEST)
    new = sha256(text)
    before = [digest for digest in manifest.files[_CONFIG] if digest != new]
    if before:
        # Until the new config has replaced the old one, both are valid.
        _accept_config(folder, manifest, *before, new)
        write_whole(folder / _CONFIG, text)
        _accept_config(folder, manifest, new)


def _accept_config(folder: pathlib.Path, manifest: Manifest, *digests: str) -> None:
    """Writes the manifest of a run folder, with these as valid SHA-256 of its config."""
    files = {**manifest.files, _CONFIG: digests}
    write_manifest(folder / _MANIFEST, dataclasses.replace(manifest, files=files))


def read_run_config(folder: pathlib.Path) -> ExperimentConfig:
    """Reads the config of a run folder, after verifying all files that its manifest names.

    Raises:
        CheckpointError: the path is not a run folder, or it is damaged or of another version.
    """
    if not is_run(folder):
        reason = "it has no config.toml" if folder.is_dir() else "there is no such folder"
        raise CheckpointError(f"{folder} is not a run folder: {reason}; jaxformer train makes one")
    if (damage := folder_damage(folder)) is not None:
        raise CheckpointError(f"{folder} is damaged: {damage}")
    return load_config(folder / _CONFIG)


def folder_damage(folder: pathlib.Path) -> str | None:
    """First damage of the files that do not grow, with its remedy; None if they are as written."""
    try:
        manifest = read_manifest(folder / _MANIFEST)
        damage = manifest.damage(folder, may_have_more=True)
    except CheckpointError as error:
        return str(error)
    if damage is None:
        return None
    return (
        f"{damage}; restore that file, or train the run anew; to change settings of a run, use "
        "flags of jaxformer train, such as --training.steps 2000"
    )


def write_folder_manifest(folder: pathlib.Path) -> None:
    """Writes the manifest of a run folder that is otherwise complete."""
    about = {"jaxformer": __version__}
    manifest = Manifest.of(folder, about, ignore=(_MANIFEST, *_GROWING))
    write_manifest(folder / _MANIFEST, manifest)


def check_same_run(
    folder: pathlib.Path, old: ExperimentConfig, new: ExperimentConfig, summary: DataSummary,
    trained: int,
) -> None:  # fmt: skip
    """Raises CheckpointError if a config or data differ from those of a run at step `trained`."""
    elsewhere = (
        "train in another folder, --out NEW: from scratch, or from its weights with --init-from "
        f"{folder}"
    )
    starts = [old.schedule.decay_start, new.schedule.decay_start]
    is_ahead = all(start is not None and trained <= start for start in starts)
    may_change = (*_MAY_CHANGE, *(["schedule.decay_"] if is_ahead else []))
    forbidden = [
        f"{key}: {before!r} there, {after!r} now"
        for key, (before, after) in config_differences(old, new).items()
        if not key.startswith(may_change)
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
            "this number of devices; resume with the same number as before, or choose another out"
        )


def verify_run(path: str | pathlib.Path) -> dict[str, str | None]:
    """Compares every file of a run folder and of its checkpoints with their manifests.

    Files that grow during training, such as the metrics, are not in a manifest and not compared.

    Args:
        path: path of the run folder.

    Returns:
        The damage of "run folder", and of each checkpoint by its path in the folder, such as
        "checkpoints/100"; None if every file is as it was written.

    Raises:
        CheckpointError: the path is not a run folder.
    """
    folder = as_path(path)
    if not is_run(folder) and not lexists(folder / CHECKPOINTS):
        raise CheckpointError(f"{folder} is not a run folder: it has no config.toml")
    names = [f"{CHECKPOINTS}/{step}" for step in checkpoint_steps(folder / CHECKPOINTS)]
    checkpoints = {name: checkpoint_damage(folder / name) for name in names}
    return {"run folder": folder_damage(folder), **checkpoints}
