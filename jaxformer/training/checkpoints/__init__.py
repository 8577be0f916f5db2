"""Checkpoints of a run: saved with Orbax, each with a manifest that is compared before loading."""

from jaxformer.training.checkpoints.folder import Checkpoints
from jaxformer.training.checkpoints.manifest import (
    checkpoint_damage,
    checkpoint_fingerprint,
    checkpoint_steps,
    read_checkpoint_manifest,
)

__all__ = [
    "Checkpoints", "checkpoint_damage", "checkpoint_fingerprint", "checkpoint_steps",
    "read_checkpoint_manifest",
]  # fmt: skip
