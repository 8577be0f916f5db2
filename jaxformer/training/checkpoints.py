"""Checkpoints of a training run, with Orbax: asynchronous and atomic; keeps latest and best."""

import pathlib
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from jaxformer.errors import CheckpointError, ConfigError, StorageError
from jaxformer.training.state import TrainState

__all__ = ["Checkpoints", "require_usable_path"]

_METRIC = "validation_loss"


def require_usable_path(folder: pathlib.Path) -> None:
    """Raises CheckpointError where checkpoints in a folder could be written, but not read.

    Orbax takes these characters of a path for those of a glob pattern.
    """
    path = folder.absolute().as_posix()
    if found := sorted(set(path) & set("[]\\")):
        raise CheckpointError(
            f"the path of a run folder must not have {' or '.join(found)}, got {path}; choose "
            "another folder"
        )


class Checkpoints:
    """The checkpoints in one folder, each with "params", "opt_state" and "meta".

    Args:
        folder: folder of the checkpoints; created if missing.
        keep: how many of the latest to keep, beside the one with the lowest validation loss.
        read_only: do not delete leftovers of interrupted saves, since they may be the save in
            progress of another process.

    Raises:
        CheckpointError: the folder does not exist, with read_only; or checkpoints in it could not
            be read.

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
        policies = ocp.training.preservation_policies
        self._folder = folder
        if read_only and not folder.is_dir():
            raise CheckpointError(f"{folder} has no checkpoint; train the run first")
        require_usable_path(folder)
        self._checkpointer = ocp.training.Checkpointer(
            folder.absolute(),
            # When to save is the loop's decision; Orbax's default skips a save while one runs.
            save_decision_policy=ocp.training.save_decision_policies.FixedIntervalPolicy(1),
            preservation_policy=policies.AnyPreservationPolicy(
                [
                    policies.LatestN(keep),
                    policies.BestN(
                        get_metric_fn=lambda metrics: metrics[_METRIC],
                        reverse=True,
                        n=1,
                        keep_checkpoints_without_metrics=False,
                    ),
                ]
            ),
            cleanup_tmp_directories=not read_only,
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self._checkpointer.close()

    @property
    def latest_step(self) -> int | None:
        """Step of the newest checkpoint; None when there is none."""
        latest = self._checkpointer.latest
        return None if latest is None else int(latest.step)

    @property
    def best_step(self) -> int | None:
        """Step of the checkpoint with the lowest validation loss, or the newest without any."""
        scored = [c for c in self._checkpointer.checkpoints if c.metrics]
        if not scored:
            return self.latest_step
        return int(min(scored, key=lambda checkpoint: checkpoint.metrics[_METRIC]).step)

    def step_to_resume(self, steps: int) -> int:
        """Step that a training of `steps` steps goes on from: that of the newest checkpoint, or 0.

        Raises:
            ConfigError: the newest checkpoint is of a later step.
        """
        trained = self.latest_step or 0
        if trained > steps:
            raise ConfigError(
                f"{self._folder.parent} has been trained to step {trained} already, got "
                f"steps={steps}; set it, in a config training.steps, to {trained} or more, or "
                "choose another folder"
            )
        return trained

    def require_step(self, step: int | None = None) -> int:
        """Step of a checkpoint that is there: the best when not given.

        Raises:
            CheckpointError: there is none, or none of this step.
        """
        steps = [int(checkpoint.step) for checkpoint in self._checkpointer.checkpoints]
        chosen = self.best_step if step is None else step
        if chosen is None:
            raise CheckpointError(f"{self._folder} has no checkpoint; train the run first")
        if chosen not in steps:
            raise CheckpointError(
                f"{self._folder} has no checkpoint of step {chosen}, only {steps}"
            )
        return chosen

    def save(self, state: TrainState, validation_loss: float | None = None) -> None:
        """Starts saving a state in the background, after any earlier save.

        A step that is already saved is not saved again, unless it was without a validation loss
        and now has one.

        Args:
            state: the state; its step names the checkpoint.
            validation_loss: nats per token, by which the best checkpoint is chosen.
        """
        step = int(state.step)
        saved = {int(one.step): one.metrics for one in self._checkpointer.checkpoints}
        if step in saved and (validation_loss is None or saved[step]):
            return
        self._checkpointer.save_checkpointables_async(
            step,
            _items(state),
            overwrite=step in saved,
            metrics=None if validation_loss is None else {_METRIC: validation_loss},
        )

    def raise_if_failed(self) -> None:
        """Raises StorageError if a save in the background has failed."""
        try:
            self._checkpointer._manager.check_for_errors()
        except Exception as error:  # Orbax and TensorStore raise many kinds
            raise StorageError(f"{self._folder} cannot be written: {error}") from error

    def wait(self) -> None:
        """Waits until the latest save is on disk."""
        self._checkpointer.wait()

    def restore(self, template: TrainState) -> TrainState:
        """Restores the newest state.

        Args:
            template: state of the same structure, placed where the restored one should be.

        Returns:
            The state.

        Raises:
            CheckpointError: there is none, or its shapes or dtypes are not the template's.
        """
        loaded = self._load(self.require_step(self.latest_step), _items(template))
        return TrainState(**loaded.pop("meta"), **loaded)

    def restore_params(self, template: Any, step: int | None = None) -> Any:
        """Restores parameters without the optimizer state.

        Args:
            template: parameters, or their `jax.ShapeDtypeStruct`s with shardings.
            step: step of the checkpoint; the best when not given.

        Returns:
            The parameters.

        Raises:
            CheckpointError: there is none, or its shapes or dtypes are not the template's.
        """
        return self._load(self.require_step(step), {"params": template})["params"]

    def _load(self, step: int, items: dict[str, Any]) -> dict[str, Any]:
        where = f"{self._folder / str(step)}"
        try:
            stored = self._checkpointer.checkpointables_metadata(step).metadata
            trees = {name: stored[name] for name in items}
        except Exception as error:  # Orbax and TensorStore raise many kinds
            raise _damaged(where, error) from error
        for name, template in items.items():
            if not jax.tree.leaves(trees[name]):
                raise _damaged(where, f"{name} is empty")
            _check_same_shapes(f"{where}, {name}", trees[name], template)
        try:
            return self._checkpointer.load_checkpointables(step, jax.tree.map(_abstract, items))
        except Exception as error:
            raise _damaged(where, error) from error


def _items(state: TrainState) -> dict[str, Any]:
    """Contents of a checkpoint: Orbax can load each of its items without the others."""
    return {
        "params": state.params,
        "opt_state": state.opt_state,
        "meta": {"step": state.step, "bad_step": state.bad_step},
    }


def _damaged(where: str, reason: object) -> CheckpointError:
    first_line = (str(reason).splitlines() or [type(reason).__name__])[0][:200]
    return CheckpointError(
        f"{where} is damaged ({first_line}); remove that folder to use the checkpoint before it"
    )


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def _check_same_shapes(where: str, stored: Any, template: Any) -> None:
    """Compares shapes and dtypes, because Orbax casts and reshapes silently."""

    def named(tree: Any) -> dict[str, tuple[tuple[int, ...], str]]:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        names = (jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves)
        return {
            name: (tuple(leaf.shape), str(leaf.dtype))
            for name, (_, leaf) in zip(names, leaves, strict=True)
        }

    old, new = named(stored), named(template)
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            raise CheckpointError(
                f"{where}: {name} is {old.get(name, 'missing')}, the model expects "
                f"{new.get(name, 'nothing')}; it belongs to another configuration"
            )
