"""Low-rank adaptation in a run: trained matrices and frozen base weights."""

import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from jaxformer.config import LoraConfig
from jaxformer.memory import readable_bytes
from jaxformer.runs.memory import split_shapes
from jaxformer.runs.start import new_parameters
from jaxformer.runs.stored import load_base, start_params
from jaxformer.runs.task import Task
from jaxformer.training import combine_low_rank, low_rank_params, make_optimizer
from jaxformer.training.losses import Combine
from jaxformer.training.parallel import Runner

__all__ = ["Adapted", "adapt", "combine_of"]


class Adapted(NamedTuple):
    """Arguments of `fit` for a run with LoRA.

    Args:
        params: trained parameters: the matrices, and parameters that the base does not have.
        frozen: the other parameters, which are those of the base.
        combine: function from (params, frozen) to the parameters of the model.
    """

    params: Any
    frozen: Any
    combine: Combine | None


def adapt(
    task: Task, resumed: pathlib.Path | None, runner: Runner,
    moved: str | os.PathLike[str] | None = None,
) -> tuple[Task, Adapted]:  # fmt: skip
    """Loads the base of a run with LoRA, and initializes the matrices.

    Args:
        task: task before the first step, with init_from set in its config.
        resumed: run folder to resume, whose base must not have changed; None for a new run.
        runner: runner of the training.
        moved: current path of the base of a resumed run; default: its old path.

    Returns:
        The task, with a report on the trained parameters; and the arguments of `fit`.

    Raises:
        CheckpointError: the base is missing, damaged, or not the one that a resumed run began with.
        ConfigError: a target matches no kernel, or the rank is too large for one.
    """
    lora = task.config.lora
    assert lora is not None
    report: tuple[str, ...] = ()
    if resumed is None:
        base, start = start_params(task, runner)
        new, report = new_parameters(task), (start,)
    else:
        base, new = load_base(task, resumed, runner, moved)
    frozen = {name: inner for name, inner in base.items() if name not in new}
    shapes = jax.eval_shape(lambda: frozen)
    draw = functools.partial(low_rank_params, shapes, rank=lora.rank, targets=lora.targets)
    params = {
        **jax.jit(draw)(jax.random.key(task.config.seed)),
        **{name: base[name] for name in new},
    }
    line = _report_line(task, new)
    made = dataclasses.replace(task, report=(*report, line, *task.report))
    return made, Adapted(params, frozen, combine_of(lora))


def combine_of(lora: LoraConfig | None) -> Combine | None:
    """Function from trained and frozen parameters to those of the model; None without LoRA."""
    if lora is None:
        return None
    return functools.partial(combine_low_rank, scale=lora.scale)


def _report_line(task: Task, new: Sequence[str]) -> str:
    """Report on the number of trained parameters and the size of the optimizer state."""
    optimizer = make_optimizer(task.config.optimizer, task.config.schedule)
    trained, frozen = split_shapes(task, new)
    whole = {**frozen, **{name: trained[name] for name in new}}

    def count(tree: Any) -> int:
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))

    def state_bytes(params: Any) -> str:
        leaves = jax.tree.leaves(jax.eval_shape(optimizer.init, params))
        return readable_bytes(sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves))

    return (
        f"LoRA: {count(trained):,} of {count(trained) + count(frozen):,} parameters are trained; "
        f"the optimizer's state takes {state_bytes(trained)} rather than {state_bytes(whole)}"
    )
