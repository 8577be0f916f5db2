"""A model as one safetensors file of parameters, under jaxformer's names, and a config file."""

import functools
import os
import pathlib
import tomllib
from typing import Any

import jax
import numpy as np
from flax import traverse_util

from jaxformer import __version__
from jaxformer.config import ModelConfig, config_from_dict, config_to_toml
from jaxformer.errors import CheckpointError, ConfigError, StorageError
from jaxformer.interop.safetensors import LazyTensor, read_tensors, write_tensor_file
from jaxformer.storage import as_path, lexists, read_regular, write_whole

_MAX_CONFIG = 2**22  # bytes


def save_params(path: str | os.PathLike[str], config: ModelConfig, params: Any) -> None:
    """Saves the parameters of any model as a safetensors file, and its config next to it as TOML.

    Tensors are named by the paths of the parameters, such as
    "stack/layers/attention/query_kernel", whose first axis counts the layers.

    Args:
        path: path of a new file, ending in .safetensors; the config has the same name with .toml.
        config: config of the model.
        params: nested dict of its parameters, saved in their dtypes.

    Raises:
        ConfigError: the path has another ending.
        StorageError: a file exists already, or cannot be written.

    Example:
        >>> import tempfile
        >>> config = ModelConfig(vocab_size=5, max_len=8, num_layers=1, d_model=4, num_heads=2)
        >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.safetensors")
        >>> save_params(path, config, {"embedding": {"embedding": np.ones((5, 4), np.float32)}})
        >>> again, params = load_params(path)
        >>> again == config, params["embedding"]["embedding"].shape
        (True, (5, 4))
    """
    path, beside = _paths(path)
    text = config_to_toml(config)
    # An interrupted save may have left the same config.
    for one, is_free in ((path, False), (beside, _has(beside, text))):
        if lexists(one) and not is_free:
            raise StorageError(f"{one} exists already; remove it, or choose another name")
    tensors = {
        name: LazyTensor(leaf.shape, leaf.dtype, functools.partial(np.asarray, leaf))
        for name, leaf in traverse_util.flatten_dict(params, sep="/").items()
    }
    write_whole(beside, text)
    write_tensor_file(path, tensors, {"jaxformer": __version__})


def load_params(path: str | os.PathLike[str]) -> tuple[ModelConfig, Any]:
    """Loads the config and the nested dict of parameters that `save_params` saved.

    Args:
        path: path of the safetensors file.

    Raises:
        CheckpointError: a file is missing or damaged.
        ConfigError: the path has another ending, or the config is invalid.
    """
    path, beside = _paths(path)
    try:
        values = tomllib.loads(read_regular(beside, limit=_MAX_CONFIG).decode("utf-8-sig"))
    except OSError as error:
        raise CheckpointError(
            f"{beside}, the config of {path}, cannot be read: {error.strerror}; put it there"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{beside} is damaged: {error}; save the model again") from None
    config = config_from_dict(ModelConfig, values)
    leaves = {
        name: jax.device_put(np.array(tensor.read())) for name, tensor in read_tensors(path).items()
    }
    return config, traverse_util.unflatten_dict(leaves, sep="/")


def _has(path: pathlib.Path, text: str) -> bool:
    """Whether a regular file has this content."""
    try:
        return read_regular(path, limit=_MAX_CONFIG) == text.encode()
    except (OSError, ValueError):
        return False


def _paths(path: str | os.PathLike[str]) -> tuple[pathlib.Path, pathlib.Path]:
    """Paths of the parameters and of the config."""
    found = as_path(path)
    if found.suffix != ".safetensors":
        raise ConfigError(f"a parameter file must end in .safetensors, got {found}; rename it")
    return found, found.with_suffix(".toml")
