"""The training state: everything a step depends on besides its batch."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn


class TrainState(NamedTuple):
    """Training state: step, parameters and optimizer state; a pytree of arrays.

    Args:
        step: int32, number of optimizer steps taken.
        params: parameters.
        opt_state: state of the optimizer.
        bad_step: int32, first step that was not finite (loss or gradient), or -1. From then on the
            state does not change; the host stops the run when it notices.
        average: moving average of the parameters, in float32 or better, if any.

    Example:
        >>> state = TrainState.create({"kernel": jnp.ones(3)}, optax.sgd(0.1))
        >>> int(state.step), int(state.bad_step)
        (0, -1)
    """

    step: jax.Array
    params: Any
    opt_state: optax.OptState
    bad_step: jax.Array
    average: Any = None

    @classmethod
    def create(
        cls, params: Any, optimizer: optax.GradientTransformation, *, averages: bool = False
    ) -> "TrainState":
        """State before the first step.

        Args:
            params: initial parameters.
            optimizer: optax transformation.
            averages: whether the state has an average of the parameters.
        """
        params, average = nn.unbox(params), None  # plain arrays, if `init` named their axes
        if averages:  # a copy, because steps donate both
            average = jax.tree.map(lambda x: jnp.array(x, average_dtype(x.dtype)), params)
        return cls(
            step=jnp.zeros((), jnp.int32),
            params=params,
            opt_state=optimizer.init(params),
            bad_step=jnp.full((), -1, jnp.int32),
            average=average,
        )

    @property
    def evaluated(self) -> Any:
        """Parameters for validation and use: the average if there is one."""
        if self.average is None:
            return self.params
        return jax.tree.map(lambda x, like: x.astype(like.dtype), self.average, self.params)


def average_dtype(dtype: Any) -> Any:
    """Dtype of a parameter's average; bfloat16 would round small updates away."""
    return jnp.promote_types(dtype, jnp.float32)
