"""Diagnosis of a non-finite loss or gradient: which rows and which parameter cause it."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.training.losses import Combine, LossFunction
from jaxformer.training.parallel import Runner
from jaxformer.training.step import dropout_rng, two_sums, with_frozen

__all__ = ["diagnose"]

_MOST_ROWS = 8  # that a message names


def diagnose(
    loss_function: LossFunction,
    params: Any,
    batch: Any,
    *,
    seed: int,
    step: int,
    runner: Runner,
    accumulate_steps: int,
    frozen: Any = None,
    combine: Combine | None = None,
) -> str:
    """Recomputes a step whose loss or gradient was not finite, row by row.

    Compiles one program, the gradient of one row. Each row gets the dropout key of its micro-batch
    and device. Its dropout still differs from the step's, because its shape does.

    Args:
        loss_function: as in `make_train_step`.
        params: parameters before the step, on one device.
        batch: this host's rows of the step's batch.
        seed: seed of dropout.
        step: number of steps taken before.
        runner: runner of the step.
        accumulate_steps: micro-batches of the step.
        frozen: frozen parameters, on one device, if any.
        combine: as in `make_train_step`.

    Returns:
        Text for a message: the rows (as numbered in the batch of all hosts) that give a non-finite
        loss or gradient alone, and the first parameter affected.

    Example:
        >>> from jaxformer.training import SingleRunner
        >>> def loss(params, batch, rng):
        ...     return (params["scale"] * batch["x"]).sum(), jnp.float32(1)
        >>> batch = {"x": np.float32([1, np.nan, 3])}
        >>> diagnose(
        ...     loss, {"scale": jnp.float32(1)}, batch, seed=0, step=7, runner=SingleRunner(),
        ...     accumulate_steps=1,
        ... )
        'alone, row 1 of the 3 of its batch does this; the first gradient affected is that of scale'
    """
    names = _leaf_names(params)
    batch = jax.tree.map(np.asarray, batch)
    num_rows = jax.tree.leaves(batch)[0].shape[0]
    add_row = _row_gradient(loss_function, seed, step, combine)
    total = jax.jit(lambda tree: jax.tree.map(jnp.zeros_like, tree))((np.float32(0), params))
    bad_rows: list[int] = []
    bad_leaves: set[int] = set()
    for row in range(num_rows):
        one = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], batch)
        place = _place(row, num_rows, runner, accumulate_steps)
        total, loss_is_finite, leaf_is_finite = add_row(total, params, one, *place, frozen)
        leaves = np.flatnonzero(~np.asarray(leaf_is_finite))
        if leaves.size or not loss_is_finite:
            bad_rows.append(runner.host.index * num_rows + row)
            bad_leaves.update(leaves.tolist())
        if len(bad_rows) > _MOST_ROWS:
            break
    rows = _rows_text(bad_rows, num_rows, runner)
    both = (names + _leaf_names(frozen), jax.tree.leaves((params, frozen)))
    parameter = _first(both[0], [_is_finite(leaf) for leaf in both[1]])
    if parameter is not None:
        return f"{rows}; the first parameter that is not finite itself is {parameter}"
    if bad_rows:
        leaf = None if not bad_leaves else names[min(bad_leaves)]
        return f"{rows}; {_gradient_text(leaf)}"
    grads = [np.asarray(leaf) for leaf in jax.tree.leaves(total[1])]
    leaf = _first(names, [_is_finite(grad) for grad in grads])
    if leaf is None:  # so only the norm of all gradients overflows
        largest = names[int(np.argmax([np.abs(grad).max(initial=0) for grad in grads]))]
        return f"{rows}; every gradient is finite, the largest that of {largest}"
    return f"{rows}; {_gradient_text(leaf)}"


def _row_gradient(
    loss_function: LossFunction, seed: int, step: int, combine: Combine | None
) -> Callable[..., tuple[Any, jax.Array, jax.Array]]:
    """Compiled function that adds a row's loss and gradient to sums, and checks them."""
    gradient = jax.value_and_grad(with_frozen(two_sums(loss_function), combine), has_aux=True)

    # The sums are donated, so that this needs no more memory than a step.
    @functools.partial(jax.jit, donate_argnums=0)
    def add_row(
        total: Any, params: Any, row: Any, device: jax.Array | None, micro_batch: jax.Array,
        frozen: Any,
    ) -> tuple[Any, jax.Array, jax.Array]:  # fmt: skip
        rng = jax.random.fold_in(dropout_rng(seed, step, device), micro_batch)
        (loss, _), grads = gradient(params, row, rng, frozen)
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(grads)])
        total = jax.tree.map(lambda x, y: x + y.astype(x.dtype), total, (loss, grads))
        return total, jnp.isfinite(loss), finite

    return add_row


def _place(
    row: int, num_rows: int, runner: Runner, accumulate_steps: int
) -> tuple[np.int32 | None, np.int32]:
    """Device index (None without a mapped axis) and micro-batch of a row in the step."""
    per_device = num_rows // runner.num_local_shards
    micro_batch = np.int32(row % per_device % accumulate_steps)
    if runner.axis_name is None:
        return None, micro_batch
    first = runner.host.index * runner.num_local_shards
    return np.int32(first + row // per_device), micro_batch


def _rows_text(bad: Sequence[int], num_rows: int, runner: Runner) -> str:
    """Names the bad rows, for a message."""
    host = "" if runner.host.count == 1 else f" on host {runner.host.index}"
    batch = f"of the {num_rows} of its batch{host}"
    if not bad:
        return f"no row alone {batch} does this"
    if len(bad) == 1:
        return f"alone, row {bad[0]} {batch} does this"
    named = ", ".join(map(str, bad[:_MOST_ROWS]))
    more = " and more" if len(bad) > _MOST_ROWS else ""
    return f"alone, each of the rows {named}{more} {batch} does this"


def _gradient_text(leaf: str | None) -> str:
    if leaf is None:
        return "every gradient is finite"
    return f"the first gradient affected is that of {leaf}"


def _leaf_names(params: Any) -> list[str]:
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path in paths]
    return [name or "the parameters" for name in names]


def _first(names: Sequence[str], finite: Sequence[bool]) -> str | None:
    """Name of the first leaf that is not finite, if any."""
    return next((name for name, ok in zip(names, finite, strict=True) if not ok), None)


def _is_finite(leaf: Any) -> bool:
    return bool(np.isfinite(np.asarray(leaf)).all())
