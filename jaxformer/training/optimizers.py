"""Optimizers and learning-rate schedules, from optax."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxformer.config import (
    AdamWConfig,
    LionConfig,
    OptimizerConfig,
    ScheduleConfig,
    SgdConfig,
)
from jaxformer.modules.embedding import FROZEN_EMBEDDING

__all__ = ["decay_mask", "make_optimizer", "make_schedule"]


def make_schedule(peak: float, config: ScheduleConfig) -> optax.Schedule:
    """Learning-rate schedule of a config.

    Args:
        peak: learning rate after the warmup.
        config: warmup and decay.

    Returns:
        A function of the step to the learning rate, which is constant after decay_steps.

    References:
        Vaswani et al., "Attention Is All You Need", 2017, section 5.3 ("noam").

    Example:
        >>> config = ScheduleConfig(name="linear", warmup_steps=10, decay_steps=110)
        >>> schedule = make_schedule(1.0, config)
        >>> [round(float(schedule(step)), 2) for step in (0, 5, 10, 60, 110, 200)]
        [0.0, 0.5, 1.0, 0.55, 0.1, 0.1]
    """
    if config.name == "noam":
        return functools.partial(_noam, peak=peak, warmup_steps=config.warmup_steps)
    final = peak * config.final_scale
    after_warmup = optax.constant_schedule(peak)
    if config.decay_steps is not None:
        length = config.decay_steps - config.warmup_steps
        if config.name == "cosine":
            after_warmup = optax.cosine_decay_schedule(peak, length, alpha=config.final_scale)
        else:
            after_warmup = optax.linear_schedule(peak, final, length)
    if not config.warmup_steps:
        return after_warmup
    warmup = optax.linear_schedule(0.0, peak, config.warmup_steps)
    return optax.join_schedules([warmup, after_warmup], [config.warmup_steps])


def _noam(step: jax.Array, *, peak: float, warmup_steps: int) -> jax.Array:
    count = jnp.asarray(step, jnp.float32) + 1  # the paper's first step is 1
    return peak * jnp.minimum(count / warmup_steps, jnp.sqrt(warmup_steps / count))


def decay_mask(params: Any) -> Any:
    """Mask of the parameters with weight decay: kernels, and embeddings that are not frozen.

    It goes by name and not by rank, because the biases and scales of a stack are `[L, D]`.

    Args:
        params: nested dict of parameters.

    Returns:
        The same structure with a bool for every leaf.

    Example:
        >>> decay_mask({"norm": {"scale": 1.0}, "attention": {"query_kernel": 1.0}})
        {'attention': {'query_kernel': True}, 'norm': {'scale': False}}
    """

    def decays(path: tuple[Any, ...], _: Any) -> bool:
        name = str(path[-1].key)
        return name.endswith(("kernel", "embedding")) and name != FROZEN_EMBEDDING

    return jax.tree_util.tree_map_with_path(decays, params)


def make_optimizer(
    config: OptimizerConfig, schedule: ScheduleConfig
) -> optax.GradientTransformation:
    """Optimizer of a config, after clipping by the global norm.

    Args:
        config: config of the optimizer, such as `AdamWConfig`.
        schedule: config of the learning rate over time.

    Returns:
        An optax transformation; weight decay is masked by `decay_mask`.

    Example:
        >>> optimizer = make_optimizer(LionConfig(learning_rate=1e-4), ScheduleConfig())
        >>> _ = optimizer.init({"kernel": jax.numpy.ones(3)})
    """
    rate = make_schedule(config.learning_rate, schedule)
    optimizer = _OPTIMIZERS[type(config)](config, rate)
    if config.clip_norm == 0:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), optimizer)


def _adamw(config: AdamWConfig, rate: optax.Schedule) -> optax.GradientTransformation:
    return optax.adamw(
        rate, b1=config.beta1, b2=config.beta2, eps=config.eps, weight_decay=config.weight_decay,
        mask=decay_mask,
    )  # fmt: skip


def _sgd(config: SgdConfig, rate: optax.Schedule) -> optax.GradientTransformation:
    # None, and not 0, so that without momentum no copy of the gradients is kept.
    return optax.sgd(rate, momentum=config.momentum or None, nesterov=config.nesterov)


def _lion(config: LionConfig, rate: optax.Schedule) -> optax.GradientTransformation:
    return optax.lion(
        rate, b1=config.beta1, b2=config.beta2, weight_decay=config.weight_decay, mask=decay_mask
    )


_OPTIMIZERS: dict[type, Callable[[Any, optax.Schedule], optax.GradientTransformation]] = {
    AdamWConfig: _adamw,
    SgdConfig: _sgd,
    LionConfig: _lion,
}
