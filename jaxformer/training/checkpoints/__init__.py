"""Checkpoints of a run: saved with Orbax, each with a manifest that is compared before loading."""

from jaxformer.training.checkpoints.folder import Checkpoints, NoCheckpoints, step_to_resume
from jaxformer.training.checkpoints.index import CheckpointIndex
from jaxformer.training.checkpoints.manifest import (
    checkpoint_damage,
    checkpoint_fingerprint,
    checkpoint_loss,
    checkpoint_steps,
)

__all__ = [
    "CheckpointIndex", "Checkpoints", "NoCheckpoints", "checkpoint_damage",
    "checkpoint_fingerprint", "checkpoint_loss", "checkpoint_steps", "step_to_resume",
]  # fmt: skip
