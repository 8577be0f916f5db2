"""Low-rank adaptation in a run: trained matrices and frozen base weights."""

import functools
import logging
import math
from typing import Any

import jax

from jaxformer.config import LoraConfig
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.weights.source import Start
from jaxformer.training import combine_low_rank, low_rank_params
from jaxformer.training.losses import Combine

_LOG = logging.getLogger(__name__)


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
