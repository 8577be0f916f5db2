"""Low-rank adaptation in a run: trained matrices and frozen base weights."""

import functools
import math
from typing import Any, NamedTuple

import jax

from jaxformer.config import LoraConfig
from jaxformer.memory import readable_bytes
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.weights.source import Start
from jaxformer.training import combine_low_rank, low_rank_params, make_optimizer
from jaxformer.training.losses import Combine


class Adapted(NamedTuple):
    """Arguments of `fit` for a run with LoRA, and a report line on the trained parameters."""

    params: Any  # the matrices, and parameters that the base does not have
    frozen: Any  # the base
    report: str


def adapt(model: TextModel, start: Start) -> Adapted:
    """Initializes the matrices of a run with LoRA next to the parameters of its base."""
    lora, frozen = model.config.lora, start.stored
    assert lora is not None
    shapes = jax.eval_shape(lambda: frozen)
    draw = functools.partial(low_rank_params, shapes, rank=lora.rank, targets=lora.targets)
    params = {
        **jax.jit(draw)(jax.random.key(model.config.seed)),
        **{name: start.params[name] for name in start.new},
    }
    return Adapted(params, frozen, _report_line(model, params, start))


@functools.cache
def combine_of(lora: LoraConfig | None) -> Combine | None:
    """Function from trained and frozen parameters to those of the model; None without LoRA."""
    if lora is None:
        return None
    return functools.partial(combine_low_rank, scale=lora.scale)


def _report_line(model: TextModel, trained: Any, start: Start) -> str:
    """Report on the number of trained parameters and the size of the optimizer state."""
    optimizer = make_optimizer(model.config.optimizer, model.config.schedule)

    def count(tree: Any) -> int:
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))

    def state_bytes(params: Any) -> str:
        leaves = jax.tree.leaves(jax.eval_shape(optimizer.init, params))
        return readable_bytes(sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves))

    return (
        f"LoRA: {count(trained):,} of {count(trained) + count(start.stored):,} parameters are "
        f"trained; the optimizer's state takes {state_bytes(trained)} rather than "
        f"{state_bytes(start.params)}"
    )
