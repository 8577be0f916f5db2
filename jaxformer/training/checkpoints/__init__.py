"""Checkpoints of a run: saved with Orbax, each with a manifest that is compared before loading."""

from jaxformer.training.checkpoints.arrays import require_readable
from jaxformer.training.checkpoints.folder import Checkpoints, NoCheckpoints
from jaxformer.training.checkpoints.manifest import (
    checkpoint_about,
    checkpoint_damage,
    checkpoint_fingerprint,
    checkpoint_steps,
)

__all__ = [
    "Checkpoints", "NoCheckpoints", "checkpoint_about", "checkpoint_damage",
    "checkpoint_fingerprint", "checkpoint_steps", "require_readable",
]  # fmt: skip
