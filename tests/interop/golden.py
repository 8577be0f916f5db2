"""Golden files: a variant's config, and what transformers computes with weights that are drawn."""

import json
import math
import pathlib
import re
import zlib
from typing import Any, NamedTuple

import numpy as np

from jaxformer.interop.safetensors import write_tensors
from tests.interop.crafted import lazy

FOLDER = pathlib.Path("tests/interop/golden")
_NORM = re.compile(r"(norm|ln)[^.]*\.(weight|gamma)$", re.IGNORECASE)
_TABLE = re.compile(r"embed|wte|wpe|shared|lm_head|decoder\.weight|vocab_projector")


class Golden(NamedTuple):
    """Content of a golden file."""

    config: dict[str, Any]
    shapes: dict[str, tuple[int, ...] | str]  # or the name of the tensor that one is a copy of
    seed: int
    arrays: dict[str, np.ndarray]  # inputs and outputs

    def tensor(self, name):
        """A tensor of the checkpoint."""
        return tensor(self.config["model_type"], self.shapes, name, self.seed)

    @property
    def tensors(self):
        """Tensors of the checkpoint, by name."""
        return {name: self.tensor(name) for name in self.shapes}

    def write(self, folder, tensors=None, **fields):
        """Writes the checkpoint, or one of other tensors and fields, of which `...` is left out."""
        folder.mkdir(exist_ok=True)
        write_tensors(folder, lazy(self.tensors if tensors is None else tensors))
        values = {name: value for name, value in (self.config | fields).items() if value is not ...}
        (folder / "config.json").write_text(json.dumps(values))


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


def drawn(model_type, name, shape, seed=0):
    """Float32 values of a tensor: those of a name are the same everywhere, and none is 0 or 1.

    The stream of a `RandomState` is frozen, and so is that of `standard_normal` on it. Layers keep
    the size of what passes through them, and tables are such that logits are about 1 in size, where
    float32 rounds by 1e-7. Gemma adds 1 to the scales of its norms.
    """
    rng = np.random.RandomState(zlib.crc32(f"{seed} {name}".encode()))
    values = rng.standard_normal(shape)
    if len(shape) == 1 and _NORM.search(name):
        values = (0 if model_type.startswith("gemma") else 1) + values / 4
    elif len(shape) < 2 or name.endswith("final_logits_bias"):
        values = values / 5
    elif _TABLE.search(name):
        values = values * 0.15
    else:
        # T5 does not scale its scores, but its weights.
        scale = 0.4 if name.endswith(".q.weight") else 1.25
        values = values * scale / math.sqrt(shape[-1])
    return np.asarray(values, np.float32)
