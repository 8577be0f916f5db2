"""A stored model that a run opens or starts from, whatever kind of folder it is in."""

import abc
import dataclasses
import functools
import pathlib
from typing import Any, NamedTuple

import jax
from flax.traverse_util import flatten_dict, unflatten_dict

from jaxformer.config import ExperimentConfig
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.weights.shapes import param_shapes
from jaxformer.training import SingleRunner
from jaxformer.training.parallel import Runner


class Start(NamedTuple):
    """Parameters that a run starts from, and the names of those that its source does not have."""

    params: Any
    new: tuple[str, ...]

    @property
    def stored(self) -> Any:
        """The parameters that the source has."""
        return {name: inner for name, inner in self.params.items() if name not in self.new}


@dataclasses.dataclass(eq=False)
class WeightSource(abc.ABC):
    """A stored model: a folder, or OWNER/MODEL at Hugging Face; read once, when needed."""

    path: pathlib.Path
    step: int | None = None

    @property
    def name(self) -> str:
        """The value of init_from that names it: FOLDER, or FOLDER@STEP."""
        return f"{self.path}" if self.step is None else f"{self.path}@{self.step}"

    @property
    def folder(self) -> pathlib.Path:
        """Its folder on this machine."""
        return self.path

    @property
    @abc.abstractmethod
    def config(self) -> ExperimentConfig:
        """Config of the model, or of the run that trained it."""

    @property
    @abc.abstractmethod
    def model(self) -> TextModel:
        """The model without parameters: tokenizers, special tokens, classes, chat template."""

    @functools.cached_property
    def shapes(self) -> Any:
        """Shapes and dtypes of the parameters; computes nothing."""
        return param_shapes(self.model)

    @property
    @abc.abstractmethod
    def digest(self) -> str:
        """SHA-256 of the weights, independent of their path."""

    @abc.abstractmethod
    def params(self, runner: Runner) -> Any:
        """Parameters, where the runner places them; CheckpointError if not those of the model."""

    def pin(self) -> str:
        """Chooses and verifies the checkpoint, if there are several; returns `name`."""
        return self.name

    def start(self, model: TextModel, runner: Runner) -> Start:
        """Parameters that a run of a model starts from; raises CheckpointError as `params`."""
        loads = SingleRunner() if runner.has_all_params else runner
        params = _with_rows(self.params(loads), model.max_len)
        classes, stored_classes = (getattr(part, "classes", None) for part in (model, self.model))
        if classes is None or classes == stored_classes:
            return Start(params, ())
        # For other classes, the head is initialized anew.
        drawn = loads.create(model.initializer, (jax.random.key(model.config.seed),))
        new = tuple(sorted(drawn.keys() - ({"encoder", "pooler"} & params.keys())))
        # A masked language model may also have an output table, which a classifier does not need.
        stored = flatten_dict(params)
        paths = {path for path in flatten_dict(drawn) if path[0] not in new}
        return Start({**drawn, **unflatten_dict({path: stored[path] for path in paths})}, new)


def _with_rows(params: Any, max_len: int) -> Any:
    """The parameters, with tables of learned positions cut to max_len rows."""

    def cut(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        is_table = [str(entry.key) for entry in path[-2:]] == ["positions", "embedding"]
        return leaf[:max_len] if is_table and leaf.shape[0] > max_len else leaf

    return jax.tree_util.tree_map_with_path(cut, params)
