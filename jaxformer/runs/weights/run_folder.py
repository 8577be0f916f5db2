"""Weights of a run folder at a step, and of the base of a run with LoRA.

A run stores all parameters of its model; with LoRA, only the matrices. Its base is the run or
folder that it started from. The base may be a LoRA run, too, so the two call each other.
"""

import dataclasses
import functools
import os
import pathlib
from typing import Any

from jaxformer.config import ExperimentConfig
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.runs.folder.files import CHECKPOINTS, read_run_config
from jaxformer.runs.tasks import task_class
from jaxformer.runs.text_models.text_model import TextModel
from jaxformer.runs.weights.huggingface import HuggingFaceWeights, is_huggingface
from jaxformer.runs.weights.shapes import split_shapes
from jaxformer.runs.weights.source import Start, WeightSource
from jaxformer.storage import as_path, read_json, real_path, write_json
from jaxformer.training import Checkpoints, combine_low_rank, merge_low_rank
from jaxformer.training.checkpoints import checkpoint_fingerprint
from jaxformer.training.parallel import Runner

_BASE = "base.json"


@dataclasses.dataclass(eq=False)
class RunWeights(WeightSource):
    """A checkpoint of a run; with LoRA, merged with its base, which may have moved to `base`."""

    kind: type[TextModel] | None = None
    like: ExperimentConfig | None = None
    base: str | os.PathLike[str] | None = None

    @functools.cached_property
    def config(self) -> ExperimentConfig:
        """The run's config; every file of the folder is verified first."""
        return read_run_config(self.folder)

    @functools.cached_property
    def model(self) -> TextModel:
        """The run's model, without parameters."""
        kind, built_in = self.kind, task_class(self.config).text_model
        if kind is None or (self.like and task_class(self.like).text_model is not built_in):
            kind = built_in
        return kind.load(self.folder, self.config)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the files of the checkpoint, which `pin` has chosen."""
        return checkpoint_fingerprint(self.folder / CHECKPOINTS / str(self.step))

    @functools.cached_property
    def _checkpoints(self) -> Checkpoints:
        """The checkpoints, of which the chosen one is verified once."""
        return Checkpoints(self.folder / CHECKPOINTS, read_only=True)

    def pin(self) -> str:
        """Chooses the checkpoint, by default the best, and verifies it; returns `name`."""
        self.step = self._checkpoints.require_step(self.step)
        return self.name

    def params(self, runner: Runner) -> Any:
        """The parameters of the chosen checkpoint; those of LoRA are merged with their base."""
        lora = self.config.lora
        if lora is None:
            self.pin()
            return self._restored(runner, self.shapes)
        matrices, start = self.matrices(runner)
        return merge_low_rank(combine_low_rank(matrices, start.stored, scale=lora.scale))

    def matrices(self, runner: Runner) -> tuple[Any, Start]:
        """What a run with LoRA trained, and the weights of its base."""
        self.pin()  # a step that is missing is reported before the base is read
        start = load_base(self.model, self.folder, runner, self.base)
        return self._restored(runner, split_shapes(self.model, start.new)[0]), start

    def _restored(self, runner: Runner, shapes: Any) -> Any:
        return self._checkpoints.restore_params(runner.template(shapes), self.step)


def weight_source(
    init_from: str, kind: type[TextModel] | None = None, like: ExperimentConfig | None = None
) -> WeightSource:
    """Parses FOLDER, FOLDER@STEP or OWNER/MODEL, for a model and its config; reads nothing yet."""
    folder, _, at = init_from.rpartition("@")
    has_step = bool(folder) and at.isdecimal()
    path, step = as_path(folder if has_step else init_from), int(at) if has_step else None
    if not is_huggingface(path):
        return RunWeights(path, step, kind, like)
    dtypes = {
        name: "float32" if like is None else getattr(like.model, name)
        for name in ("dtype", "param_dtype")
    }
    return HuggingFaceWeights(path, options=dtypes)


def write_base(draft: pathlib.Path, source: WeightSource) -> None:
    """Records the base of a new run with LoRA."""
    write_json(draft / _BASE, {"path": real_path(source.folder), "sha256": source.digest})


def load_base(
    model: TextModel,
    folder: pathlib.Path,
    runner: Runner,
    base: str | os.PathLike[str] | None = None,
) -> Start:
    """Base weights of a run with LoRA, from `base` if moved; CheckpointError if they are others."""
    stored = read_json(folder / _BASE, dict)
    assert model.config.init_from is not None
    step = weight_source(model.config.init_from).step
    path = stored["path"] if base is None else base
    init_from = f"{path}" if step is None else f"{path}@{step}"
    source = weight_source(init_from, type(model), model.config)
    try:
        if source.digest != stored["sha256"]:
            raise CheckpointError("it is not the one of the training: its SHA-256 differs")
        return source.start(model, runner)
    except (CheckpointError, ConfigError) as error:
        raise CheckpointError(
            f"{folder} has only the matrices of LoRA, and its base model, {init_from}, cannot be "
            f"read: {error}; restore the base, or pass its new location: --base FOLDER, in Python "
            "base=FOLDER"
        ) from error
