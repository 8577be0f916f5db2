"""Checkpoints of a training run, saved with Orbax in the background, each atomically."""

import contextlib
import logging
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.storage import in_bucket, make_folder
from jaxformer.training.checkpoints.arrays import items_of, load_arrays, require_readable
from jaxformer.training.checkpoints.index import CheckpointIndex
from jaxformer.training.checkpoints.manifest import (
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

    Raises:
        CheckpointError: the folder does not exist, with read_only.
        ConfigError: Orbax cannot read the path of the folder.

    Example:
        >>> import tempfile, jax.numpy as jnp, optax
        >>> state = TrainState.create({"kernel": jnp.ones(3)}, optax.adam(0.1))
        >>> with Checkpoints(pathlib.Path(tempfile.mkdtemp())) as checkpoints:
        ...     checkpoints.save(state, validation_loss=2.5)
        ...     checkpoints.wait()
        ...     checkpoints.latest_step
        0
    """

    def __init__(self, folder: pathlib.Path, keep: int = 2, *, read_only: bool = False) -> None:
        require_readable(folder)
        if read_only and not folder.is_dir():
            raise CheckpointError(f"{folder} has no checkpoint; train the run first")
        if not read_only:
            make_folder(folder)
        super().__init__(folder if in_bucket(folder) else pathlib.Path(os.path.abspath(folder)))
        logging.getLogger("absl").addFilter(_is_no_failure)
        self._saving = 0  # step of the latest save
        self._response: Any = None  # of the save in progress
        self._checkpointer: Any = None if read_only else self._open(keep)

    def _open(self, keep: int) -> Any:
        context = ocp.Context()
        # The first process calls this after all other files are written, before the checkpoint is
        # complete; an error prevents that. A function, because Orbax copies the options, and would
        # copy the object of a method.
        context.asynchronous.post_finalization_callback = lambda: self._commit()
        policies = ocp.training.preservation_policies
        policy = policies.AnyPreservationPolicy([policies.LatestN(keep), _Best(self)])
        return ocp.training.Checkpointer(
            self._folder, context=context, preservation_policy=policy, cleanup_tmp_directories=True
        )

    def _commit(self) -> None:
        """Writes the manifest of the checkpoint that Orbax has written."""
        folder = self.path(self._saving)
        if not in_bucket(folder):
            folder = folder.with_name(f"{folder.name}{_DRAFT}")
        write_checkpoint_manifest(
            folder, step=self._saving, validation_loss=self._losses[self._saving]
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            if self._checkpointer is not None:
                self._checkpointer.close()

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

    def save(self, state: TrainState, validation_loss: float | None = None) -> None:
        """Starts saving a state in the background, once the previous save is done.

        A step is not saved twice, but if its checkpoint has no validation loss yet, it is added.

        Args:
            state: the state; its step names the checkpoint.
            validation_loss: nats per label; the best checkpoint has the lowest.

        Raises:
            Exception: that of Orbax, if this or the previous save failed.
        """
        step = int(state.step)
        self.wait()
        if step in self._losses:
            if validation_loss is not None and self._losses[step] is None:
                if is_first_process():
                    add_checkpoint_loss(self.path(step), validation_loss)
                self._losses[step] = validation_loss
            return
        # Before the policies ask for the best.
        self._saving, self._losses[step] = step, validation_loss
        is_damaged = self._damaged.pop(step, None) is not None
        with self._forgotten_if_failed():
            self._response = self._checkpointer.save_checkpointables_async(
                step, items_of(state), force=True, overwrite=is_damaged
            )
        self._good.add(step)

    def wait(self) -> None:
        """Waits until the latest save is on disk; raises Orbax's error if it failed."""
        if self._response is not None:
            with self._forgotten_if_failed():
                self._response.result()
            self._response = None

    @contextlib.contextmanager
    def _forgotten_if_failed(self) -> Iterator[None]:
        """Leaves a save that fails out of the checkpoints."""
        try:
            yield
        except BaseException:
            # Orbax would raise the error again when it is closed.
            self._response = self._checkpointer = None
            self._losses.pop(self._saving, None)
            self._good.discard(self._saving)
            raise

    def restore(self, template: TrainState) -> TrainState:
        """Restores the newest undamaged state.

        Args:
            template: a state with the same structure, and the shardings to restore to.

        Raises:
            CheckpointError: there is none, or its shapes or dtypes differ from the template's.
        """
        step = self.require_step() if self.latest_step is None else self.latest_step
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
        if not (self.path(step) / "average").is_dir():
            return self._load(step, {"params": template})["params"]
        wide = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, average_dtype(x.dtype), sharding=x.sharding),
            template,
        )
        average = self._load(step, {"average": wide})["average"]
        return jax.tree.map(lambda x, like: x.astype(like.dtype), average, template)

    def _load(self, step: int, templates: dict[str, Any]) -> dict[str, Any]:
        loaded: dict[str, Any] = load_arrays(self.path(step), templates)
        if not is_whole(self.path(step)):  # TensorStore reads missing parts of an array as zeros
            raise CheckpointError(
                f"{self.path(step)} was removed while it was read, probably by a training that "
                "removes old checkpoints; try again, with another step if you chose this one"
            )
        return loaded


class _Best:
    """Orbax's policy that keeps the best checkpoint, by the losses in the verified manifests."""

    # BestN of Orbax reads metrics of all checkpoints when a folder is opened, before they can be
    # verified: one flipped bit there, and the folder does not open.
    def __init__(self, index: CheckpointIndex) -> None:
        self._index = index

    def should_preserve(self, checkpoints: Sequence[Any], *, context: object) -> list[bool]:
        """Which of the checkpoints are kept."""
        return [info.step in self._index.by_loss()[:1] for info in checkpoints]


def _is_no_failure(record: logging.LogRecord) -> bool:
    """A filter for Orbax's logs of failures with tracebacks, which are raised as errors."""
    return record.levelno < logging.WARNING or "orbax" not in record.pathname
