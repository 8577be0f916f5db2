"""Index of the checkpoints in a folder: the newest, the best, and which of them are damaged."""

import os
import pathlib
import warnings
from collections.abc import Callable, Iterable

from jaxformer.errors import CheckpointError, CheckpointWarning, StorageError
from jaxformer.training.checkpoint_manifest import (
    checkpoint_damage,
    checkpoint_loss,
    checkpoint_steps,
)

__all__ = ["CheckpointIndex"]


class CheckpointIndex:
    """Steps and validation losses of the checkpoints in a folder, by their manifests.

    A checkpoint is verified, all of it read, when it is first asked for. From then on it is known
    as good or as damaged; one that another process has removed meanwhile is neither.

    Args:
        folder: folder of the checkpoints.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._losses: dict[int, float | None] = {}  # by step, of all that are not known as damaged
        self._verified: set[int] = set()
        self._damaged: dict[int, str] = {}  # what is wrong, by step
        self._add_new()

    def _add_new(self) -> None:
        """Adds the checkpoints that are not known yet."""
        for step in checkpoint_steps(self._folder):
            if step not in self._losses and step not in self._damaged:
                self._read_manifest(step)

    def _read_manifest(self, step: int) -> None:
        folder = self._folder / str(step)
        try:
            self._losses[step] = checkpoint_loss(folder)
        except CheckpointError as error:
            self._losses.pop(step, None)
            if os.path.lexists(folder):  # or else another process has just removed it
                self._damaged[step] = str(error)

    def __contains__(self, step: int) -> bool:
        """Whether there is a checkpoint of a step that is not known as damaged."""
        return step in self._losses

    def loss(self, step: int) -> float | None:
        """Validation loss of a checkpoint; None where it was not measured, or there is none."""
        return self._losses.get(step)

    def set_loss(self, step: int, validation_loss: float) -> None:
        """Records the validation loss of a checkpoint whose manifest has it now."""
        self._losses[step] = validation_loss

    def add(self, step: int, validation_loss: float | None) -> None:
        """Adds a checkpoint that is being saved, and so is good."""
        self._losses[step] = validation_loss
        self._verified.add(step)

    def remove(self, step: int) -> None:
        """Forgets a checkpoint, which is not there any more, or could not be saved."""
        self._losses.pop(step, None)
        self._verified.discard(step)

    def trust_all(self) -> None:
        """Takes all checkpoints as verified, which another process has done."""
        self._verified = set(self._losses)

    def _is_good(self, step: int) -> bool:
        """Verifies a checkpoint, once."""
        if step not in self._verified:
            folder = self._folder / str(step)
            if (damage := checkpoint_damage(folder)) is not None:
                del self._losses[step]
                if os.path.lexists(folder):
                    self._damaged[step] = damage
                else:  # removed by a training, which has saved a newer one before
                    self._add_new()
                return False
            self._verified.add(step)
        return True

    def _first_good(self, order: Callable[[], list[int]]) -> int | None:
        """First step in an order, which is asked for again after each that is not good."""
        while steps := order():
            if self._is_good(steps[0]):
                return steps[0]
        return None

    def _by_loss(self) -> list[int]:
        scored = {step: loss for step, loss in self._losses.items() if loss is not None}
        return sorted(scored, key=lambda step: (scored[step], step))

    @property
    def latest_step(self) -> int | None:
        """Step of the newest checkpoint that is not damaged; None when there is none."""
        return self._first_good(lambda: sorted(self._losses, reverse=True))

    @property
    def best_step(self) -> int | None:
        """Step of the checkpoint with the lowest validation loss, or the newest without any."""
        best = self._first_good(self._by_loss)
        return self.latest_step if best is None else best

    def superseded(self, keep: int) -> list[int]:
        """Steps of the checkpoints that are neither among the newest nor the best.

        Damaged ones do not count; the manifests are read anew for that.

        Args:
            keep: how many of the newest to keep.
        """
        for step in list(self._losses):
            self._read_manifest(step)
        kept = set(sorted(self._losses)[-keep:]) | {self.best_step}
        return sorted(self._losses.keys() - kept)

    def require_one_good(self) -> None:
        """Raises CheckpointError where there are checkpoints, all of them damaged."""
        if self._damaged and not self._losses:
            step = max(self._damaged)
            raise CheckpointError(
                f"{self._folder} has no checkpoint that is not damaged (step {step}: "
                f"{self._damaged[step]}); restore one, or train in another folder"
            )

    def require_step(self, step: int | None = None) -> int:
        """Step of a checkpoint that is there and verified: the best when not given."""
        if step is None:
            chosen = self.best_step
            self.require_one_good()
            if chosen is None:
                raise CheckpointError(f"{self._folder} has no checkpoint; train the run first")
            self._report([f"is passed over for that of step {chosen}"] * len(self._damaged))
            return chosen
        if step in self._losses and self._is_good(step):
            return step
        good = [other for other in sorted(self._losses) if self._is_good(other)]
        if step in self._damaged:
            raise CheckpointError(
                f"{self._folder / str(step)} is damaged ({self._damaged[step]}); "
                + (f"use one that is not, of {good}" if good else "no other is good, either")
            )
        raise CheckpointError(f"{self._folder} has no checkpoint of step {step}, only {good}")

    def set_damaged_aside(self) -> None:
        """Verifies all checkpoints, and renames those that are damaged, with a warning of each.

        Raises:
            CheckpointError: all are damaged; then none is renamed.
            StorageError: one cannot be renamed.
        """
        for step in sorted(self._losses):
            self._is_good(step)
        self.require_one_good()
        moved = {step: _set_aside(self._folder / str(step)) for step in sorted(self._damaged)}
        self._report(f"is set aside as {path.name}" for path in moved.values())

    def _report(self, outcomes: Iterable[str]) -> None:
        """Warns of every checkpoint that is known as damaged, with what became of it."""
        for step, outcome in zip(sorted(self._damaged), outcomes, strict=True):
            warnings.warn(
                f"{self._folder / str(step)} is damaged ({self._damaged[step]}); it {outcome}",
                CheckpointWarning,
                stacklevel=2,
            )


def _set_aside(folder: pathlib.Path) -> pathlib.Path:
    """Renames the folder of a damaged checkpoint, and returns its new path."""
    number, new = 1, folder.with_name(f"{folder.name}.damaged")
    while os.path.lexists(new):
        number += 1
        new = folder.with_name(f"{folder.name}.damaged-{number}")
    try:
        return folder.rename(new)
    except OSError as error:
        raise StorageError(f"{folder} is damaged, and cannot be renamed: {error}") from None
