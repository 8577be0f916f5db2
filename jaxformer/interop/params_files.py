"""A model as one safetensors file of parameters, under jaxformer's names, and a config file."""

import os
import pathlib
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax import traverse_util

from jaxformer import __version__
from jaxformer.config import ModelConfig, config_from_dict, config_to_toml
from jaxformer.config.files import read_tables
from jaxformer.errors import ConfigError
from jaxformer.interop.safetensors import read_tensors, write_tensor_file
from jaxformer.storage import as_path, lexists, write_whole


def save_params(path: str | os.PathLike[str], config: ModelConfig, params: Any) -> None:
    """Saves the parameters of any model as a safetensors file, and its config next to it as TOML.

    Tensors are named by the paths of the parameters, such as
    "stack/layers/attention/query_kernel", whose first axis counts the layers.

    Args:
        path: path of a new file, ending in .safetensors; the config has the same name with .toml.
        config: config of the model.
        params: nested dict of its parameters, saved in their dtypes.

    Raises:
        ConfigError: the path has another ending, or a file exists already.

    Example:
        >>> import tempfile
        >>> config = ModelConfig(vocab_size=5, max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.safetensors")
        >>> save_params(path, config, {"embedding": {"embedding": np.ones((5, 4), np.float32)}})
        >>> again, params = load_params(path)
        >>> again == config, params["embedding"]["embedding"].shape
        (True, (5, 4))
    """
    path, config_path = _paths(path)
    for file in (path, config_path):
        if lexists(file):
            raise ConfigError(f"{file} exists already; remove it, or choose another name")
    tensors = traverse_util.flatten_dict(nn.unbox(params), sep="/")
    write_tensor_file(path, tensors, {"jaxformer": __version__})
    write_whole(config_path, config_to_toml(config))


def load_params(path: str | os.PathLike[str]) -> tuple[ModelConfig, Any]:
    """Loads the config and the nested dict of parameters that `save_params` saved.

    Args:
        path: path of the safetensors file.

    Raises:
        CheckpointError: the file is missing or damaged.
        ConfigError: the path has another ending, or the config is missing or invalid.
    """
    path, config_path = _paths(path)
    config = config_from_dict(ModelConfig, read_tables(config_path))
    leaves = {
        name: jax.device_put(np.array(tensor.read())) for name, tensor in read_tensors(path).items()
    }
    return config, traverse_util.unflatten_dict(leaves, sep="/")


def _paths(path: str | os.PathLike[str]) -> tuple[pathlib.Path, pathlib.Path]:
    """Paths of the parameters and of the config."""
    path = as_path(path)
    if path.suffix != ".safetensors":
        raise ConfigError(f"a parameter file must end in .safetensors, got {path}; rename it")
    return path, path.with_suffix(".toml")
