"""The training step and the evaluation step, as pure functions independent of devices."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from einops import rearrange

from jaxformer.errors import ConfigError
from jaxformer.training.losses import Batch, Combine, LossFunction
from jaxformer.training.state import TrainState

METRICS = frozenset({"loss", "weight", "grad_norm", "bad_step"})
"""Names of the metrics of every step."""

_RESERVED = METRICS | {"step", "learning_rate", "validation_loss"}  # records have these, too


def make_train_step(
    loss_function: LossFunction,
    optimizer: optax.GradientTransformation,
    *,
    seed: int | jax.Array,
    accumulate_steps: int = 1,
    average_decay: float | None = None,
    axis_name: str | None = None,
    combine: Combine | None = None,
) -> Callable[..., tuple[TrainState, dict[str, jax.Array]]]:
    """Creates the training step: gradients of a batch, and the update of the state.

    Losses, weights and gradients are summed over micro-batches and devices, and divided once at the
    end. So the result does not depend on how the batch is split or where its padding is.

    Args:
        loss_function: function of (params, batch, dropout_rng) that returns (loss_sum, weight_sum),
            or with a third result, more metrics by name: each as a sum, which is divided by the
            weights, too.
        optimizer: optax transformation.
        seed: seed of dropout; each step, micro-batch and device has its own dropout key.
        accumulate_steps: number of micro-batches per batch.
        average_decay: as in `LoopConfig`, for a state with an average.
        axis_name: mapped axis of the devices that share the batch; None for no collective.
        combine: function of (params, frozen) that returns the parameters of the loss; None if
            nothing is frozen.

    Returns:
        A function of (state, batch), or with combine (state, batch, frozen), that returns (state,
        metrics). Metrics are scalars: "loss" (mean, nats), "weight" (number of labels), "grad_norm"
        (before clipping), "bad_step" (as in the new state), and those of the loss. From the first
        step on whose loss or gradient is not finite, the state does not change.

    Raises:
        ConfigError: when the step is traced, the loss returns something else, or metrics of these
            names.

    Example:
        >>> step = make_train_step(
        ...     lambda params, batch, rng: (jnp.sum((params - batch["x"]) ** 2), jnp.float32(2)),
        ...     optax.sgd(0.1), seed=0,
        ... )
        >>> state = TrainState.create(jnp.float32(0), optax.sgd(0.1))
        >>> state, metrics = step(state, {"x": jnp.array([1.0, 3.0])})
        >>> float(metrics["loss"]), round(float(state.params), 3)
        (5.0, 0.4)
    """
    gradient = jax.value_and_grad(checked_loss(loss_function, combine), has_aux=True)

    def sums_of(
        params: Any, batch: Batch, rng: jax.Array, frozen: Any
    ) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]], Any]:
        """Loss, weight, metrics and gradient summed over the micro-batches of this device."""

        def micro_step(index: jax.Array | int, micro_batch: Batch) -> Any:
            micro_rng = jax.random.fold_in(rng, index)
            (loss, sums), grads = gradient(params, micro_batch, micro_rng, frozen)
            return loss, sums, grads

        if accumulate_steps == 1:
            return micro_step(0, batch)
        # A scan keeps the activations of only one micro-batch in memory. Each micro-batch takes
        # every a-th row, and so has rows on every device of a mesh.
        micro_batches = jax.tree.map(
            lambda x: rearrange(x, "(b a) ... -> a b ...", a=accumulate_steps), batch
        )
        first = jax.tree.map(lambda x: x[0], micro_batches)
        shapes = jax.eval_shape(micro_step, 0, first)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        if axis_name is not None:
            # The sums differ between devices, which the type of a scan's carry must say.
            zeros = jax.tree.map(lambda leaf: jax.lax.pcast(leaf, axis_name, to="varying"), zeros)

        def add(sums: Any, inputs: tuple[jax.Array, Batch]) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, sums, micro_step(*inputs)), None

        indices = jnp.arange(accumulate_steps)
        return jax.lax.scan(add, zeros, (indices, micro_batches))[0]

    def train_step(
        state: TrainState, batch: Batch, frozen: Any = None
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        device = 0 if axis_name is None else jax.lax.axis_index(axis_name)
        rng = dropout_rng(seed, state.step, device)
        sums = sums_of(state.params, batch, rng, frozen)
        if axis_name is not None:
            # After differentiation: a gradient through psum would count each device repeatedly.
            sums = jax.lax.psum(sums, axis_name)
        loss, (weight, more), grads = sums
        # A batch of only padding has a loss of 0, not NaN.
        weight = jnp.where(weight > 0, weight, 1)
        loss = loss / weight
        grads = jax.tree.map(functools.partial(_divided, weight=weight), grads)

        grad_norm = optax.tree.norm(grads)
        finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
        # The host reads metrics some steps later; until then a NaN must not spoil the parameters.
        goes_on = state.bad_step < 0
        with jax.named_scope("optimizer"):
            updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
        new = state._replace(step=state.step + 1, params=params, opt_state=opt_state)
        if average_decay is not None:
            # At first the plain mean so far, so that the initial parameters leave no trace.
            share = jnp.maximum(1 - average_decay, 1 / jnp.float32(new.step))
            # In this form, a parameter that never changes equals its average bit for bit.
            average = jax.tree.map(lambda x, y: x + share * (y - x), state.average, new.params)
            new = new._replace(average=average)
        new = jax.tree.map(
            lambda after, before: jnp.where(finite & goes_on, after, before), new, state
        )
        new = new._replace(bad_step=jnp.where(goes_on & ~finite, state.step, state.bad_step))
        metrics = {name: value / weight for name, value in more.items()}
        metrics |= {
            "loss": loss, "weight": weight, "grad_norm": grad_norm, "bad_step": new.bad_step,
        }  # fmt: skip
        return new, metrics

    return train_step


def _divided(grad: jax.Array, *, weight: jax.Array) -> jax.Array:
    """Quotient in the dtype of the gradient, which may not hold the weight."""
    wide = jnp.promote_types(grad.dtype, jnp.float32)
    return (grad.astype(wide) / weight.astype(wide)).astype(grad.dtype)


def make_eval_step(
    loss_function: LossFunction, *, axis_name: str | None = None, combine: Combine | None = None
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Creates the evaluation step, which sums the loss of a batch without dropout.

    Args:
        loss_function: as in `make_train_step`.
        axis_name: as in `make_train_step`.
        combine: as in `make_train_step`.

    Returns:
        A function of (params, batch), or with combine (params, batch, frozen), that returns
        (loss_sum, weight_sum) over all devices.
    """
    loss = checked_loss(loss_function, combine)

    def eval_step(params: Any, batch: Batch, frozen: Any = None) -> tuple[jax.Array, jax.Array]:
        total, (weight, _) = loss(params, batch, None, frozen)
        sums = total, weight
        return sums if axis_name is None else jax.lax.psum(sums, axis_name)

    return eval_step


def checked_loss(
    loss_function: LossFunction, combine: Combine | None
) -> Callable[..., tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]]:
    """The loss of (params, batch, dropout_rng, frozen), with (weight, metrics); checks both."""

    def checked(
        params: Any, batch: Batch, dropout_rng: jax.Array | None, frozen: Any
    ) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
        whole = params if combine is None else combine(params, frozen)
        sums = loss_function(whole, batch, dropout_rng)
        if isinstance(sums, tuple) and len(sums) in (2, 3):
            loss, weight, metrics = (*sums, {})[:3]
            is_named = isinstance(metrics, dict) and not _RESERVED.intersection(metrics)
            numbers = [loss, weight, *(metrics.values() if is_named else [None])]
            if all(jax.tree.leaves(x) == [x] and jnp.shape(x) == () for x in numbers):
                loss, weight, *values = map(jnp.asarray, numbers)
                if jnp.issubdtype(loss.dtype, jnp.floating):
                    return loss, (weight, dict(zip(metrics, values, strict=True)))
        got = jax.tree.map(lambda x: f"{jnp.result_type(x)}{list(jnp.shape(x))}", sums)
        raise ConfigError(
            "a loss must return two numbers, (loss_sum, weight_sum), the loss a float, and may add "
            "a dict of numbers, metrics with other names than "
            f"{', '.join(sorted(_RESERVED))}, got {got}; sum over the rows, and also return the "
            "divisor, such as the number of rows"
        )

    return checked


def dropout_rng(seed: int | jax.Array, step: jax.Array | int, device: jax.Array | int) -> jax.Array:
    """Dropout key of a step (counted from 0) and device; micro-batches fold in their index."""
    rng = jax.random.fold_in(jax.random.key(seed), step)
    return jax.random.fold_in(rng, device)
