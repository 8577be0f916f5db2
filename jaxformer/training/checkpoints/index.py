"""Index of the checkpoints in a folder: the newest, the best, and the damaged ones."""

import pathlib
import warnings
from collections.abc import Callable, Iterable

from jaxformer.errors import CheckpointError, CheckpointWarning, StorageError
from jaxformer.storage import lexists
from jaxformer.training.checkpoints.manifest import (
    checkpoint_damage,
    checkpoint_loss,
    checkpoint_steps,
)


class CheckpointIndex:
    """Steps and validation losses of the checkpoints in a folder, from their manifests.

    A checkpoint is verified when it is first requested, by reading all its files. From then on it
    is known as good or damaged; one that another process has removed is neither.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._losses: dict[int, float | None] = {}  # by step, except known damaged ones
        self._verified: set[int] = set()
        self._damaged: dict[int, str] = {}  # description by step
        self._add_new()

    def _add_new(self) -> None:
        """Adds checkpoints that are new in the folder."""
        for step in checkpoint_steps(self._folder):
            if step not in self._losses and step not in self._damaged:
                self._read_manifest(step)

    def _read_manifest(self, step: int) -> None:
        folder = self._folder / str(step)
        try:
            self._losses[step] = checkpoint_loss(folder)
        except CheckpointError as error:
            self._losses.pop(step, None)
            if lexists(folder):  # otherwise another process has just removed it
                self._damaged[step] = str(error)

    def _forget(self, step: int) -> None:
        """Forgets a checkpoint that was removed or could not be saved."""
        self._losses.pop(step, None)
        self._verified.discard(step)

    def validation_loss(self, step: int) -> float | None:
        """Validation loss of a checkpoint, in nats per label; None if not measured."""
        return self._losses.get(step)

    def _is_good(self, step: int) -> bool:
        """Verifies a checkpoint, once."""
        if step not in self._verified:
            folder = self._folder / str(step)
            if (damage := checkpoint_damage(folder)) is not None:
                del self._losses[step]
                if lexists(folder):
                    self._damaged[step] = damage
                else:  # removed by a training, which saved a newer one first
                    self._add_new()
                return False
            self._verified.add(step)
        return True

    def _first_good(self, order: Callable[[], list[int]]) -> int | None:
        """First good step of an order, which is computed anew after each step that is not."""
        while steps := order():
            if self._is_good(steps[0]):
                return steps[0]
        return None

    def _by_loss(self) -> list[int]:
        scored = {step: loss for step, loss in self._losses.items() if loss is not None}
        return sorted(scored, key=lambda step: (scored[step], step))

    @property
    def latest_step(self) -> int | None:
        """Step of the newest undamaged checkpoint, if any."""
        return self._first_good(lambda: sorted(self._losses, reverse=True))

    @property
    def best_step(self) -> int | None:
        """Step of the checkpoint with the lowest validation loss; the newest if none has one."""
        best = self._first_good(self._by_loss)
        return self.latest_step if best is None else best

    def superseded(self, keep: int) -> list[int]:
        """Steps of the checkpoints except the `keep` newest and the best.

        Damaged ones do not count, so the manifests are read again.
        """
        for step in list(self._losses):
            self._read_manifest(step)
        kept = set(sorted(self._losses)[-keep:]) | {self.best_step}
        return sorted(self._losses.keys() - kept)

    def require_one_good(self) -> None:
        """Raises CheckpointError if there are checkpoints and all are damaged."""
        if self._damaged and not self._losses:
            step = max(self._damaged)
            raise CheckpointError(
                f"every checkpoint in {self._folder} is damaged (step {step}: "
                f"{self._damaged[step]}); restore one from a backup, or train in another folder"
            )

    def require_step(self, step: int | None = None) -> int:
        """Step of a verified checkpoint; the best when not given.

        When choosing the best, it warns of damaged checkpoints: one of them might have been better.

        Raises:
            CheckpointError: there is no checkpoint, or none of this step, or it is damaged.
        """
        if step is None:
            chosen = self.best_step
            self.require_one_good()
            if chosen is None:
                raise CheckpointError(f"{self._folder} has no checkpoint; train the run first")
            self._report([f"is ignored; using step {chosen} instead"] * len(self._damaged))
            return chosen
        if step in self._losses and self._is_good(step):
            return step
        good = [other for other in sorted(self._losses) if self._is_good(other)]
        if step in self._damaged:
            raise CheckpointError(
                f"{self._folder / str(step)} is damaged ({self._damaged[step]}); "
                + (f"choose one of the steps {good}" if good else "so is every other checkpoint")
            )
        raise CheckpointError(f"{self._folder} has no checkpoint of step {step}, only {good}")

    def set_damaged_aside(self) -> None:
        """Verifies all; renames damaged ones with a warning for each, unless all are damaged."""
        for step in sorted(self._losses):
            self._is_good(step)
        self.require_one_good()
        moved = {step: _set_aside(self._folder / str(step)) for step in sorted(self._damaged)}
        self._report(f"was renamed to {path.name}" for path in moved.values())

    def _report(self, outcomes: Iterable[str]) -> None:
        """Warns of each known damaged checkpoint, and says what was done with it."""
        for step, outcome in zip(sorted(self._damaged), outcomes, strict=True):
            warnings.warn(
                f"{self._folder / str(step)} is damaged ({self._damaged[step]}); it {outcome}",
                CheckpointWarning,
                stacklevel=2,
            )


def _set_aside(folder: pathlib.Path) -> pathlib.Path:
    """Renames the folder of a damaged checkpoint; returns its new path."""
    number, new = 1, folder.with_name(f"{folder.name}.damaged")
    while lexists(new):
        number += 1
        new = folder.with_name(f"{folder.name}.damaged-{number}")
    try:
        return folder.rename(new)
    except OSError as error:
        raise StorageError(f"{folder} is damaged and cannot be renamed: {error}") from None
