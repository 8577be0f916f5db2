"""Manifests of checkpoints: written with each checkpoint, and compared before it is loaded."""

import dataclasses
import pathlib
import re
from typing import Any

from jaxformer.errors import CheckpointError
from jaxformer.storage import Manifest, files_below, read_manifest, sha256, write_manifest

MANIFEST = "manifest.json"
"""Name of the manifest in the folder of a checkpoint."""

# Orbax writes these two after the manifest; the second one when the checkpoint is complete.
_COMMITTED = "commit_success.txt"
_NOT_COVERED = (MANIFEST, "_CHECKPOINT_METADATA", _COMMITTED)
_STEP = re.compile(r"0|[1-9][0-9]*")


def checkpoint_steps(folder: pathlib.Path) -> list[int]:
    """Steps of the complete checkpoints in a folder in order, including damaged ones."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    steps = sorted(int(name) for name in names if _STEP.fullmatch(name))
    return [step for step in steps if (folder / str(step) / _COMMITTED).exists()]


def write_checkpoint_manifest(folder: pathlib.Path, **about: Any) -> None:
    """Writes the manifest of a checkpoint that is not complete yet."""
    write_manifest(folder / MANIFEST, Manifest.of(folder, about, ignore=_NOT_COVERED))


def read_checkpoint_manifest(folder: pathlib.Path) -> Manifest:
    """The manifest of a checkpoint, with its "step" and "validation_loss"."""
    manifest = read_manifest(folder / MANIFEST)
    if str(manifest.about["step"]) != folder.name:
        raise CheckpointError(f"its manifest belongs to step {manifest.about['step']}")
    return manifest


def checkpoint_fingerprint(folder: pathlib.Path) -> str:
    """SHA-256 of the names and digests of all files; the validation loss may be measured later."""
    return sha256(repr(sorted(read_checkpoint_manifest(folder).files.items())))


def add_checkpoint_loss(folder: pathlib.Path, validation_loss: float) -> None:
    """Adds the validation loss (nats per label) to the manifest of a checkpoint."""
    manifest = read_checkpoint_manifest(folder)
    about = {**manifest.about, "validation_loss": validation_loss}
    write_manifest(folder / MANIFEST, dataclasses.replace(manifest, about=about))


def checkpoint_damage(folder: pathlib.Path) -> str | None:
    """The first difference between a checkpoint and its manifest, for a message; None if none."""
    try:
        return read_checkpoint_manifest(folder).damage(folder, ignore=_NOT_COVERED)
    except CheckpointError as error:
        return str(error)


def is_whole(folder: pathlib.Path) -> bool:
    """Whether a checkpoint has all files that its manifest names, so none was removed."""
    try:
        return read_checkpoint_manifest(folder).files.keys() <= set(files_below(folder))
    except CheckpointError:
        return False
