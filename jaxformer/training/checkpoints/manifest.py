"""Manifests of checkpoints: written with each checkpoint, and compared before it is loaded."""

import dataclasses
import hashlib
import json
import pathlib
import re
from typing import Any

from jaxformer import __version__
from jaxformer.errors import CheckpointError, StorageError
from jaxformer.storage import (
    Manifest,
    file_sizes,
    lexists,
    read_manifest,
    read_whole,
    write_manifest,
)
from jaxformer.training.checkpoints.places import MANIFEST, place_of

LAYOUT = 1
"""Version of the checkpoint layout; other versions cannot be read."""

_HEADER = re.compile(r"[^/]+/(_[^/]*|array_metadatas/[^/]+)")  # files without array data
_MAX_HEADER = 64 * 2**20  # bytes of a file without array data

# Orbax writes the commit time into these after the manifest is written.
_ORBAX = "_CHECKPOINT_METADATA"
_CHANGED_LATER = (_ORBAX, "commit_success.txt")
_TIMES = ("init_timestamp_nsecs", "commit_timestamp_nsecs")
_ITEMS = ("params", "opt_state", "meta")
_HANDLER = re.compile(r"orbax\.checkpoint\.[\w.]*PyTreeHandler")


Unlogged = tuple[float, list[dict[str, float]]]
"""Seconds of training, and metrics of the steps, since the last record of metrics."""


def checkpoint_steps(folder: pathlib.Path) -> list[int]:
    """Steps of the checkpoints in a folder in order, including damaged ones."""
    return place_of(folder).steps()


def write_checkpoint_manifest(
    folder: pathlib.Path, step: int, validation_loss: float | None, unlogged: Unlogged
) -> None:
    """Writes the manifest of a checkpoint before it gets its final name; syncs all its files."""
    about = {
        "layout": LAYOUT, "jaxformer": __version__, "step": step,
        "validation_loss": validation_loss, "unlogged": unlogged,
    }  # fmt: skip
    manifest = Manifest.of(folder, about, ignore=_CHANGED_LATER, sync=True)
    write_manifest(folder / MANIFEST, manifest)


def checkpoint_fingerprint(folder: pathlib.Path) -> str:
    """SHA-256 of the names and digests of all files; the validation loss may be measured later."""
    files = sorted(_read(folder).files.items())
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def add_checkpoint_loss(folder: pathlib.Path, validation_loss: float) -> None:
    """Adds the validation loss (nats per label) to the manifest of a checkpoint."""
    manifest = _read(folder)
    about = {**manifest.about, "validation_loss": validation_loss}
    write_manifest(folder / MANIFEST, dataclasses.replace(manifest, about=about))


def checkpoint_loss(folder: pathlib.Path) -> float | None:
    """Validation loss in the manifest of a checkpoint; None if not measured."""
    loss = _read(folder).about["validation_loss"]
    return None if loss is None else float(loss)


def checkpoint_unlogged(folder: pathlib.Path) -> Unlogged:
    """Unrecorded metrics of the steps before a checkpoint."""
    seconds, steps = _read(folder).about["unlogged"]
    return seconds, steps


def checkpoint_damage(folder: pathlib.Path) -> str | None:
    """The first difference between a checkpoint and its manifest, for a message; None if none."""
    try:
        manifest = _read(folder)
        found = manifest.damage(folder, ignore=(MANIFEST, *_CHANGED_LATER))
        _check_orbax(folder)
        return found or _too_large(folder)
    except CheckpointError as error:
        return str(error)


def _read(folder: pathlib.Path) -> Manifest:
    """Reads and checks the manifest of a checkpoint."""
    if folder.is_symlink():
        raise CheckpointError("it must be a folder, got a link")
    try:
        manifest = read_manifest(folder / MANIFEST)
    except CheckpointError:
        if not folder.is_dir():
            raise CheckpointError("it must be a folder, got a file") from None
        if lexists(folder / MANIFEST):
            raise
        raise CheckpointError(
            f"it has no {MANIFEST}, like checkpoints of early versions, which jaxformer "
            f"{__version__} cannot read"
        ) from None
    about = manifest.about
    if about.get("layout") != LAYOUT:
        raise CheckpointError(
            f"jaxformer {about.get('jaxformer')} wrote it in layout {about.get('layout')}, but "
            f"jaxformer {__version__} reads layout {LAYOUT}"
        )
    if str(about.get("step")) != folder.name:
        raise CheckpointError(f"its manifest belongs to step {about.get('step')}")
    if not isinstance(about.get("validation_loss", ""), float | None):
        raise CheckpointError("its manifest has no validation_loss")
    return manifest


def _check_orbax(folder: pathlib.Path) -> None:
    """Checks Orbax's own metadata, which has no digest: Orbax may write it after the manifest."""
    try:
        values: Any = json.loads(read_whole(folder / _ORBAX, limit=_MAX_HEADER))
        times = [values.pop(name) for name in _TIMES]
        handlers = values.pop("item_handlers")
        items = {*_ITEMS, *(["average"] if (folder / "average").is_dir() else [])}
        is_whole = (
            all(type(time) is int and 0 <= time < 2**62 for time in times)
            and handlers.keys() == items
            and len(set(handlers.values())) == 1  # or else a changed one would go unnoticed
            and all(_HANDLER.fullmatch(handler) for handler in handlers.values())
            and not any(values.values())
        )
    except StorageError:  # the bucket does not answer
        raise
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(f"{_ORBAX} is damaged: {error}") from None
    if not is_whole:
        raise CheckpointError(f"{_ORBAX} is damaged: it does not describe a checkpoint of a run")


def _too_large(folder: pathlib.Path) -> str | None:
    """Reports a metadata file that is implausibly large and would fill the memory."""
    for path, size in file_sizes(folder).items():
        if _HEADER.fullmatch(path) and size > _MAX_HEADER:
            return f"{path.rpartition('/')[2]} has more than {_MAX_HEADER:,} bytes"
    return None
