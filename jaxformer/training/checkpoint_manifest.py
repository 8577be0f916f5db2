"""Manifests of checkpoints: written with each, and compared with it before it is loaded."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
from typing import Any

from jaxformer import __version__
from jaxformer.errors import CheckpointError
from jaxformer.storage import (
    Manifest,
    read_manifest,
    read_whole,
    write_manifest,
)

__all__ = [
    "add_checkpoint_loss",
    "checkpoint_damage",
    "checkpoint_fingerprint",
    "checkpoint_loss",
    "checkpoint_steps",
    "checkpoint_unlogged",
    "write_checkpoint_manifest",
]

LAYOUT = 1
"""Number of the layout of checkpoints; another number is another layout."""

_MANIFEST = "manifest.json"
_STEP = re.compile(r"0|[1-9][0-9]*")
_MAX_HEADER = 64 * 2**20  # bytes of a file that is not data of arrays

# Orbax changes these when it commits a checkpoint, after the manifest is written: it fills in the
# time of the commit.
_ORBAX = "_CHECKPOINT_METADATA"
_CHANGED_LATER = (_ORBAX, "commit_success.txt")
_TIMES = ("init_timestamp_nsecs", "commit_timestamp_nsecs")
_ITEMS = ("params", "opt_state", "meta")
_HANDLER = re.compile(r"orbax\.checkpoint\.[\w.]*PyTreeHandler")


Unlogged = tuple[float, list[dict[str, float]]]
"""Seconds of training and metrics of the steps since the last record of metrics."""


def checkpoint_steps(folder: pathlib.Path) -> list[int]:
    """Steps of the checkpoints in a folder, whole or damaged, in order."""
    return sorted(int(name) for name in os.listdir(folder) if _STEP.fullmatch(name))


def write_checkpoint_manifest(
    folder: pathlib.Path, step: int, validation_loss: float | None, unlogged: Unlogged
) -> None:
    """Writes the manifest of a checkpoint that is otherwise complete, and puts all of it on disk.

    Args:
        folder: of the checkpoint, before it has its final name.
        step: number of optimizer steps taken.
        validation_loss: nats per token; None where it was not measured.
        unlogged: of the steps since the last record of metrics.

    Raises:
        StorageError: the manifest cannot be written.
        OSError: a file cannot be read or put on disk.
    """
    about = {
        "layout": LAYOUT,
        "jaxformer": __version__,
        "step": step,
        "validation_loss": validation_loss,
        "unlogged": unlogged,
    }
    manifest = Manifest.of(folder, about, ignore=_CHANGED_LATER, sync=True)
    write_manifest(folder / _MANIFEST, manifest)


def checkpoint_fingerprint(folder: pathlib.Path) -> str:
    """SHA-256 of the names and the SHA-256 of all files of a checkpoint.

    The validation loss does not count, since it may be measured later.

    Args:
        folder: the checkpoint, which has been verified.
    """
    files = sorted(_read(folder).files.items())
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def add_checkpoint_loss(folder: pathlib.Path, validation_loss: float) -> None:
    """Writes into the manifest of a checkpoint the validation loss, nats per token.

    Raises:
        CheckpointError: the manifest is missing, damaged, or that of another step.
        StorageError: the manifest cannot be written.
    """
    manifest = _read(folder)
    about = {**manifest.about, "validation_loss": validation_loss}
    write_manifest(folder / _MANIFEST, dataclasses.replace(manifest, about=about))


def checkpoint_loss(folder: pathlib.Path) -> float | None:
    """Validation loss of a checkpoint by its manifest; None where it was not measured.

    Raises:
        CheckpointError: the manifest is missing, damaged, or that of another step.
    """
    loss = _read(folder).about["validation_loss"]
    return None if loss is None else float(loss)


def checkpoint_unlogged(folder: pathlib.Path) -> Unlogged:
    """Metrics of the steps before a checkpoint that no record has; none in older checkpoints."""
    seconds, steps = _read(folder).about.get("unlogged", (0.0, []))
    return seconds, steps


def checkpoint_damage(folder: pathlib.Path) -> str | None:
    """Compares a checkpoint with its manifest; reads all of it.

    Args:
        folder: of the checkpoint.

    Returns:
        What is wrong with it, for an error message; None where it is as it was saved.
    """
    try:
        manifest = _read(folder)
        found = manifest.damage(folder, ignore=(_MANIFEST, *_CHANGED_LATER))
        _check_orbax(folder)
        return found or _too_large(folder)
    except CheckpointError as error:
        return str(error)


def _read(folder: pathlib.Path) -> Manifest:
    """The manifest of a checkpoint, whose fields are of the right types."""
    if folder.is_symlink() or not folder.is_dir():
        raise CheckpointError("it must be a folder, got a link or a file")
    if not os.path.lexists(folder / _MANIFEST):
        raise CheckpointError(
            f"it has no {_MANIFEST}, as in versions of jaxformer before manifests, whose "
            f"checkpoints jaxformer {__version__} does not read"
        )
    manifest = read_manifest(folder / _MANIFEST)
    about = manifest.about
    if about.get("layout") != LAYOUT:
        raise CheckpointError(
            f"it was written by jaxformer {about.get('jaxformer')} in layout "
            f"{about.get('layout')}, and jaxformer {__version__} reads layout {LAYOUT}"
        )
    if str(about.get("step")) != folder.name:
        raise CheckpointError(f"its manifest is that of step {about.get('step')}")
    if not isinstance(about.get("validation_loss", ""), float | None):
        raise CheckpointError("its manifest has no validation_loss")
    return manifest


def _check_orbax(folder: pathlib.Path) -> None:
    """Checks what Orbax says of a checkpoint: that each item is a pytree, and when it was saved.

    By what it must be, not by a digest: Orbax may still be writing it, in a thread of its own, when
    the manifest is made.
    """
    try:
        values: Any = json.loads(read_whole(folder / _ORBAX, limit=_MAX_HEADER))
        times = [values.pop(name) for name in _TIMES]
        handlers = values.pop("item_handlers")
        items = {*_ITEMS, *(["average"] if (folder / "average").is_dir() else [])}
        is_whole = (
            all(type(time) is int and 0 <= time < 2**62 for time in times)
            and handlers.keys() == items
            and len(set(handlers.values())) == 1  # so that one of them cannot change unnoticed
            and all(_HANDLER.fullmatch(handler) for handler in handlers.values())
            and not any(values.values())
        )
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(f"{_ORBAX} is damaged: {error}") from None
    if not is_whole:
        raise CheckpointError(f"{_ORBAX} is damaged: it is not that of a checkpoint of a run")


def _too_large(folder: pathlib.Path) -> str | None:
    """Names a file of JSON that is too large to be one of a checkpoint, and would fill memory."""
    for path in (*folder.glob("*/_*"), *folder.glob("*/array_metadatas/*")):
        if path.stat().st_size > _MAX_HEADER:
            return f"{path.name} has more than {_MAX_HEADER:,} bytes"
    return None
