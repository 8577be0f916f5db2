"""Checkpoints of a training run, saved with Orbax in the background, each atomically."""

import contextlib
import logging
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from jaxformer.errors import CheckpointError, ConfigError, StorageError, first_line
from jaxformer.storage import in_bucket, make_folder
from jaxformer.training.checkpoints.arrays import items_of, load_arrays, require_readable
from jaxformer.training.checkpoints.index import CheckpointIndex, by_loss
from jaxformer.training.checkpoints.manifest import (
    Unlogged,
    add_checkpoint_loss,
    is_whole,
    write_checkpoint_manifest,
)
from jaxformer.training.parallel import is_first_process
from jaxformer.training.state import TrainState, average_dtype

_DRAFT = ".orbax-checkpoint-tmp"  # Orbax's suffix of an incomplete checkpoint on a disk


class Checkpoints(CheckpointIndex):
    """The checkpoints in a folder, each with "params", "opt_state", "meta" and a manifest.

    If the state has an average of the parameters, a checkpoint also has "average". A checkpoint is
    verified when it is first asked for: it is damaged if its files differ from its manifest. A
    damaged checkpoint is named and left alone, and another one is taken.

    Args:
        folder: folder of the checkpoints; created if missing.
        keep: how many of the latest to keep, besides the one with the lowest validation loss.
        read_only: change nothing in the folder, because another process may be saving in it.
        require_lock: called before each save; raises if another process has taken the folder.

    Raises:
        CheckpointError: the folder does not exist, with read_only.
        ConfigError: Orbax cannot read the path of the folder.
        StorageError: the folder cannot be created.

    Example:
        >>> import tempfile, jax.numpy as jnp, optax
        >>> state = TrainState.create({"kernel": jnp.ones(3)}, optax.adam(0.1))
        >>> with Checkpoints(pathlib.Path(tempfile.mkdtemp())) as checkpoints:
        ...     checkpoints.save(state, validation_loss=2.5)
        ...     checkpoints.wait()
        ...     checkpoints.latest_step
        0
    """

    def __init__(
        self, folder: pathlib.Path, keep: int = 2, *, read_only: bool = False,
        require_lock: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        require_readable(folder)
        if read_only and not folder.is_dir():
            raise CheckpointError(f"{folder} has no checkpoint; train the run first")
        if not read_only:
            make_folder(folder)
        super().__init__(folder if in_bucket(folder) else pathlib.Path(os.path.abspath(folder)))
        logging.getLogger("absl").addFilter(_is_no_failure)
        self._require_lock = require_lock
        self.before_save: Callable[[], object] = lambda: None
        """Called before each save."""
        self._saving: dict[str, Any] = {}  # what the manifest of the save in progress is about
        self._response: Any = None  # of the save in progress
        self._checkpointer: Any = None if read_only else self._open(keep)

    def _open(self, keep: int) -> Any:
        context = ocp.Context()
        # The first process calls this after all other files are written, before the checkpoint is
        # complete; an error prevents that. A function, because Orbax copies the options, and would
        # copy the object of a method.
        context.asynchronous.post_finalization_callback = lambda: self._commit()
        policies = ocp.training.preservation_policies
        latest_and_best = [policies.LatestN(keep), _Best(self._losses)]
        self._policy = policies.AnyPreservationPolicy(latest_and_best)
        return ocp.training.Checkpointer(
            self._folder, context=context, preservation_policy=self._policy,
            cleanup_tmp_directories=True,
        )  # fmt: skip

    def _commit(self) -> None:
        """Writes the manifest of the checkpoint that Orbax has written."""
        folder = self.path(self._saving["step"])
        if not in_bucket(folder):
            folder = folder.with_name(f"{folder.name}{_DRAFT}")
        write_checkpoint_manifest(folder, **self._saving)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
                self._remove_superseded()
        finally:
            if self._checkpointer is not None:
                with contextlib.suppress(Exception):  # a failed save, already raised by `wait`
                    self._checkpointer.close()

    def _remove_superseded(self) -> None:
        """Removes what is not kept, and a training that was killed has not removed after a save."""
        infos = [] if self._checkpointer is None else self._checkpointer.checkpoints
        if not infos or infos[-1].step != self.latest_step:
            return  # the policies would count a damaged one, and remove a good one
        context = ocp.training.preservation_policies.PreservationContext()
        preserved = self._policy.should_preserve(infos, context=context)
        for info, is_kept in zip(infos, preserved, strict=True):
            if not is_kept:
                self._checkpointer.delete(info, missing_ok=True)

    def step_to_resume(self, steps: int) -> int:
        """Step from which to resume a training of `steps` steps; 0 without a checkpoint."""
        trained = self._used(self.latest_step) or 0
        if trained > steps:
            raise ConfigError(
                f"{self._folder.parent} has already been trained to step {trained}, got "
                f"steps={steps}; set steps (in a config, training.steps) to {trained} or more, or "
                "choose another folder"
            )
        return trained

    def save(
        self, state: TrainState, validation_loss: float | None = None,
        unlogged: Unlogged = (0.0, []),
    ) -> None:  # fmt: skip
        """Starts saving a state in the background, once the previous save is done.

        A step is not saved twice, but if its checkpoint has no validation loss yet, it is added.

        Args:
            state: the state; its step names the checkpoint.
            validation_loss: nats per label; the best checkpoint has the lowest.
            unlogged: seconds and metrics of the steps since the last record of metrics, which a
                resumed run needs for its next record.

        Raises:
            StorageError: this or the previous save failed, or the lock of the run is lost.
        """
        step = int(state.step)
        self.wait()
        self._require_lock()
        self.before_save()
        if step in self._losses:
            if validation_loss is not None and self._losses[step] is None:
                if is_first_process():
                    add_checkpoint_loss(self.path(step), validation_loss)
                self._losses[step] = validation_loss
            return
        self._saving = {"step": step, "validation_loss": validation_loss, "unlogged": unlogged}
        self._losses[step] = validation_loss  # before the policies ask for the best
        is_damaged = self._damaged.pop(step, None) is not None
        try:
            self._response = self._checkpointer.save_checkpointables_async(
                step, items_of(state), force=True, overwrite=is_damaged
            )
        except Exception as error:  # Orbax and TensorStore raise many kinds
            raise self._failure(error) from error
        self._good.add(step)

    def raise_if_failed(self) -> None:
        """Raises StorageError if the save in the background failed; takes microseconds."""
        if self._response is not None:
            self.wait(timeout=0)

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the latest save is on disk; StorageError if it failed."""
        if self._response is None:
            return
        try:
            self._response.result(timeout)
        except Exception as error:
            if isinstance(error, TimeoutError) and timeout is not None:
                return
            raise self._failure(error) from error
        self._response = None

    def _failure(self, error: Exception) -> StorageError:
        """Error of a save that failed."""
        step, self._response = self._saving["step"], None
        del self._losses[step]
        self._good.discard(step)
        return StorageError(
            f"{self.path(step)}: the checkpoint cannot be saved ({first_line(error)}); "
            "free space or fix the cause, then run the same command again to resume"
        )

    def restore(self, template: TrainState) -> TrainState:
        """Restores the newest undamaged state.

        Args:
            template: a state with the same structure, and the shardings to restore to.

        Raises:
            CheckpointError: there is none, its shapes or dtypes differ from the template's, or
                only one of the two has an average.
        """
        step = self.require_step() if self.latest_step is None else self.latest_step
        has, wants = self._has_average(step), template.average is not None
        if has != wants:
            raise CheckpointError(
                f"{self.path(step)} has {'an' if has else 'no'} average of the "
                f"parameters, but this training {'sets' if wants else 'does not set'} "
                "average_decay; resume with the original setting, or choose another folder"
            )
        loaded = self._load(step, items_of(template))
        return TrainState(**loaded.pop("meta"), **loaded)

    def restore_params(self, template: Any, step: int | None = None) -> Any:
        """Restores parameters without the optimizer state; their average if there is one.

        Args:
            template: parameters, or their `jax.ShapeDtypeStruct`s with shardings.
            step: step of the checkpoint; the best when not given.

        Raises:
            CheckpointError: there is no such checkpoint, it is damaged, it was removed while it was
                read, or its shapes or dtypes differ from the template's.
        """
        step = self.require_step(step)
        if not self._has_average(step):
            return self._load(step, {"params": template})["params"]
        wide = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, average_dtype(x.dtype), sharding=x.sharding),
            template,
        )
        average = self._load(step, {"average": wide})["average"]
        return jax.tree.map(lambda x, like: x.astype(like.dtype), average, template)

    def _has_average(self, step: int) -> bool:
        return (self.path(step) / "average").is_dir()

    def _load(self, step: int, templates: dict[str, Any]) -> dict[str, Any]:
        removed = CheckpointError(
            f"{self.path(step)} was removed while it was read, probably by a training that removes "
            "old checkpoints; try again, with another step if you chose this one"
        )
        try:
            loaded: dict[str, Any] = load_arrays(self.path(step), templates)
        except Exception as error:
            if is_whole(self.path(step)):
                raise
            raise removed from error
        if not is_whole(self.path(step)):  # TensorStore reads missing parts of an array as zeros
            raise removed
        return loaded


class NoCheckpoints(Checkpoints):
    """Checkpoints of a training without a folder: nothing is saved."""

    latest_step = None

    def __init__(self) -> None:
        self._response = self._checkpointer = None

    def step_to_resume(self, steps: int) -> int:
        """Step 0: there is nothing to resume."""
        return 0

    def save(self, *_: Any, **__: Any) -> None:
        """Does nothing."""


class _Best:
    """Orbax's policy that keeps the best checkpoint, by the losses in the verified manifests."""

    # BestN of Orbax reads metrics of all checkpoints when a folder is opened, before they can be
    # verified: one flipped bit there, and the folder does not open.
    def __init__(self, losses: Mapping[int, float | None]) -> None:
        self._losses = losses

    def should_preserve(self, checkpoints: Sequence[Any], *, context: object) -> list[bool]:
        """Which of the checkpoints are kept."""
        return [info.step in by_loss(self._losses)[:1] for info in checkpoints]


def _is_no_failure(record: logging.LogRecord) -> bool:
    """A filter for Orbax's logs of failures with tracebacks, which are raised as errors."""
    return record.levelno < logging.WARNING or "orbax" not in record.pathname
