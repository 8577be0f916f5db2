"""Golden files: a variant's config, and what transformers computes with weights that are drawn."""

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np

from jaxformer.interop.safetensors import write_tensors
from tests.interop.crafted import lazy
from tests.interop.drawn import drawn

FOLDER = pathlib.Path("tests/interop/golden")


class Golden(NamedTuple):
    """Content of a golden file."""

    config: dict[str, Any]
    shapes: dict[str, tuple[int, ...] | str]  # or the name of the tensor that one is a copy of
    seed: int
    arrays: dict[str, np.ndarray]  # inputs and outputs

    def tensor(self, name):
        """A tensor of the checkpoint."""
        return tensor(self.config["model_type"], self.shapes, name, self.seed)

    def write(self, folder):
        """Writes the checkpoint; the folder is created if it is missing."""
        folder.mkdir(exist_ok=True)
        write_tensors(folder, lazy({name: self.tensor(name) for name in self.shapes}))
        (folder / "config.json").write_text(json.dumps(self.config))


def read_golden(name):
    """The golden file of a variant."""
    with np.load(FOLDER / f"{name}.npz") as file:
        arrays = dict(file)
    config, shapes = (json.loads(str(arrays.pop(key))) for key in ("config", "tensors"))
    return Golden(config, shapes, int(arrays.pop("seed")), arrays)


def tensor(model_type, shapes, name, seed):
    """A tensor of a checkpoint."""
    shape = shapes[name]
    if isinstance(shape, str):
        return tensor(model_type, shapes, shape, seed)
    return drawn(model_type, name, tuple(shape), seed)


def tensors_of(golden):
    """Tensors of a golden folder, by name."""
    return {name: golden.tensor(name) for name in golden.shapes}


def write(folder, golden, arrays, **options):
    """Writes a folder with the config of a golden one, and these tensors."""
    folder.mkdir(exist_ok=True)
    write_tensors(folder, lazy(arrays), **options)
    (folder / "config.json").write_text(json.dumps(golden.config))
