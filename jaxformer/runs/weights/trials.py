"""The trial of a run, made from the numbers of its config and, with LoRA, from its base."""

import copy
import dataclasses
import functools
import logging
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax

from jaxformer.config import (
    AdamWConfig,
    ExperimentConfig,
    LionConfig,
    LoraConfig,
    ModelConfig,
    MuonConfig,
    OptimizerConfig,
    ScheduleConfig,
)
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.weights.shapes import rate_factors
from jaxformer.runs.weights.source import Start
from jaxformer.training import (
    LossFunction,
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

Config = TypeVar("Config")

_DECAYING = (AdamWConfig, LionConfig, MuonConfig)


@dataclasses.dataclass(frozen=True)
class RunTrial:
    """Makes the trial of a run from its numbers; equal only if the programs of two runs are."""

    loss: LossFunction
    validation_loss: LossFunction
    draw_params: Callable[..., Any] | None
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    combine: Combine | None
    model: tuple[type[TextModel], ModelConfig]
    factors: Any = dataclasses.field(compare=False)  # follow from the model

    def __call__(self, **numbers: Any) -> Trial:
        """Makes the trial; the numbers may be traced."""
        optimizer = with_numbers(self, numbers).optimizer
        return Trial(
            loss=self.loss,
            init_params=self.draw_params,
            optimizer=make_optimizer(optimizer, self.schedule, self.factors),
            validation_loss=self.validation_loss,
            learning_rate=make_schedule(optimizer.learning_rate, self.schedule),
            combine=self.combine,
        )


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


@functools.cache
def combine_of(lora: LoraConfig | None) -> Combine | None:
    """Function from trained and frozen parameters to those of the model; None without LoRA."""
    if lora is None:
        return None
    return functools.partial(combine_low_rank, scale=lora.scale)


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
    numbers = numbers_of(config)
    make = RunTrial(
        loss=model.loss(config.training.label_smoothing),
        validation_loss=model.loss(0.0),
        draw_params=model.initializer if start is None else None,
        optimizer=with_numbers(config, dict.fromkeys(numbers, 0)).optimizer,
        schedule=config.schedule,
        combine=combine_of(config.lora),
        model=(type(model), config.model),
        factors=rate_factors(model),
    )
    return Recipe(make, numbers, params, frozen)


def numbers_of(config: ExperimentConfig) -> dict[str, float]:
    """The settings that are arguments of a run's programs, by key; the others are compiled in."""
    keys = ["seed", "optimizer.learning_rate"]
    if type(config.optimizer) in _DECAYING:
        keys.append("optimizer.weight_decay")
    return {key: operator.attrgetter(key)(config) for key in keys}


def with_numbers(config: Config, numbers: Mapping[str, Any]) -> Config:
    """A copy of a config with other numbers, which are not checked: they may be traced."""
    changed = copy.copy(config)
    for key, number in numbers.items():
        table, _, name = key.rpartition(".")
        owner: Any = changed
        if table:
            owner = copy.copy(getattr(changed, table))
            object.__setattr__(changed, table, owner)
        object.__setattr__(owner, name, number)
    return changed
