"""Manifests of checkpoints: written with each checkpoint, and compared before it is loaded."""

import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from jaxformer.errors import CheckpointError
from jaxformer.storage import Manifest, files_below, read_manifest, write_manifest

MANIFEST = "manifest.json"
"""Name of the manifest in the folder of a checkpoint."""

# Orbax writes these two after the manifest; the second one when the checkpoint is complete.
_COMMITTED = "commit_success.txt"
_NOT_COVERED = (MANIFEST, "_CHECKPOINT_METADATA", _COMMITTED)
_STEP = re.compile(r"0|[1-9][0-9]*")

Unlogged = tuple[float, list[dict[str, float]]]
"""Seconds of training, and metrics of the steps, since the last record of metrics."""


def checkpoint_steps(folder: pathlib.Path) -> list[int]:
    """Steps of the complete checkpoints in a folder in order, including damaged ones."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    steps = sorted(int(name) for name in names if _STEP.fullmatch(name))
    return [step for step in steps if (folder / str(step) / _COMMITTED).exists()]


def write_checkpoint_manifest(
    folder: pathlib.Path, step: int, validation_loss: float | None, unlogged: Unlogged
) -> None:
    """Writes the manifest of a checkpoint that is not complete yet."""
    about = {"step": step, "validation_loss": validation_loss, "unlogged": unlogged}
    write_manifest(folder / MANIFEST, Manifest.of(folder, about, ignore=_NOT_COVERED))


def checkpoint_fingerprint(folder: pathlib.Path) -> str:
    """SHA-256 of the names and digests of all files; the validation loss may be measured later."""
    files = sorted(_read(folder).files.items())
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def add_checkpoint_loss(folder: pathlib.Path, validation_loss: float) -> None:
    """Adds the validation loss (nats per label) to the manifest of a checkpoint."""
    manifest = _read(folder)
    about = {**manifest.about, "validation_loss": validation_loss}
    write_manifest(folder / MANIFEST, dataclasses.replace(manifest, about=about))


def checkpoint_about(folder: pathlib.Path) -> Mapping[str, Any]:
    """Its "validation_loss" in nats per label, or None, and what is "unlogged" before it."""
    return _read(folder).about


def checkpoint_damage(folder: pathlib.Path) -> str | None:
    """The first difference between a checkpoint and its manifest, for a message; None if none."""
    try:
        return _read(folder).damage(folder, ignore=_NOT_COVERED)
    except CheckpointError as error:
        return str(error)


def is_whole(folder: pathlib.Path) -> bool:
    """Whether a checkpoint has all files that its manifest names, so none was removed."""
    try:
        return _read(folder).files.keys() <= set(files_below(folder))
    except CheckpointError:
        return False


def _read(folder: pathlib.Path) -> Manifest:
    """Reads and checks the manifest of a checkpoint."""
    manifest = read_manifest(folder / MANIFEST)
    if str(manifest.about["step"]) != folder.name:
        raise CheckpointError(f"its manifest belongs to step {manifest.about['step']}")
    return manifest
