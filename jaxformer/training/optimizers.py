"""Optimizers and learning-rate schedules, from optax."""

import functools
from typing import Any, assert_never

import jax
import jax.numpy as jnp
import optax
from optax import GradientTransformation, Schedule

from jaxformer.config import (
    AdafactorConfig,
    AdamWConfig,
    LionConfig,
    MuonConfig,
    OptimizerConfig,
    ScheduleConfig,
    SgdConfig,
)
from jaxformer.errors import ConfigError


def make_schedule(peak: float, config: ScheduleConfig) -> Schedule:
    """Learning-rate schedule of a config.

    Args:
        peak: learning rate after the warmup.
        config: warmup and decay; needs decay_steps unless its name is "constant" or "noam".

    Returns:
        A function of the step that returns the learning rate, constant after decay_steps.

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
    if config.name != "constant":
        if config.decay_steps is None:
            raise ConfigError(f"a {config.name} schedule needs decay_steps, got none; set them")
        stable = 0 if config.decay_start is None else config.decay_start - config.warmup_steps
        length = config.decay_steps - config.warmup_steps - stable
        if config.name == "cosine":
            after_warmup = optax.cosine_decay_schedule(peak, length, alpha=config.final_scale)
        else:
            after_warmup = optax.linear_schedule(peak, final, length, stable)
    if not config.warmup_steps:
        return after_warmup
    warmup = optax.linear_schedule(0.0, peak, config.warmup_steps)
    return optax.join_schedules([warmup, after_warmup], [config.warmup_steps])


def _noam(step: jax.Array, *, peak: float, warmup_steps: int) -> jax.Array:
    count = jnp.asarray(step, jnp.float32) + 1  # the paper counts steps from 1
    return peak * jnp.minimum(count / warmup_steps, jnp.sqrt(warmup_steps / count))


def decay_mask(params: Any) -> Any:
    """Mask of the parameters with weight decay: kernels, and embeddings that are not frozen.

    The LoRA matrices of a kernel decay, too. The mask depends on names, not on the number of axes,
    because biases and scales of a stack are `[L, D]`.

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
        return _is_kernel(path) or name.endswith("embedding")

    return jax.tree_util.tree_map_with_path(decays, params)


def _is_kernel(path: tuple[Any, ...]) -> bool:
    """Whether a parameter is a kernel, or a LoRA matrix of one."""
    names = [str(key.key) for key in path]
    is_low_rank = len(names) > 1 and names[-2].endswith("kernel") and names[-1] in ("down", "up")
    return names[-1].endswith("kernel") or is_low_rank


def mup_factors(shapes: Any, base: Any) -> Any:
    """Factors of the learning rates with μP: 1 / r for kernels whose input is r times as wide.

    Args:
        shapes: parameters of a model, or their shapes.
        base: those of its base model, `ModelConfig.base`.

    Returns:
        The same structure with a float for each parameter.

    References:
        Yang et al., "Tensor Programs V", 2022, table 8.

    Example:
        >>> wide = {"up_kernel": jnp.ones((8, 32)), "scale": jnp.ones(8)}
        >>> narrow = {"up_kernel": jnp.ones((2, 8)), "scale": jnp.ones(2)}
        >>> mup_factors(wide, narrow)
        {'scale': 1.0, 'up_kernel': 0.25}
    """

    def factor(path: tuple[Any, ...], leaf: Any, base: Any) -> float:
        return base.shape[-2] / leaf.shape[-2] if _is_kernel(path) else 1.0

    return jax.tree_util.tree_map_with_path(factor, shapes, base)


def scale_by_factors(factors: Any) -> GradientTransformation:
    """Optax transformation that multiplies each update by its factor.

    Args:
        factors: nested dict with the structure of the parameters; floats, or arrays that broadcast.

    Example:
        >>> optimizer = optax.chain(optax.sgd(1.0), scale_by_factors({"w": 0.5}))
        >>> params = {"w": jnp.ones(2)}
        >>> updates, _ = optimizer.update({"w": jnp.ones(2)}, optimizer.init(params))
        >>> updates["w"].tolist()
        [-0.5, -0.5]
    """
    return optax.stateless(
        lambda updates, _: jax.tree.map(lambda update, factor: factor * update, updates, factors)
    )


def make_optimizer(
    config: OptimizerConfig, schedule: ScheduleConfig, factors: Any = None
) -> GradientTransformation:
    """Optimizer of a config, preceded by clipping to the global norm.

    Args:
        config: config of the optimizer, such as `AdamWConfig`.
        schedule: config of the learning-rate schedule.
        factors: factor of the learning rate for each parameter, such as `mup_factors`; for AdamW
            and Lion. It does not change the weight decay. None for 1.

    Returns:
        An optax transformation; `decay_mask` chooses the parameters with weight decay.

    Raises:
        ConfigError: there are factors for another optimizer.

    Example:
        >>> schedule = ScheduleConfig(name="constant", warmup_steps=10)
        >>> optimizer = make_optimizer(LionConfig(learning_rate=1e-4), schedule)
        >>> _ = optimizer.init({"kernel": jax.numpy.ones(3)})
    """
    rate = make_schedule(config.learning_rate, schedule)
    if factors is not None and not isinstance(config, AdamWConfig | LionConfig):
        raise ConfigError(
            "factors of the learning rate, as for model.mup, need the optimizer 'adamw' or "
            f"'lion', got {config.name!r}; choose one of these"
        )
    match config:
        case AdamWConfig():
            scaled = optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.eps)
            optimizer = _with_decay(scaled, config, rate, factors)
        case LionConfig():
            scaled = optax.scale_by_lion(b1=config.beta1, b2=config.beta2)
            optimizer = _with_decay(scaled, config, rate, factors)
        case SgdConfig():
            # None instead of 0: without momentum, the state keeps no copy of the gradients.
            optimizer = optax.sgd(rate, momentum=config.momentum or None, nesterov=config.nesterov)
        case AdafactorConfig():
            optimizer = optax.adafactor(
                rate, multiply_by_parameter_scale=config.relative_steps,
                decay_rate=config.decay_rate, momentum=config.momentum or None,
                clipping_threshold=config.clip_threshold,
                weight_decay_rate=config.weight_decay or None, weight_decay_mask=decay_mask,
            )  # fmt: skip
        case MuonConfig():
            optimizer = optax.contrib.muon(
                rate, beta=config.beta, nesterov=config.nesterov,
                consistent_rms=config.update_rms or None, weight_decay=config.weight_decay,
                adam_b1=config.adam_beta1, adam_b2=config.adam_beta2,
                muon_weight_dimension_numbers=_matrices,
            )  # fmt: skip
        case _:
            assert_never(config)
    if config.clip_norm == 0:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), optimizer)


def _with_decay(
    scaled: GradientTransformation, config: AdamWConfig | LionConfig, rate: Schedule, factors: Any
) -> GradientTransformation:
    """Adds decoupled weight decay, and multiplies by the learning rate."""
    steps = [scaled] if factors is None else [scaled, scale_by_factors(factors)]
    decay = optax.add_decayed_weights(config.weight_decay, decay_mask)
    return optax.chain(*steps, decay, optax.scale_by_learning_rate(rate))


def _matrices(params: Any) -> Any:
    """Matrix axes of kernels, the last two: leading axes are stacks. None for the others."""

    def axes(path: tuple[Any, ...], leaf: Any) -> optax.contrib.MuonDimensionNumbers | None:
        if not _is_kernel(path) or leaf.ndim < 2:
            return None
        return optax.contrib.MuonDimensionNumbers(leaf.ndim - 2, leaf.ndim - 1)

    return jax.tree_util.tree_map_with_path(axes, params)
