"""Parameters of a model as one safetensors file, under their own paths, with its config beside."""

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
from jaxformer.interop.safetensors_files import LazyTensor, write_tensor_file
from jaxformer.interop.tensor_files import TensorFiles
from jaxformer.storage import read_regular, write_whole

__all__ = ["load_params", "save_params"]

_END = ".safetensors"
_MAX_CONFIG = 2**22  # bytes


def save_params(path: str | os.PathLike[str], config: ModelConfig, params: Any) -> None:
    """Saves the parameters of any model as one safetensors file, and its config beside it.

    The names of the tensors are the paths of the parameters, such as
    "stack/layers/attention/query_kernel", whose first axis is that of the layers. The config is a
    TOML file of the same name.

    Args:
        path: of the file, which ends in .safetensors, and is not there yet.
        config: of the model.
        params: nested dict of its parameters, in their dtypes.

    Raises:
        ConfigError: the path has another ending.
        StorageError: a file is there already, or cannot be written.

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
    # A save that was cut off may have left the same config.
    for one, is_free in ((path, False), (beside, _has(beside, text))):
        if os.path.lexists(one) and not is_free:
            raise StorageError(f"{one} is there already; remove it, or choose another name")
    leaves: dict[str, Any] = traverse_util.flatten_dict(params, sep="/")
    tensors = {
        name: LazyTensor(leaf.shape, leaf.dtype, functools.partial(np.asarray, leaf))
        for name, leaf in leaves.items()
    }
    write_whole(beside, text)
    write_tensor_file(path, tensors, metadata={"jaxformer": __version__})


def load_params(path: str | os.PathLike[str]) -> tuple[ModelConfig, Any]:
    """Loads what `save_params` has saved.

    Args:
        path: of the safetensors file; its config is beside it.

    Returns:
        The config, and the nested dict of parameters.

    Raises:
        CheckpointError: a file is missing or damaged.
        ConfigError: the path has another ending, or the config is impossible.
    """
    path, beside = _paths(path)
    try:
        values = tomllib.loads(read_regular(beside, limit=_MAX_CONFIG).decode())
    except OSError as error:
        raise CheckpointError(
            f"{beside}, the config of {path}, cannot be read: {error.strerror}; put it beside"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{beside} is damaged: {error}; save the model again") from None
    config, tensors = config_from_dict(ModelConfig, values), TensorFiles([path])
    leaves = {name: jax.device_put(np.array(tensors.read(name))) for name in tensors.names}
    return config, traverse_util.unflatten_dict(leaves, sep="/")


def _has(path: pathlib.Path, text: str) -> bool:
    """Whether a regular file has this content."""
    try:
        return read_regular(path, limit=_MAX_CONFIG) == text.encode()
    except (OSError, ValueError):
        return False


def _paths(path: str | os.PathLike[str]) -> tuple[pathlib.Path, pathlib.Path]:
    """The file of the parameters, and that of the config."""
    found = pathlib.Path(path)
    if found.suffix != _END:
        raise ConfigError(f"a file of parameters must end in {_END}, got {found}; rename it")
    return found, found.with_suffix(".toml")
