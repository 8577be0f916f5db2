"""Checkpoints of a training run, saved with Orbax in the background, each atomically."""

import concurrent.futures
import contextlib
import pathlib
from collections.abc import Callable
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from jaxformer.errors import CheckpointError, ConfigError, StorageError
from jaxformer.storage import first_line, remove_tree, storage_error
from jaxformer.training.checkpoints.index import CheckpointIndex
from jaxformer.training.checkpoints.manifest import (
    Unlogged,
    add_checkpoint_loss,
    checkpoint_unlogged,
    write_checkpoint_manifest,
)
from jaxformer.training.checkpoints.orbax import load_arrays, orbax_log
from jaxformer.training.checkpoints.places import Place, place_of
from jaxformer.training.parallel import in_first_process, is_first_process
from jaxformer.training.state import TrainState, average_dtype

_SLACK = 2**18  # bytes of a checkpoint besides its arrays, at most


class Checkpoints(CheckpointIndex):
    """The checkpoints in a folder, each with "params", "opt_state", "meta" and a manifest.

    If the state has an average of the parameters, a checkpoint also has "average". A checkpoint is
    damaged if its files differ from its manifest. Damaged checkpoints are never loaded, and count
    neither as the newest nor as the best. With read_only, only requested checkpoints are verified.
    Otherwise all are verified first, and damaged ones are renamed to STEP.damaged with a warning.

    Args:
        folder: folder of the checkpoints; created if missing.
        keep: how many of the latest to keep, besides the one with the lowest validation loss.
        read_only: change nothing in the folder, because another process may be saving in it.

    Raises:
        CheckpointError: the folder does not exist, with read_only; or all checkpoints are damaged.
        StorageError: the folder cannot be created or written to.

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
        self._keep = keep
        self._checkpointer: Any = None
        self._saving: tuple[int, float | None, Unlogged] = (0, None, (0.0, []))  # as in `save`
        self._response: Any = None  # of the save in progress
        self._failed = False
        self._thread = concurrent.futures.ThreadPoolExecutor(1)  # which removes old checkpoints
        self._removals: list[concurrent.futures.Future[None]] = []
        if folder.is_symlink():
            raise CheckpointError(f"{folder} is a link, which could lead anywhere; remove it")
        self._place = place_of(folder)
        if read_only and not folder.is_dir():
            raise CheckpointError(f"{folder} has no checkpoint; train the run first")
        if not read_only:
            self._place.make()
            _clear_the_way(self._place)
        super().__init__(folder)
        self._plain = self._place.open()
        self.before_commit: Callable[[], object] = lambda: None
        """Called before a checkpoint is complete, in the thread that saves it."""
        orbax_log.num_open += 1
        if read_only:
            return
        # The first process has verified all, and renamed the damaged ones.
        self._verified = set(self._losses)
        context = ocp.Context()
        # The first process calls this after all other files are written, before the folder gets its
        # final name; an error prevents that. A function, because Orbax copies the options, and
        # would copy the object of a method.
        context.asynchronous.post_finalization_callback = lambda: self._commit()
        self._checkpointer = ocp.training.Checkpointer(
            self._plain.path,
            context=context,
            preservation_policy=ocp.training.preservation_policies.PreserveAll(),
        )

    def _commit(self) -> None:
        """Writes the manifest of the checkpoint that Orbax has written."""
        self.before_commit()
        write_checkpoint_manifest(self._place.draft(self._saving[0]), *self._saving)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            with contextlib.nullcontext() if kind is None else contextlib.suppress(Exception):
                self.wait()
                if self._checkpointer is not None and kind is None:
                    self._remove_superseded()  # also those that a killed training has left
                    self._wait_for_removals()
        finally:
            self._close()

    def _close(self) -> None:
        if self._checkpointer is not None:
            with contextlib.suppress(Exception):  # a failed save, already raised by `wait`
                self._checkpointer.close()
        self._thread.shutdown(cancel_futures=True)  # some are left only after an error
        if not self._failed:  # threads of a failed save may log even now
            orbax_log.num_open -= 1
        self._plain.close()

    def unlogged(self, step: int) -> Unlogged:
        """Unrecorded seconds and metrics of the steps before a checkpoint."""
        return checkpoint_unlogged(self._folder / str(step))

    def step_to_resume(self, steps: int) -> int:
        """Step from which to resume a training of `steps` steps; 0 without a checkpoint."""
        trained = self.latest_step or 0
        self.require_one_good()
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
            StorageError: the disk has too little space, or the previous save failed.
        """
        step = int(state.step)
        if step in self._losses:
            if validation_loss is not None and self._losses[step] is None:
                self.wait()
                if is_first_process():
                    add_checkpoint_loss(self._folder / str(step), validation_loss)
                self._losses[step] = validation_loss
            return
        self.wait()
        self._wait_for_removals()
        items = _items(state)
        self._require_room(step, sum(leaf.nbytes for leaf in jax.tree.leaves(items)))
        self._saving = step, validation_loss, unlogged
        self._place.require_lock()
        try:
            self._response = self._checkpointer.save_checkpointables_async(step, items, force=True)
        except Exception as error:  # Orbax and TensorStore raise many kinds
            raise self._failure(step, error) from error
        self._losses[step] = validation_loss
        self._verified.add(step)

    def raise_if_failed(self) -> None:
        """Raises StorageError if the save in the background failed; takes microseconds."""
        if self._response is not None:
            self.wait(timeout=0)

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the latest save is on disk, and begins to remove old checkpoints.

        Raises:
            StorageError: the save failed.
        """
        if self._response is None:
            return
        try:
            self._response.result(timeout)
        except TimeoutError as error:
            if timeout is not None:
                return
            raise self._failure(self._saving[0], error) from error
        except Exception as error:
            raise self._failure(self._saving[0], error) from error
        self._response = None
        self._remove_superseded()

    def _wait_for_removals(self) -> None:
        """Waits for what `wait` has begun; StorageError if the lock of the run is lost."""
        while self._removals:
            self._removals.pop().result()

    def _remove_superseded(self) -> None:
        """Starts to remove old checkpoints; Orbax would choose by metrics of its own."""
        try:
            steps = self.superseded(self._keep) if is_first_process() else []
        except (OSError, StorageError):  # of a bucket: one checkpoint more stays
            return
        for step in steps:
            self._forget(step)
            self._removals.append(self._thread.submit(self._place.remove, step))

    def _require_room(self, step: int, size: int) -> None:
        """Raises StorageError if the disk has fewer free bytes than arrays of `size` need."""
        try:
            free = self._place.free()
        except OSError as error:
            raise self._failure(step, error) from None
        if is_first_process() and free is not None and free < size + _SLACK:
            raise self._failure(
                step, f"it needs {size + _SLACK:,} bytes, and the disk has {free:,} free"
            )

    def _failure(self, step: int, reason: object) -> StorageError:
        """Error of a save that failed; removes its files."""
        self._response, self._failed = None, True
        with contextlib.suppress(StorageError):  # a lost lock: the files may be another process's
            remove_tree(self._place.draft(step))
        self._forget(step)
        said = first_line(reason)
        if len(said) > 300:  # the reason is at the end, after a path
            said = f"{said[:100]} ... {said[-200:]}"
        return StorageError(
            f"{self._folder / str(step)}: the checkpoint cannot be saved ({said}); free "
            "space or fix the cause, then run the same command again to resume"
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
                f"{self._folder / str(step)} has {'an' if has else 'no'} average of the "
                f"parameters, but this training {'sets' if wants else 'does not set'} "
                "average_decay; resume with the original setting, or choose another folder"
            )
        loaded = self._load(step, _items(template))
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
        return (self._folder / str(step) / "average").is_dir()

    def _load(self, step: int, templates: dict[str, Any]) -> dict[str, Any]:
        name = str(step)
        return load_arrays(self._plain.path / name, templates, self._folder / name)


class NoCheckpoints(Checkpoints):
    """Checkpoints of a training without a folder: nothing is saved."""

    latest_step = None

    def __init__(self) -> None:
        self._response = None

    def _close(self) -> None: ...

    def save(self, *_: Any, **others: Any) -> None:
        """Does nothing."""


def step_to_resume(folder: pathlib.Path, steps: int) -> int:
    """As `Checkpoints.step_to_resume`, of a folder that need not exist and is not changed."""
    if not folder.is_dir():
        return 0
    with Checkpoints(folder, read_only=True) as checkpoints:
        return checkpoints.step_to_resume(steps)


def _items(state: TrainState) -> dict[str, Any]:
    """Items of a checkpoint, each of which Orbax can load separately."""
    return {
        "params": state.params,
        "opt_state": state.opt_state,
        "meta": {
            "step": state.step, "bad_step": state.bad_step, "skipped_steps": state.skipped_steps,
        },
        **({} if state.average is None else {"average": state.average}),
    }  # fmt: skip


def _clear_the_way(place: Place) -> None:
    """Removes drafts, verifies all checkpoints, and renames damaged ones to free their steps."""

    def clear() -> None:
        try:
            place.remove_drafts()
            CheckpointIndex(place.folder).set_damaged_aside()
        except OSError as error:
            raise storage_error(place.folder, error, "read") from None

    in_first_process("verify the checkpoints", clear)  # no collective, which could time out
