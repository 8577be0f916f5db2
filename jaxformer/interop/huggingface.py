"""Models of Hugging Face: loaded from a folder of theirs, and saved as one."""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jaxformer.config import ModelConfig
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.interop.canonical import differences
from jaxformer.interop.config_fields import ConfigFields
from jaxformer.interop.families import FAMILIES, family_of, model_class
from jaxformer.interop.family import Family, ModelKind
from jaxformer.interop.safetensors_files import open_tensors, write_tensors
from jaxformer.interop.strict_json import parse_object
from jaxformer.interop.tensor_files import TensorFiles
from jaxformer.interop.weights import read_params, tensors_of_params
from jaxformer.storage import make_folder, open_regular, write_whole
from jaxformer.text import Tokenizer, with_end_of_text

__all__ = ["HuggingFaceFolder", "HuggingFaceModel", "load_huggingface", "open_huggingface",
           "save_huggingface"]  # fmt: skip

_CONFIG, _TOKENIZER = "config.json", "tokenizer.json"
_MAX_JSON = 2**26  # bytes
_PART = 2**24  # bytes that are read at a time
Float = Literal["float32", "bfloat16"]


class HuggingFaceModel(NamedTuple):
    """A model that was loaded.

    Args:
        config: of the model.
        params: nested dict of its parameters.
        tokenizer: the folder's; None where it has no tokenizer.json.
    """

    config: ModelConfig
    params: Any
    tokenizer: Tokenizer | None

    @property
    def model(self) -> nn.Module:
        """The module that the parameters are of, such as a `models.Decoder`."""
        return model_class(_kind_of(self.config, self.params))(self.config)


@dataclasses.dataclass(frozen=True)
class HuggingFaceFolder:
    """A folder of Hugging Face whose config and names of tensors were read, and no weights yet.

    Args:
        path: of the folder.
        kind: what the model computes.
        config: of the model.
        values: contents of `config.json`.
        family: of the model.
        tensors: of its files, none of which is read.
    """

    path: pathlib.Path
    kind: ModelKind
    config: ModelConfig
    values: Mapping[str, Any]
    family: Family
    tensors: TensorFiles

    @property
    def shapes(self) -> Any:
        """Shapes and dtypes of the parameters, a nested dict."""
        return _shapes(self.kind, self.config)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of a classifier's classes, in the order of its scores."""
        names = self.values.get("id2label") or {}
        count = self.config.num_classes or 0
        return tuple(str(names.get(str(i), f"LABEL_{i}")) for i in range(count))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the config and of all weights; it takes as long as reading them."""
        files = sorted({self.tensors.path(name) for name in self.tensors.names})
        digest = hashlib.sha256()
        for path in (self.path / _CONFIG, *files):
            with open_regular(path) as file:
                while part := file.read(_PART):
                    digest.update(part)
        return digest.hexdigest()

    def read_params(self, shardings: Any = None) -> Any:
        """Reads the parameters, one after the other.

        Args:
            shardings: nested dict like the parameters, of where each is put, such as
                `jax.sharding.NamedSharding`s, so that no device ever has all; on the default device
                when not given.

        Returns:
            The nested dict of parameters.

        Raises:
            CheckpointError: tensors are missing, surplus or of another shape, or a file is damaged.
        """
        return read_params(self.family, self.config, self.shapes, self.tensors, shardings)


def open_huggingface(
    path: str | os.PathLike[str], *, dtype: Float | None = None, param_dtype: Float | None = None,
    max_len: int | None = None, ignore: tuple[str, ...] = (),
) -> HuggingFaceFolder:  # fmt: skip
    """Reads the config of a folder of Hugging Face, and the names of its tensors, but no weights.

    Args:
        path: as in `load_huggingface`.
        dtype: as in `load_huggingface`.
        param_dtype: as in `load_huggingface`.
        max_len: as in `load_huggingface`.
        ignore: as in `load_huggingface`.

    Raises:
        CheckpointError: a file is missing or damaged.
        ConfigError: a field of the config is not supported, or a dtype is no choice.
    """
    folder = pathlib.Path(path)
    for name, value in (("dtype", dtype), ("param_dtype", param_dtype)):
        if value is not None and value not in get_args(Float):
            raise ConfigError(f"{name} must be {' or '.join(get_args(Float))}, got {value!r}")
    values = _read_json(folder / _CONFIG)
    family, kind = family_of(values, str(folder / _CONFIG))
    tensors = open_tensors(folder, auto_class=family.auto_class)
    fields = ConfigFields(values, str(folder / _CONFIG), ignore, tensors.names)
    arguments = _read_fields(family, fields, kind, str(folder / _CONFIG))
    if max_len is not None and arguments["positions"] == "learned":
        raise ConfigError(
            f"this model has a table of {arguments['max_len']} positions, got max_len={max_len}; "
            "leave it out"
        )
    stored = param_dtype or _stored_dtype(tensors)
    arguments |= {"dtype": dtype or stored, "param_dtype": stored}
    config = ModelConfig(**arguments | ({} if max_len is None else {"max_len": max_len}))
    return HuggingFaceFolder(folder, kind, config, values, family, tensors)


def load_huggingface(
    path: str | os.PathLike[str], *, dtype: Float | None = None, param_dtype: Float | None = None,
    max_len: int | None = None, ignore: tuple[str, ...] = (),
    shardings: Callable[[Any], Any] | None = None,
) -> HuggingFaceModel:  # fmt: skip
    """Loads a model of Hugging Face from its folder: config, weights and tokenizer.

    The families are those of `interop.FAMILIES`. The weights are safetensors, in one file or in
    shards; nothing is unpickled, and no code of the folder is run. A field of the config that would
    change what the model computes, and that there is no option for, is refused by name, and so are
    missing, surplus and misshapen tensors.

    Args:
        path: of the folder.
        dtype: of the computation, "float32" or "bfloat16"; that of the parameters when not given.
        param_dtype: of the parameters; when not given, bfloat16 where all tensors are, else
            float32.
        max_len: longest sequence in tokens, where the model's positions have no table that limits
            it; the config's when not given, 512 for T5, which says none.
        ignore: names of fields in `config.json` that are known not to matter.
        shardings: function of the shapes of the parameters, a nested dict of
            `jax.ShapeDtypeStruct`s, to where each is put, such as `jax.sharding.NamedSharding`s, so
            that no device ever has all; all are on the default device when not given.

    Returns:
        config, params and tokenizer; `.model` is the module.

    Raises:
        CheckpointError: a file is missing or damaged, or the weights are not those of the config.
        ConfigError: a field of the config is not supported, or a dtype is no choice.
        DataError: the tokenizer cannot be used.

    Example:
        >>> import tempfile
        >>> from jaxformer.models import Decoder
        >>> config = ModelConfig(
        ...     vocab_size=11, max_len=8, num_layers=2, d_model=4, num_heads=2, positions="learned"
        ... )
        >>> params = Decoder(config).init(jax.random.key(0), jnp.zeros((1, 2), int))["params"]
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> save_huggingface(folder, config, params)
        'gpt2'
        >>> loaded = load_huggingface(folder)
        >>> loaded.model.apply({"params": loaded.params}, jnp.array([[1, 2, 3]])).logits.shape
        (1, 3, 11)
    """
    opened = open_huggingface(
        path, dtype=dtype, param_dtype=param_dtype, max_len=max_len, ignore=ignore
    )
    params = opened.read_params(None if shardings is None else shardings(opened.shapes))
    return HuggingFaceModel(opened.config, params, _load_tokenizer(opened.path))


def save_huggingface(
    folder: str | os.PathLike[str], config: ModelConfig, params: Any,
    tokenizer: Tokenizer | None = None, *, model_type: str | None = None,
    dtype: str | None = None, max_shard_bytes: int = 5_000_000_000,
) -> str:  # fmt: skip
    """Saves a model as a folder that transformers, and whatever reads its format, can load.

    Args:
        folder: to write to; made where it is missing.
        config: of the model.
        params: nested dict of its parameters.
        tokenizer: of the model, saved beside it.
        model_type: family to write, such as "llama"; when not given, the first of
            `interop.FAMILIES` that computes what the config says.
        dtype: of the tensors, such as "bfloat16"; that of the parameters when not given.
        max_shard_bytes: of one file of weights.

    Returns:
        The model_type.

    Raises:
        ConfigError: the family, or every family, computes something else than the config says.
        StorageError: the folder has weights already, or a file cannot be written.
    """
    folder, kind = pathlib.Path(folder), _kind_of(config, params)
    family, fields = _family_for(config, params, kind, model_type)
    name = next(name for name, each in family.classes.items() if each == kind)
    stored = np.dtype(jnp.dtype(dtype or config.param_dtype))
    values = {
        "architectures": [name],
        "model_type": family.model_type,
        "dtype": stored.name,
        "bos_token_id": None,
        "eos_token_id": None if tokenizer is None else tokenizer.end_of_text,
        "pad_token_id": None,
        **fields,
    }
    tensors = tensors_of_params(family, config, params, stored)
    if kind == "pooled":  # the base model, whose names have no prefix
        tensors = {name.removeprefix(family.prefix): each for name, each in tensors.items()}
    make_folder(folder)
    write_tensors(folder, tensors, metadata={"format": "pt"}, max_shard_bytes=max_shard_bytes)
    if tokenizer is not None:
        tokenizer.save(folder / _TOKENIZER)
    write_whole(folder / _CONFIG, json.dumps(values, indent=2) + "\n")
    return family.model_type


def _read_fields(
    family: Family, fields: ConfigFields, kind: ModelKind, where: str
) -> dict[str, Any]:
    """Arguments of the model's config; every error names the file."""
    try:
        arguments = family.read(fields, kind)
        fields.finish()
    except ConfigError as error:
        raise ConfigError(str(error) if where in str(error) else f"{where}: {error}") from None
    except (ArithmeticError, LookupError, TypeError) as error:
        # Of a stranger's numbers, such as 0 heads, or of a table in place of a number.
        raise ConfigError(
            f"{where} has a value that no model can have ({error}); take the file that is with the "
            "weights"
        ) from None
    return arguments


def _family_for(
    config: ModelConfig, params: Any, kind: ModelKind, model_type: str | None
) -> tuple[Family, dict[str, Any]]:
    """The family that is asked for, or the first that can say what the config says."""
    if model_type is not None and model_type not in FAMILIES:
        raise ConfigError(f"model_type must be one of {', '.join(FAMILIES)}, got {model_type!r}")
    able = {name: each for name, each in FAMILIES.items() if kind in each.classes.values()}
    if model_type not in (None, *able):
        raise ConfigError(
            f"a model of kind {kind!r} is one of {', '.join(able)}, got model_type={model_type!r}; "
            "choose one of these"
        )
    reasons = {}
    for name, family in able.items():
        if model_type not in (None, name):
            continue
        fields = family.write(config)
        try:
            names = tensors_of_params(family, config, params, config.param_dtype)
            values = ConfigFields(fields, "config.json", tensors=names)
            again = ModelConfig(**family.read(values, kind))
        except (ConfigError, CheckpointError) as error:
            reasons[name] = str(error)
            continue
        if not (found := differences(config, again)):
            return family, fields
        reasons[name] = "; ".join(found)
    nearest = min(reasons, key=lambda name: len(reasons[name].split("; ")))
    raise ConfigError(
        f"a {nearest} checkpoint cannot say what this model computes: {reasons[nearest]}"
        + ("" if model_type else f"; nor can {', '.join(n for n in reasons if n != nearest)}")
    )


def _kind_of(config: ModelConfig, params: Mapping[str, Any]) -> ModelKind:
    """What a model computes, by its config and parameters."""
    if config.architecture != "encoder":
        return config.architecture
    if config.num_classes is not None:
        return "classifier"
    return "masked" if "kernel" in params else "pooled"


def _shapes(kind: ModelKind, config: ModelConfig) -> Any:
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    inputs = (tokens, tokens) if kind == "encoder_decoder" else (tokens,)
    # A scan is traced once for all layers; how they run does not change their parameters.
    init = model_class(kind)(dataclasses.replace(config, layer_execution="scan")).init
    return jax.eval_shape(init, jax.eval_shape(lambda: jax.random.key(0)), *inputs)["params"]


def _stored_dtype(tensors: TensorFiles) -> Float:
    dtypes = {tensors.dtype(name) for name in tensors.names}
    return "bfloat16" if dtypes == {jnp.dtype(jnp.bfloat16)} else "float32"


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_JSON + 1)
        if len(data) > _MAX_JSON:
            raise ValueError(f"it must have at most {_MAX_JSON:,} bytes")
        return parse_object(data)
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror}; give the folder of a model of Hugging Face"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}; download it again") from None


def _load_tokenizer(folder: pathlib.Path) -> Tokenizer | None:
    if not (folder / _TOKENIZER).exists():
        return None
    tokenizer = Tokenizer.load(folder / _TOKENIZER)
    if tokenizer.end_of_text is not None or not (folder / "tokenizer_config.json").exists():
        return tokenizer
    end = _read_json(folder / "tokenizer_config.json").get("eos_token")
    end = end.get("content") if isinstance(end, dict) else end
    return tokenizer if end is None else with_end_of_text(tokenizer, end)
