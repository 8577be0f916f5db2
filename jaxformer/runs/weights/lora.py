"""Low-rank adaptation in a run: trained matrices and frozen base weights."""

import functools
import logging
import math
from typing import Any

import jax

from jaxformer.config import LoraConfig
from jaxformer.memory import readable_bytes
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.weights.source import Start
from jaxformer.training import combine_low_rank, low_rank_params, make_optimizer
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
    _log_sizes(model, params, start)
    return params, frozen


@functools.cache
def combine_of(lora: LoraConfig | None) -> Combine | None:
    """Function from trained and frozen parameters to those of the model; None without LoRA."""
    if lora is None:
        return None
    return functools.partial(combine_low_rank, scale=lora.scale)


def _log_sizes(model: TextModel, trained: Any, start: Start) -> None:
    """Logs the number of trained parameters and the size of the optimizer state."""
    optimizer = make_optimizer(model.config.optimizer, model.config.schedule)

    def count(tree: Any) -> int:
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))

    def state_bytes(params: Any) -> str:
        leaves = jax.tree.leaves(jax.eval_shape(optimizer.init, params))
        return readable_bytes(sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves))

    _LOG.info(
        f"LoRA: {count(trained):,} of {count(trained) + count(start.stored):,} parameters are "
        f"trained; the optimizer's state takes {state_bytes(trained)} rather than "
        f"{state_bytes(start.params)}"
    )
