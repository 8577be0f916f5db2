"""The state of a training run: everything that the next step depends on, besides its batch."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxformer.errors import ConfigError

__all__ = ["TrainState", "check_optimizer"]


class TrainState(NamedTuple):
    """A pytree of arrays.

    Args:
        step: int32, optimizer steps taken.
        params: the model's parameters.
        opt_state: the optimizer's.
        bad_step: int32, the first step whose loss or gradient was not finite, or -1. From then on
            steps change nothing, until the host has read it.

    Example:
        >>> state = TrainState.create({"kernel": jnp.ones(3)}, optax.sgd(0.1))
        >>> int(state.step), int(state.bad_step)
        (0, -1)
    """

    step: jax.Array
    params: Any
    opt_state: optax.OptState
    bad_step: jax.Array

    @classmethod
    def create(cls, params: Any, optimizer: optax.GradientTransformation) -> "TrainState":
        """Makes the state before the first step.

        Raises:
            ConfigError: the optimizer is not an optax transformation.
        """
        check_optimizer(optimizer)
        return cls(
            step=jnp.zeros((), jnp.int32),
            params=params,
            opt_state=optimizer.init(params),
            bad_step=jnp.full((), -1, jnp.int32),
        )


def check_optimizer(optimizer: Any) -> None:
    """Raises ConfigError for what is not an optax transformation."""
    if not all(callable(getattr(optimizer, name, None)) for name in ("init", "update")):
        raise ConfigError(
            "optimizer must be an optax transformation, with init and update, got "
            f"{getattr(optimizer, '__name__', repr(optimizer))}; for example optax.adam(1e-3)"
        )
