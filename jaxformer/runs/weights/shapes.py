"""Shapes of the parameters and the optimizer state of a run, and the memory that they need."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax

from jaxformer.errors import ConfigError
from jaxformer.memory import readable_bytes
from jaxformer.models.init_shapes import init_shapes
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.training import TrainState, low_rank_params, make_optimizer, mup_factors
from jaxformer.training.parallel import Runner


def param_shapes(model: TextModel) -> Any:
    """Shapes and dtypes of a model's parameters, by tracing its module; computes nothing."""
    config = dataclasses.replace(  # has the same ones
        model.config.model, layer_execution="scan", attention_implementation="auto"
    )
    scanned = dataclasses.replace(model, config=dataclasses.replace(model.config, model=config))
    return init_shapes(scanned.module, *scanned.init_inputs)


def rate_factors(model: TextModel) -> Any:
    """Factor of the learning rate of each parameter with μP; None without it."""
    config = model.config
    if config.model.mup is None:
        return None
    base = dataclasses.replace(config, model=config.model.base)
    based = dataclasses.replace(model, config=base)
    return mup_factors(param_shapes(model), param_shapes(based))


def split_shapes(model: TextModel, new: Sequence[str] = ()) -> tuple[Any, Any]:
    """Shapes and dtypes of the trained parameters, and of the frozen ones, None without LoRA."""
    shapes, lora = param_shapes(model), model.config.lora
    if lora is None:
        return shapes, None
    frozen = {name: inner for name, inner in shapes.items() if name not in new}
    draw = functools.partial(low_rank_params, frozen, rank=lora.rank, targets=lora.targets)
    trained = jax.eval_shape(draw, jax.random.key(0))
    return {**trained, **{name: shapes[name] for name in new}}, frozen


def state_shapes(model: TextModel) -> TrainState:
    """Shapes and dtypes of a model's training state; computes nothing."""
    config = model.config
    optimizer = make_optimizer(config.optimizer, config.schedule, rate_factors(model))
    trained, _ = split_shapes(model)
    averages = config.training.average_decay is not None
    create = functools.partial(TrainState.create, optimizer=optimizer, averages=averages)
    return jax.eval_shape(create, trained)


def require_training_memory(model: TextModel, runner: Runner) -> None:
    """Raises ConfigError if a run cannot be trained in the available memory; a lower estimate."""
    state, (trained, frozen) = state_shapes(model), split_shapes(model)
    gradients = runner.num_bytes(trained)
    needs = {
        "parameters": gradients + (0 if frozen is None else runner.num_bytes(frozen)),
        "gradients": gradients,
        "optimizer": runner.num_bytes(state) - gradients,
    }
    if sum(needs.values()) > runner.memory:
        parts = ", ".join(f"{name} {readable_bytes(size)}" for name, size in needs.items())
        raise ConfigError(
            f"training needs at least {readable_bytes(sum(needs.values()))} of memory on each of "
            f"{runner.num_local_devices} devices ({parts}), got {readable_bytes(runner.memory)}; "
            "lower the model's sizes or training.cpu_devices"
        )
