"""Start of a run from other weights: missing parameters, and SHA-256 of the weights."""

from jaxformer.config import ExperimentConfig
from jaxformer.runs.classification import ClassificationTask
from jaxformer.runs.folder import CHECKPOINTS, read_run_config
from jaxformer.runs.memory import param_shapes
from jaxformer.runs.pretrained import Pretrained
from jaxformer.runs.pretrained_tokens import is_pretrained
from jaxformer.runs.start_config import folder_and_step, read_pretrained, start_class
from jaxformer.runs.task import Task
from jaxformer.training.checkpoints import checkpoint_fingerprint

__all__ = ["new_parameters", "start_digest", "start_fingerprint"]


def new_parameters(task: Task) -> tuple[str, ...]:
    """Names of the parameters that a run initializes anew although it starts from weights.

    Raises:
        CheckpointError: the run to start from is missing or damaged.
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
    """SHA-256 of the weights that a new run starts from, independent of their path."""
    assert config.init_from is not None
    folder, step = folder_and_step(config.init_from)
    if is_pretrained(folder):
        return Pretrained.read(folder).opened.fingerprint
    return checkpoint_fingerprint(folder / CHECKPOINTS / str(step))


def start_fingerprint(config: ExperimentConfig) -> str | None:
    """Identity of the weights that a new run starts from; None if it starts from none."""
    if config.init_from is None:
        return None
    return f"{config.init_from}, {start_digest(config)}"
