"""Verifying a run folder and all of its checkpoints."""

import pathlib
from typing import NamedTuple

from jaxformer.errors import CheckpointError
from jaxformer.runs.folder.files import CHECKPOINTS, folder_damage, is_run
from jaxformer.storage import as_path, lexists
from jaxformer.training.checkpoints import checkpoint_damage, checkpoint_steps


class Verified(NamedTuple):
    """Result of `verify_run` for one part of a run.

    Args:
        name: "run folder", or the path of a checkpoint in it.
        damage: the damage; None if every file is as it was written.
    """

    name: str
    damage: str | None


def verify_run(path: str | pathlib.Path) -> list[Verified]:
    """Compares every file of a run folder and of its checkpoints with their manifests.

    Files that grow during training, such as the metrics, are not in a manifest and not compared.

    Args:
        path: path of the run folder.

    Returns:
        The result for the run folder, then for each checkpoint, by step.

    Raises:
        CheckpointError: the path is not a run folder.
    """
    folder = as_path(path)
    if not is_run(folder) and not lexists(folder / CHECKPOINTS):
        raise CheckpointError(f"{folder} is not a run folder: it has no config.toml")
    parts = [Verified("run folder", folder_damage(folder))]
    checkpoints = folder / CHECKPOINTS
    for step in checkpoint_steps(checkpoints):
        damage = checkpoint_damage(checkpoints / str(step))
        parts.append(Verified(f"{CHECKPOINTS}/{step}", damage))
    return parts
