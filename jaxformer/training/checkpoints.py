"""Checkpoints of a training run: saved with Orbax in the background, atomic, and restored."""

import contextlib
import logging
import os
import pathlib
import shutil
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from jaxformer.errors import CheckpointError, ConfigError, StorageError
from jaxformer.storage import make_folder
from jaxformer.training.checkpoint_arrays import load_arrays
from jaxformer.training.checkpoint_index import CheckpointIndex
from jaxformer.training.checkpoint_manifest import (
    Unlogged,
    add_checkpoint_loss,
    checkpoint_unlogged,
    write_checkpoint_manifest,
)
from jaxformer.training.parallel import in_first_process, is_first_process
from jaxformer.training.plain_path import PlainPath
from jaxformer.training.state import TrainState, average_dtype

__all__ = ["Checkpoints", "NoCheckpoints"]

_DRAFT = ".orbax-checkpoint-tmp"  # what Orbax adds to the name of a checkpoint not yet complete
_SLACK = 2**18  # bytes that a checkpoint may have besides its arrays


class Checkpoints:
    """The checkpoints in one folder, each with "params", "opt_state" and "meta", and a manifest.

    If the state has an average of the parameters, there is "average", too. A checkpoint
    whose files are not those of its manifest is never loaded, and counts neither as the newest nor
    as the best. Opened to save, every checkpoint is verified, and damaged ones are renamed to
    STEP.damaged, with a warning; opened to read, those that are asked for.

    Args:
        folder: folder of the checkpoints; created if missing.
        keep: how many of the latest to keep, beside the one with the lowest validation loss.
        read_only: change nothing in the folder, in which another process may be saving.

    Raises:
        CheckpointError: the folder does not exist, with read_only; or all checkpoints are damaged.
        StorageError: the folder cannot be made or written to.

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
        self._folder, self._keep = folder, keep
        self._checkpointer: Any = None
        self._saving: tuple[int, float | None, Unlogged] = (0, None, (0.0, []))  # as in `save`
        self._response: Any = None  # of the save in progress
        self._failed = False
        if folder.is_symlink():
            raise CheckpointError(f"{folder} is a link, which could lead anywhere; remove it")
        if read_only and not folder.is_dir():
            raise CheckpointError(f"{folder} has no checkpoint; train the run first")
        if not read_only:
            make_folder(folder)
            _clear_the_way(folder)
        self._index = CheckpointIndex(folder)
        self._plain = PlainPath(folder)
        _orbax_log.hold_back()
        if not read_only:
            # All that stand are good; the first process has found that out for the others.
            self._index.trust_all()
            self._checkpointer = self._open_checkpointer()

    def _open_checkpointer(self) -> Any:
        context = ocp.Context()
        # Runs in the first process when all other files are written, before the folder gets its
        # name; an error in it keeps the checkpoint from being one. A function, because Orbax copies
        # the options, and with a method its object.
        context.asynchronous.post_finalization_callback = lambda: self._write_manifest()
        return ocp.training.Checkpointer(
            self._plain.path,
            context=context,
            # Old ones are removed here: Orbax would read metrics of its own to choose.
            preservation_policy=ocp.training.preservation_policies.PreserveAll(),
        )

    def _write_manifest(self) -> None:
        write_checkpoint_manifest(self._folder / f"{self._saving[0]}{_DRAFT}", *self._saving)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            with contextlib.nullcontext() if kind is None else contextlib.suppress(Exception):
                self._finish()
        finally:
            self._close()

    def _close(self) -> None:
        if self._checkpointer is not None:
            with contextlib.suppress(Exception):  # a failed save, which `_finish` has raised
                self._checkpointer.close()
        if not self._failed:  # threads of a failed save may log even now
            _orbax_log.let_through()
        self._plain.close()

    # Which checkpoints there are.

    @property
    def latest_step(self) -> int | None:
        """Step of the newest checkpoint that is not damaged; None when there is none."""
        return self._index.latest_step

    @property
    def best_step(self) -> int | None:
        """Step of the checkpoint with the lowest validation loss, or the newest without any."""
        return self._index.best_step

    def validation_loss(self, step: int) -> float | None:
        """Validation loss of a checkpoint, nats per token; None where it was not measured."""
        return self._index.loss(step)

    def unlogged(self, step: int) -> Unlogged:
        """Seconds and metrics of the steps before a checkpoint that no record of metrics has."""
        return checkpoint_unlogged(self._folder / str(step))

    def step_to_resume(self, steps: int) -> int:
        """Step that a training of `steps` steps goes on from: that of the newest checkpoint, or 0.

        Damaged checkpoints are passed over.

        Raises:
            ConfigError: the newest checkpoint is of a later step.
            CheckpointError: all checkpoints are damaged.
        """
        trained = self.latest_step or 0
        self._index.require_one_good()
        if trained > steps:
            raise ConfigError(
                f"{self._folder.parent} has been trained to step {trained} already, got "
                f"steps={steps}; set it, in a config training.steps, to {trained} or more, or "
                "choose another folder"
            )
        return trained

    def require_step(self, step: int | None = None) -> int:
        """Step of a checkpoint that is there and verified: the best when not given.

        Warns of damaged checkpoints, one of which might have been the best.

        Raises:
            CheckpointError: there is none, or none of this step, or it is damaged.
        """
        return self._index.require_step(step)

    # Saving.

    def save(
        self, state: TrainState, validation_loss: float | None = None,
        unlogged: Unlogged = (0.0, []),
    ) -> None:  # fmt: skip
        """Starts saving a state in the background, after any earlier save.

        A step that is already saved is not saved again, unless it was without a validation loss
        and now has one.

        Args:
            state: the state; its step names the checkpoint.
            validation_loss: nats per token, by which the best checkpoint is chosen.
            unlogged: seconds and metrics of the steps since the last record of metrics, which a
                resumed run needs for its next one.

        Raises:
            StorageError: the disk has no room for it, or the earlier save has failed.
        """
        step = int(state.step)
        if step in self._index:
            if validation_loss is not None and self._index.loss(step) is None:
                self._add_loss(step, validation_loss)
            return
        self._finish()
        items = _items(state)
        self._require_room(step, sum(leaf.nbytes for leaf in jax.tree.leaves(items)))
        self._saving = step, validation_loss, unlogged
        try:
            self._response = self._checkpointer.save_checkpointables_async(step, items, force=True)
        except Exception as error:  # Orbax and TensorStore raise many kinds
            raise self._failure(step, error) from error
        self._index.add(step, validation_loss)

    def _add_loss(self, step: int, validation_loss: float) -> None:
        """Writes into the manifest of a saved checkpoint the loss that was measured later."""
        self._finish()
        if is_first_process():
            add_checkpoint_loss(self._folder / str(step), validation_loss)
        self._index.set_loss(step, validation_loss)

    def raise_if_failed(self) -> None:
        """Raises StorageError where the save in the background has failed; takes microseconds."""
        if self._response is not None:
            self._finish(timeout=0)

    def wait(self) -> None:
        """Waits until the latest save is on disk; StorageError where it has failed."""
        self._finish()

    def _finish(self, timeout: float | None = None) -> None:
        """Waits for the save in progress, and removes checkpoints that are not kept any more."""
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
        if is_first_process():
            self._remove_old()

    def _remove_old(self) -> None:
        """Removes all checkpoints but the newest and the best; damaged ones do not count."""
        for step in self._index.superseded(self._keep):
            self._index.remove(step)
            # Renamed first, so that what a crash leaves is taken for what it is, and removed.
            old = self._folder / f"{step}.old{_DRAFT}"
            try:
                os.rename(self._folder / str(step), old)
            except OSError:
                continue  # it is left, as a checkpoint more
            shutil.rmtree(old, ignore_errors=True)

    def _require_room(self, step: int, size: int) -> None:
        """Raises StorageError where a disk has less than so many bytes free."""
        try:
            free = shutil.disk_usage(self._folder).free
        except OSError as error:
            raise self._failure(step, error) from None
        if is_first_process() and free < size + _SLACK:
            raise self._failure(
                step, f"it needs {size + _SLACK:,} bytes, and the disk has {free:,} free"
            )

    def _failure(self, step: int, reason: object) -> StorageError:
        """Error of a checkpoint that could not be saved, of which nothing is left."""
        self._response, self._failed = None, True
        shutil.rmtree(self._folder / f"{step}{_DRAFT}", ignore_errors=True)
        self._index.remove(step)
        first_line = (str(reason).splitlines() or [type(reason).__name__])[0]
        if len(first_line) > 300:  # what is wrong stands at its end, after a path
            first_line = f"{first_line[:100]} ... {first_line[-200:]}"
        return StorageError(
            f"{self._folder / str(step)}: the checkpoint cannot be saved ({first_line}); free "
            "space, or mend that, and the same command goes on"
        )

    # Loading.

    def restore(self, template: TrainState) -> TrainState:
        """Restores the newest state that is not damaged.

        Args:
            template: state of the same structure, placed where the restored one should be.

        Returns:
            The state.

        Raises:
            CheckpointError: there is none, or its shapes or dtypes are not the template's, or only
                one of the two has an average.
        """
        step = self.require_step() if self.latest_step is None else self.latest_step
        has, wants = self._has_average(step), template.average is not None
        if has != wants:
            raise CheckpointError(
                f"{self._folder / str(step)} has {'an' if has else 'no'} average of the "
                f"parameters, and this training {'sets' if wants else 'does not set'} "
                "average_decay; resume it as it began, or choose another folder"
            )
        loaded = self._load(step, _items(template))
        return TrainState(**loaded.pop("meta"), **loaded)

    def restore_params(self, template: Any, step: int | None = None) -> Any:
        """Restores parameters without the optimizer state; their average, where there is one.

        Args:
            template: parameters, or their `jax.ShapeDtypeStruct`s with shardings.
            step: step of the checkpoint; the best when not given.

        Returns:
            The parameters.

        Raises:
            CheckpointError: there is none, or it is damaged, or removed while it is read, or its
                shapes or dtypes are not the template's.
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
    """Checkpoints of a training without a folder: there are none, and saving does nothing."""

    latest_step = None

    def __init__(self) -> None:
        self._response = None

    def _close(self) -> None: ...

    def save(self, *_: Any, **others: Any) -> None:
        """Does nothing."""


def _items(state: TrainState) -> dict[str, Any]:
    """Contents of a checkpoint: Orbax can load each of its items without the others."""
    return {
        "params": state.params,
        "opt_state": state.opt_state,
        "meta": {
            "step": state.step, "bad_step": state.bad_step, "skipped_steps": state.skipped_steps,
        },
        **({} if state.average is None else {"average": state.average}),
    }  # fmt: skip


def _clear_the_way(folder: pathlib.Path) -> None:
    """Verifies all checkpoints, and renames those that are damaged, so that steps are free."""

    def clear() -> None:
        for draft in folder.glob(f"*{_DRAFT}"):  # of a killed process
            shutil.rmtree(draft, ignore_errors=True)
        CheckpointIndex(folder).set_damaged_aside()

    in_first_process("verify the checkpoints", clear)  # no collective, which could time out


class _OrbaxLog(logging.Filter):
    """Holds back what Orbax logs of failures, with tracebacks: they are raised as errors."""

    def __init__(self) -> None:
        super().__init__()
        self._num_open = 0  # folders of checkpoints that log
        logging.getLogger("absl").addFilter(self)

    def hold_back(self) -> None:
        """Counts a folder whose failures are raised."""
        self._num_open += 1

    def let_through(self) -> None:
        """Counts that it is closed: with none, the log of Orbax is as it was."""
        self._num_open -= 1

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged."""
        of_failure = record.levelno >= logging.WARNING and "orbax" in record.pathname
        return not (of_failure and self._num_open)


_orbax_log = _OrbaxLog()
