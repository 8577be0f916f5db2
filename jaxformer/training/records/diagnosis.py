"""Diagnosis of a non-finite loss or gradient: which rows and which parameter cause it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import first_line
from jaxformer.training.data import batch_at
from jaxformer.training.parallel import Runner, gather_texts
from jaxformer.training.step import checked_loss, dropout_rng
from jaxformer.training.trial import RunSpec

_MOST_ROWS = 8  # that a message names


def diagnosis(spec: RunSpec, runner: Runner, step: int, params: Any) -> str:
    """Origin of the numbers of a step, counted from 0, as far as all hosts can find it."""
    try:
        text = bad_rows(spec, runner, step, params)
    except Exception as error:  # say, the loss needs several rows; the error must still be told
        text = f"its rows could not be computed one by one ({first_line(error)[:200]})"
    if runner.host.count > 1:  # each knows only its own rows
        text = "; ".join(dict.fromkeys(gather_texts(text)))
    return text


def bad_rows(spec: RunSpec, runner: Runner, step: int, params: Any) -> str:
    """This host's rows that alone are not finite, and the first such parameter."""
    trial, seed = spec.recipe.trial, spec.recipe.seed
    params, frozen = map(runner.on_one_host, (params, trial.frozen))
    named = jax.tree_util.tree_leaves_with_path(params)
    for path, leaf in [*named, *jax.tree_util.tree_leaves_with_path(frozen)]:
        if not np.isfinite(np.asarray(leaf)).all():
            return f"first bad parameter: {_name(path)}"
    accumulate_steps, shards = spec.loop.accumulate_steps, runner.num_local_shards
    batch = batch_at(spec.data.batches, step, shards * accumulate_steps)
    batch = jax.tree.map(np.asarray, batch)
    num_rows = jax.tree.leaves(batch)[0].shape[0]
    loss = checked_loss(trial.loss, trial.combine)

    @jax.jit
    def are_finite(params: Any, row: Any, frozen: Any, place: tuple[Any, Any]) -> jax.Array:
        device, micro_batch = place  # whose dropout key the row has
        rng = jax.random.fold_in(dropout_rng(seed, step, device), micro_batch)
        (value, _), grads = jax.value_and_grad(loss, has_aux=True)(params, row, rng, frozen)
        return jnp.stack([jnp.isfinite(x).all() for x in (value, *jax.tree.leaves(grads))])

    rows: list[int] = []
    leaves: set[int] = set()
    for row in range(num_rows):
        content = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], batch)
        shard, place = divmod(row, num_rows // shards)
        device = runner.host.index * shards + shard if runner.axis_name is not None else 0
        keys = np.int32(device), np.int32(place % accumulate_steps)
        finite = np.asarray(are_finite(params, content, frozen, keys))
        if not finite.all():
            rows.append(runner.host.index * num_rows + row)
            leaves.update(np.flatnonzero(~finite[1:]).tolist())
        if len(rows) > _MOST_ROWS:
            break
    numbers = ", ".join(map(str, rows[:_MOST_ROWS])) or "none alone"
    more = " and more" * (len(rows) > _MOST_ROWS)
    leaf = _name(named[min(leaves)][0]) if leaves else "none"
    return f"bad rows of the {num_rows} of its batch: {numbers}{more}; first bad gradient: {leaf}"


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/") or "the parameters"
