"""The trial of a run, made from the numbers of its config and, with LoRA, from its base."""

import copy
import functools
import logging
import math
from typing import Any

import jax

from jaxformer.config import AdamWConfig, ExperimentConfig, LionConfig, LoraConfig, MuonConfig
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.weights.shapes import rate_factors
from jaxformer.runs.weights.source import Start
from jaxformer.training import (
    Trial,
    combine_low_rank,
    low_rank_params,
    make_optimizer,
    make_runner,
    make_schedule,
)
from jaxformer.training.losses import Combine
from jaxformer.training.parallel import Runner
from jaxformer.training.trial import Recipe

_LOG = logging.getLogger(__name__)

_DECAYING = (AdamWConfig, LionConfig, MuonConfig)


def adapt(model: TextModel, start: Start) -> tuple[Any, Any]:
    """Trained and frozen parameters of a LoRA run; those that the base lacks are trained."""
    lora, frozen = model.config.lora, start.stored
    assert lora is not None
    shapes = jax.eval_shape(lambda: frozen)
    draw = functools.partial(low_rank_params, shapes, rank=lora.rank, targets=lora.targets)
    params = {
        **jax.jit(draw)(jax.random.key(model.config.seed)),
        **{name: start.params[name] for name in start.new},
    }
    trained, fixed = (
        sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree)) for tree in (params, frozen)
    )
    _LOG.info(f"LoRA: {trained:,} of {trained + fixed:,} parameters are trained")
    return params, frozen


def combine_of(lora: LoraConfig | None) -> Combine | None:
    """Function from trained and frozen parameters to those of the model; None without LoRA."""
    return None if lora is None else functools.partial(combine_low_rank, scale=lora.scale)


def training_runner(config: ExperimentConfig) -> Runner:
    """Creates the runner of a config; raises the errors of `make_runner`."""
    training = config.training
    return make_runner(
        training.runner,
        mesh=config.mesh,
        devices=training.devices,
        batch_size=training.batch_size,
        accumulate_steps=training.accumulate_steps,
    )


def run_recipe(model: TextModel, start: Start | None = None) -> Recipe:
    """Recipe of a run's trial, which starts from these weights, or from random ones."""
    config, params, frozen = model.config, None, None
    if start is not None:
        params, frozen = (start.params, None) if config.lora is None else adapt(model, start)
    loss, validation_loss = model.loss(config.training.label_smoothing), model.loss(0.0)
    factors, combine = rate_factors(model), combine_of(config.lora)

    def make(**numbers: Any) -> Trial:
        optimizer = copy.copy(config.optimizer)
        for name, number in numbers.items():
            object.__setattr__(optimizer, name, number)  # which may be traced, so without a check
        return Trial(
            loss=loss,
            init_params=model.initializer if start is None else None,
            optimizer=make_optimizer(optimizer, config.schedule, factors),
            validation_loss=validation_loss,
            learning_rate=make_schedule(optimizer.learning_rate, config.schedule),
            combine=combine,
        )

    return Recipe(make, numbers_of(config), params, frozen)


def numbers_of(config: ExperimentConfig) -> dict[str, float]:
    """The seed, and settings of the optimizer that are arguments of a run's programs, too."""
    numbers = {"seed": config.seed, "learning_rate": config.optimizer.learning_rate}
    if isinstance(config.optimizer, _DECAYING):
        numbers["weight_decay"] = config.optimizer.weight_decay
    return numbers
