"""Diagnosis of a non-finite loss or gradient: which rows and which parameter cause it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.storage import first_line
from jaxformer.training.parallel import Runner, gather_texts
from jaxformer.training.step import checked_loss, dropout_rng
from jaxformer.training.trial import Trial

_MOST_ROWS = 8  # that a message names


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Finds the origin of numbers that are not finite, by computing a step again, row by row."""

    trial: Trial  # its frozen parameters as the runner placed them
    seed: int
    runner: Runner
    accumulate_steps: int
    batch_at: Callable[[int], Any]  # this host's batch of a step, counted from 0

    def __call__(self, step: int, params: Any) -> str:
        """Origin of the numbers of a step, counted from 0, as far as all hosts can find it."""
        try:
            text = self.of_rows(step, params)
        except Exception as error:  # say, the loss needs several rows; the error must still be told
            text = f"its rows could not be computed one by one ({first_line(error)[:200]})"
        if self.runner.host.count > 1:  # each knows only its own rows
            text = "; ".join(dict.fromkeys(gather_texts(text)))
        return text

    def of_rows(self, step: int, params: Any) -> str:
        """This host's rows that alone give numbers that are not finite, and the first parameter."""
        params, frozen = map(self.runner.on_one_host, (params, self.trial.frozen))
        named = jax.tree_util.tree_leaves_with_path(params)
        for path, leaf in [*named, *jax.tree_util.tree_leaves_with_path(frozen)]:
            if not np.isfinite(np.asarray(leaf)).all():
                return f"first bad parameter: {_name(path)}"
        batch = jax.tree.map(np.asarray, self.batch_at(step))
        num_rows = jax.tree.leaves(batch)[0].shape[0]
        loss = checked_loss(self.trial.loss, self.trial.combine)

        @jax.jit
        def are_finite(params: Any, row: Any, frozen: Any, place: tuple[Any, Any]) -> jax.Array:
            device, micro_batch = place  # whose dropout key the row has
            rng = jax.random.fold_in(dropout_rng(self.seed, step, device), micro_batch)
            (value, _), grads = jax.value_and_grad(loss, has_aux=True)(params, row, rng, frozen)
            return jnp.stack([jnp.isfinite(x).all() for x in (value, *jax.tree.leaves(grads))])

        bad_rows: list[int] = []
        bad_leaves: set[int] = set()
        for row in range(num_rows):
            content = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], batch)
            finite = np.asarray(are_finite(params, content, frozen, self._place(row, num_rows)))
            if not finite.all():
                bad_rows.append(self.runner.host.index * num_rows + row)
                bad_leaves.update(np.flatnonzero(~finite[1:]).tolist())
            if len(bad_rows) > _MOST_ROWS:
                break
        rows = ", ".join(map(str, bad_rows[:_MOST_ROWS])) or "none alone"
        more = " and more" * (len(bad_rows) > _MOST_ROWS)
        leaf = _name(named[min(bad_leaves)][0]) if bad_leaves else "none"
        return f"bad rows of the {num_rows} of its batch: {rows}{more}; first bad gradient: {leaf}"

    def _place(self, row: int, num_rows: int) -> tuple[np.int32, np.int32]:
        """Device index (0 without a mapped axis) and micro-batch of a row in the step."""
        runner = self.runner
        device, row = divmod(row, num_rows // runner.num_local_shards)
        device += runner.host.index * runner.num_local_shards
        has_axis = runner.axis_name is not None
        return np.int32(device if has_axis else 0), np.int32(row % self.accumulate_steps)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/") or "the parameters"
