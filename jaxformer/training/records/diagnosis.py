"""Diagnosis of a non-finite loss or gradient: which rows and which parameter cause it."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
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
    print_line: Callable[[str], None]

    def __call__(self, step: int, params: Any) -> str:
        """Origin of the numbers of a step, counted from 0, as far as all hosts can find it."""
        self.print_line(
            f"step {step + 1}: loss or gradient is not finite; computing it again, row by row"
        )
        try:
            text = self.of_rows(step, params)
        except Exception as error:  # say, the loss needs several rows; the error must still be told
            text = f"its rows could not be computed one by one ({first_line(error)[:200]})"
        if self.runner.host.count > 1:  # each knows only its own rows
            text = "; ".join(dict.fromkeys(gather_texts(text)))
        return text

    def of_rows(self, step: int, params: Any) -> str:
        """This host's rows that alone give numbers that are not finite, and the first parameter."""
        # One program, the gradient of one row. A row gets the dropout key of its micro-batch and
        # device; its dropout still differs from the step's, because its shape does.
        params, frozen = map(self.runner.on_one_host, (params, self.trial.frozen))
        names = _leaf_names(params)
        batch = jax.tree.map(np.asarray, self.batch_at(step))
        num_rows = jax.tree.leaves(batch)[0].shape[0]
        add_row = self._row_gradient(step)
        total = jax.jit(lambda tree: jax.tree.map(jnp.zeros_like, tree))((np.float32(0), params))
        bad_rows: list[int] = []
        bad_leaves: set[int] = set()
        for row in range(num_rows):
            one = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], batch)
            place = self._place(row, num_rows)
            total, loss_is_finite, leaf_is_finite = add_row(total, params, one, *place, frozen)
            leaves = np.flatnonzero(~np.asarray(leaf_is_finite))
            if leaves.size or not loss_is_finite:
                bad_rows.append(self.runner.host.index * num_rows + row)
                bad_leaves.update(leaves.tolist())
            if len(bad_rows) > _MOST_ROWS:
                break
        rows = self._rows_text(bad_rows, num_rows)
        parameter = _first_bad(names + _leaf_names(frozen), (params, frozen))
        if parameter is not None:
            return f"{rows}; the first parameter that is not finite itself is {parameter}"
        if bad_rows:
            leaf = names[min(bad_leaves)] if bad_leaves else None
        elif (leaf := _first_bad(names, total[1])) is None:
            # So only the norm of all gradients overflows.
            largest = [
                np.abs(np.asarray(grad)).max(initial=0) for grad in jax.tree.leaves(total[1])
            ]
            name = names[int(np.argmax(largest))]
            return f"{rows}; every gradient is finite, the largest that of {name}"
        if leaf is None:
            return f"{rows}; every gradient is finite"
        return f"{rows}; the first gradient affected is that of {leaf}"

    def _row_gradient(self, step: int) -> Callable[..., tuple[Any, jax.Array, jax.Array]]:
        """Compiled function that adds a row's loss and gradient to sums, and checks them."""
        loss = checked_loss(self.trial.loss, self.trial.combine)
        gradient = jax.value_and_grad(loss, has_aux=True)

        # The sums are donated, so that this needs no more memory than a step.
        @functools.partial(jax.jit, donate_argnums=0)
        def add_row(
            total: Any, params: Any, row: Any, device: jax.Array, micro_batch: jax.Array,
            frozen: Any,
        ) -> tuple[Any, jax.Array, jax.Array]:  # fmt: skip
            rng = jax.random.fold_in(dropout_rng(self.seed, step, device), micro_batch)
            (loss, _), grads = gradient(params, row, rng, frozen)
            finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(grads)])
            total = jax.tree.map(lambda x, y: x + y.astype(x.dtype), total, (loss, grads))
            return total, jnp.isfinite(loss), finite

        return add_row

    def _place(self, row: int, num_rows: int) -> tuple[np.int32, np.int32]:
        """Device index (0 without a mapped axis) and micro-batch of a row in the step."""
        runner = self.runner
        device, row = divmod(row, num_rows // runner.num_local_shards)
        if runner.axis_name is None:
            device = 0
        else:
            device += runner.host.index * runner.num_local_shards
        return np.int32(device), np.int32(row % self.accumulate_steps)

    def _rows_text(self, bad: Sequence[int], num_rows: int) -> str:
        """Names the bad rows, for a message."""
        host = self.runner.host
        batch = (
            f"of the {num_rows} of its batch{'' if host.count == 1 else f' on host {host.index}'}"
        )
        if not bad:
            return f"no row alone {batch} does this"
        if len(bad) == 1:
            return f"alone, row {bad[0]} {batch} does this"
        named = ", ".join(map(str, bad[:_MOST_ROWS])) + " and more" * (len(bad) > _MOST_ROWS)
        return f"alone, each of the rows {named} {batch} does this"


def _leaf_names(params: Any) -> list[str]:
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path in paths]
    return [name or "the parameters" for name in names]


def _first_bad(names: Sequence[str], tree: Any) -> str | None:
    """Name of the first leaf that is not finite, if any."""
    named = zip(names, jax.tree.leaves(tree), strict=True)
    return next((name for name, leaf in named if not np.isfinite(np.asarray(leaf)).all()), None)
