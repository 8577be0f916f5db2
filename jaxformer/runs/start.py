"""Parameters that a run starts from: those of another run, or of a folder of Hugging Face."""

from collections.abc import Mapping
from typing import Any

import jax

from jaxformer.config import ExperimentConfig
from jaxformer.runs.classification import ClassificationTask
from jaxformer.runs.folder import CHECKPOINTS, read_run_config
from jaxformer.runs.memory import param_shapes
from jaxformer.runs.pretrained import Pretrained
from jaxformer.runs.pretrained_tokens import is_pretrained
from jaxformer.runs.start_config import folder_and_step, read_pretrained, start_class
from jaxformer.runs.stored import stored_params
from jaxformer.runs.task import Task
from jaxformer.training import SingleRunner
from jaxformer.training.checkpoint_manifest import checkpoint_fingerprint
from jaxformer.training.parallel import Runner

__all__ = ["new_parameters", "start_digest", "start_fingerprint", "start_params"]


def start_params(task: Task, runner: Runner) -> tuple[Any, str]:
    """Parameters that a new run starts from, and a line that says whose they are.

    Args:
        task: before the first step, the init_from of its config set.
        runner: of the training. Where it splits parameters, no device ever has them all.

    Raises:
        CheckpointError: the checkpoint is missing or damaged, or has other parameters.
    """
    assert task.config.init_from is not None
    folder, step = folder_and_step(task.config.init_from)
    loads = SingleRunner() if runner.has_all_params else runner
    if is_pretrained(folder):
        params = read_pretrained(task.config).read_params(loads)
        report = f"starting from the weights and tokenizers of {folder}"
    else:
        kind = start_class(type(task), task.config, read_run_config(folder))
        params = stored_params(kind.load(folder, read_run_config(folder)), folder, step, loads)
        report = f"starting from the weights and tokenizers of {folder} at step {step}"
    params = _with_rows(params, task.max_len)
    if not (new := new_parameters(task)):
        return params, report
    drawn = loads.create(task.draw_params, jax.random.key(task.config.seed))
    # An encoder that predicts tokens may have an output table too, which classes do not need.
    taken = {name: _part(params[name], drawn[name]) for name in drawn if name not in new}
    return {**drawn, **taken}, f"{report}; the scores of the classes start anew"


def _part(params: Any, like: Any) -> Any:
    """The parameters that another tree of parameters has, too."""
    if not isinstance(like, Mapping):
        return params
    return {name: _part(params[name], inner) for name, inner in like.items()}


def _with_rows(params: Any, max_len: int) -> Any:
    """Parameters whose tables of learned positions have their first max_len rows."""

    def cut(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        of_positions = [str(entry.key) for entry in path[-2:]] == ["positions", "embedding"]
        return leaf[:max_len] if of_positions and leaf.shape[0] > max_len else leaf

    return jax.tree_util.tree_map_with_path(cut, params)


def new_parameters(task: Task) -> tuple[str, ...]:
    """Names of the parameters that a run draws, though it starts from the weights of another.

    Args:
        task: the init_from of its config set.

    Raises:
        CheckpointError: there is no such run, or it is damaged.
    """
    assert task.config.init_from is not None
    if not isinstance(task, ClassificationTask):
        return ()
    folder, _ = folder_and_step(task.config.init_from)
    if is_pretrained(folder):
        found = read_pretrained(task.config)
        classes = found.opened.class_names if found.opened.kind == "classifier" else None
        there = found.opened.shapes
    else:
        kind = start_class(type(task), task.config, read_run_config(folder))
        source = kind.load(folder, read_run_config(folder))
        classes = source.classes if isinstance(source, ClassificationTask) else None
        there = param_shapes(source)
    if classes == task.classes:
        return ()
    kept = {"encoder", "pooler"} & there.keys()
    return tuple(name for name in param_shapes(task) if name not in kept)


def start_digest(config: ExperimentConfig) -> str:
    """SHA-256 of the weights that a new run starts from, wherever they lie.

    Args:
        config: as `with_start` returns it, its init_from set.
    """
    assert config.init_from is not None
    folder, step = folder_and_step(config.init_from)
    if is_pretrained(folder):
        return Pretrained.read(folder).opened.fingerprint
    return checkpoint_fingerprint(folder / CHECKPOINTS / str(step))


def start_fingerprint(config: ExperimentConfig) -> str | None:
    """What the weights that a new run starts from are known by; None where it has none.

    Args:
        config: as `with_start` returns it.
    """
    if config.init_from is None:
        return None
    return f"{config.init_from}, {start_digest(config)}"
