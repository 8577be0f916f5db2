"""Index of the checkpoints in a folder: the newest and the best that are not damaged."""

import pathlib
import warnings
from collections.abc import Iterable

from jaxformer.errors import CheckpointError, CheckpointWarning
from jaxformer.training.checkpoints.manifest import (
    checkpoint_damage,
    checkpoint_steps,
    read_checkpoint_manifest,
)


class CheckpointIndex:
    """Steps and validation losses of the checkpoints in a folder, each verified when asked for."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._losses: dict[int, float | None] = {}  # by step, except known damaged ones
        self._good: set[int] = set()  # steps that are verified
        self._damaged: dict[int, str] = {}  # description by step
        self._warned: set[int] = set()  # damaged steps
        for step in checkpoint_steps(folder):
            try:
                manifest = read_checkpoint_manifest(self.path(step))
                self._losses[step] = manifest.about["validation_loss"]
            except CheckpointError as error:
                self._set_damaged(step, str(error))

    def path(self, step: int) -> pathlib.Path:
        """Folder of the checkpoint of a step."""
        return self._folder / str(step)

    def _set_damaged(self, step: int, damage: str) -> None:
        """Counts a checkpoint as damaged."""
        self._losses.pop(step, None)
        self._damaged[step] = damage

    def _first_good(self, steps: Iterable[int]) -> int | None:
        return next((step for step in steps if self._is_good(step)), None)

    def _is_good(self, step: int) -> bool:
        """Verifies a checkpoint, once."""
        if step not in self._good and step in self._losses:
            if (damage := checkpoint_damage(self.path(step))) is None:
                self._good.add(step)
            else:
                self._set_damaged(step, damage)
        return step in self._losses

    @property
    def latest_step(self) -> int | None:
        """Step of the newest undamaged checkpoint, if any."""
        return self._first_good(sorted(self._losses, reverse=True))

    @property
    def best_step(self) -> int | None:
        """Step of the checkpoint with the lowest validation loss; the newest if none has one."""
        best = self._first_good(self.by_loss())
        return self.latest_step if best is None else best

    def validation_loss(self, step: int) -> float | None:
        """Validation loss of a checkpoint, in nats per label; None if not measured."""
        return self._losses.get(step)

    def require_step(self, step: int | None = None) -> int:
        """Step of a verified checkpoint, by default the best; or CheckpointError."""
        if step is None:
            if (best := self._used(self.best_step)) is None:
                raise CheckpointError(f"{self._folder} has no checkpoint; train the run first")
            return best
        if self._is_good(step):
            return step
        steps = sorted(self._losses)
        if step in self._damaged:
            raise CheckpointError(
                f"{self.path(step)} is damaged ({self._damaged[step]}); choose one of the steps "
                f"{steps}"
            )
        raise CheckpointError(f"{self._folder} has no checkpoint of step {step}, only {steps}")

    def _used(self, chosen: int | None) -> int | None:
        """The chosen step; warns of damaged checkpoints, an error if all are."""
        for step, damage in sorted(self._damaged.items()):
            if chosen is None:
                raise CheckpointError(
                    f"every checkpoint in {self._folder} is damaged (step {step}: {damage}); "
                    "restore one from a backup, or train in another folder"
                )
            if step not in self._warned:
                self._warned.add(step)
                message = f"{self.path(step)} is damaged ({damage}); using step {chosen} instead"
                warnings.warn(message, CheckpointWarning, stacklevel=3)
        return chosen

    def by_loss(self) -> list[int]:
        """Steps of the checkpoints that have a validation loss, the best first."""
        losses = [(loss, step) for step, loss in self._losses.items() if loss is not None]
        return [step for _, step in sorted(losses)]
