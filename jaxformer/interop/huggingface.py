"""Loading and saving of Hugging Face model folders."""

import dataclasses
import json
import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import traverse_util

from jaxformer.config import ModelConfig
from jaxformer.errors import CheckpointError, ConfigError
from jaxformer.interop.chat_templates import HuggingFaceChatTemplate, load_chat_template
from jaxformer.interop.conversion.canonical import differences
from jaxformer.interop.conversion.config_fields import ConfigFields, ProblemType
from jaxformer.interop.conversion.family import Family, ModelKind, label_fields
from jaxformer.interop.conversion.weights import tensor_slots, tensors_of_params
from jaxformer.interop.families.registry import FAMILIES, MODEL_CLASSES, kind_of_params
from jaxformer.interop.generation_config import (
    SpecialTokens,
    generation_values,
    one_or_list,
    require_supported,
)
from jaxformer.interop.model_folders import CONFIG, Float, open_huggingface
from jaxformer.interop.safetensors import require_no_weights, write_tensors
from jaxformer.interop.saved_tokenizers import write_tokenizer
from jaxformer.storage import as_path, drafted, make_folder, write_whole
from jaxformer.text import Tokenizer


class HuggingFaceModel(NamedTuple):
    """A model with its tokenizers, special tokens, chat template and class names.

    `load_huggingface` returns one, and `save_huggingface` takes one.

    Args:
        config: config of the model.
        params: nested dict of its parameters.
        tokenizer: tokenizer of the generated text; None if the folder has none.
        source_tokenizer: tokenizer of an encoder-decoder's input; the same object if the folder has
            only one.
        unchecked_special_tokens: `special_tokens`, available even if the folder has unsupported
            generation settings.
        chat_template: chat template; None if the folder has none.
        model_type: family of the folder; `save_huggingface` writes it again if it can represent
            the model.
        class_names: names of a classifier's classes, in the order of its logits; LABEL_0, LABEL_1
            and so on if not given.
        problem_type: how to interpret a classifier's logits; by default, transformers decides.
    """

    config: ModelConfig
    params: Any
    tokenizer: Tokenizer | None = None
    source_tokenizer: Tokenizer | None = None
    unchecked_special_tokens: SpecialTokens = SpecialTokens()
    chat_template: HuggingFaceChatTemplate | None = None
    model_type: str | None = None
    class_names: tuple[str, ...] = ()
    problem_type: ProblemType | None = None

    @property
    def special_tokens(self) -> SpecialTokens:
        """Special tokens and generation settings of the folder.

        Raises:
            ConfigError: an unsupported setting would change the generated text.
        """
        require_supported(self.unchecked_special_tokens.unsupported)
        return self.unchecked_special_tokens

    @property
    def model(self) -> nn.Module:
        """The module of these parameters, such as a `models.Decoder`."""
        return MODEL_CLASSES[kind_of_params(self.config, self.params)](self.config)


def load_huggingface(
    path: str | os.PathLike[str], *, dtype: Float | None = None, param_dtype: Float | None = None,
    max_len: int | None = None, ignore: tuple[str, ...] = (),
    shardings: Callable[[Any], Any] | None = None,
) -> HuggingFaceModel:  # fmt: skip
    """Loads a Hugging Face model folder of one of `interop.FAMILIES`.

    The weights are safetensors, in one file or in shards. Nothing is unpickled, and no code of the
    folder is run. Unsupported config fields that change what the model computes raise an error that
    names them, and so do missing, extra and misshapen tensors. Unsupported generation settings
    raise an error only when you access `special_tokens` of the result.

    Args:
        path: path of the folder.
        dtype: dtype of the computation, "float32" or "bfloat16"; by default that of the parameters.
        param_dtype: dtype of the parameters; by default bfloat16 if all tensors are, else float32.
        max_len: maximum sequence length in tokens, for models without a position table; by default
            that of the config, or 512 for T5, whose config has none.
        ignore: names of generation settings that you know to be irrelevant.
        shardings: function from the shapes of the parameters, a nested dict of
            `jax.ShapeDtypeStruct`s, to the placement of each, such as a
            `jax.sharding.NamedSharding`, so that no device ever holds all of them; by default, all
            are put on the default device.

    Returns:
        The loaded parts; `.model` is the module.

    Raises:
        CheckpointError: a file is missing or damaged, or the weights do not match the config.
        ConfigError: a field of the config, a tokenizer setting or a dtype is not supported.
        DataError: the tokenizer cannot be used.

    Example:
        >>> import pathlib, tempfile
        >>> import jax
        >>> from jaxformer.models import Decoder
        >>> config = ModelConfig(
        ...     vocab_size=11, max_len=8, num_layers=2, d_model=4, num_heads=2, positions="learned"
        ... )
        >>> params = Decoder(config).init_params(jax.random.key(0))
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> save_huggingface(folder, HuggingFaceModel(config, params))
        'gpt2'
        >>> loaded = load_huggingface(folder)
        >>> loaded.model.apply({"params": loaded.params}, jnp.array([[1, 2, 3]])).logits.shape
        (1, 3, 11)
    """
    opened = open_huggingface(
        path, dtype=dtype, param_dtype=param_dtype, max_len=max_len, ignore=ignore
    )
    params = opened.read_params(None if shardings is None else shardings(opened.shapes))
    source, target = opened.read_tokenizers() or (None, None)
    return HuggingFaceModel(
        opened.config, params, target, source,
        unchecked_special_tokens=opened.read_special_tokens(target),
        chat_template=load_chat_template(opened.path),
        model_type=opened.family.model_type,
        class_names=opened.class_names,
        problem_type=opened.values.get("problem_type") if opened.class_names else None,
    )  # fmt: skip


def save_huggingface(
    folder: str | os.PathLike[str], model: HuggingFaceModel, *, model_type: str | None = None,
    dtype: str | None = None, max_shard_bytes: int = 5_000_000_000,
) -> str:  # fmt: skip
    """Saves a model as a folder that transformers can load.

    The config is written last, so a folder that has it is complete.

    Args:
        folder: folder to write to; created if missing.
        model: `HuggingFaceModel(config, params, tokenizer)`, or a loaded model, such as
            `loaded._replace(params=trained)`. The format has room for one tokenizer: if an
            encoder-decoder has two, that of its input is written, with a warning.
            `generation_config.json` is written if the model has special tokens or generation
            settings.
        model_type: family to write, such as "llama"; by default that of the model, or the first of
            `interop.FAMILIES` that can represent it.
        dtype: dtype of the tensors, such as "bfloat16"; by default that of the parameters.
        max_shard_bytes: maximum size of a weight file in bytes.

    Returns:
        The model_type.

    Raises:
        ConfigError: the chosen family, or every family, cannot represent the model, or the folder
            already has weights.
    """
    folder, config, params = as_path(folder), model.config.without_mup, nn.unbox(model.params)
    kind = kind_of_params(config, params)
    family, fields = _family_for(config, params, kind, model_type, model.model_type)
    name = next(name for name, kind_of_class in family.classes.items() if kind_of_class == kind)
    stored = np.dtype(jnp.dtype(dtype or config.param_dtype))
    special, (source, target) = model.unchecked_special_tokens, _tokenizers(model)
    if not special.eos and target is not None and target.end_of_text is not None:
        special = dataclasses.replace(special, eos=(target.end_of_text,))
    values = {
        "architectures": [name],
        "model_type": family.model_type,
        "dtype": stored.name,
        "bos_token_id": special.bos,
        "eos_token_id": one_or_list(special.eos),
        "pad_token_id": special.pad,
        **fields,
    }
    if special.decoder_start is not None:
        values["decoder_start_token_id"] = special.decoder_start
    if model.class_names:
        values |= label_fields(model.class_names)
    if model.problem_type is not None:
        values["problem_type"] = model.problem_type
    tensors = tensors_of_params(family, config, params, stored)
    if kind == "pooled":  # names in a base model have no prefix
        tensors = {name.removeprefix(family.prefix): tensor for name, tensor in tensors.items()}
    make_folder(folder)
    require_no_weights(folder)
    with drafted(folder, last=CONFIG) as draft:
        write_tensors(draft, tensors, max_shard_bytes=max_shard_bytes)
        if source is not None and target is not None:
            types = config.num_token_types is not None
            write_tokenizer(
                draft, source, special, model.chat_template, target=target, has_token_types=types
            )
        if model.unchecked_special_tokens != SpecialTokens():
            text = json.dumps(generation_values(special), indent=2)
            write_whole(draft / "generation_config.json", text + "\n")
        write_whole(draft / CONFIG, json.dumps(values, indent=2) + "\n")
    return family.model_type


def _tokenizers(model: HuggingFaceModel) -> tuple[Tokenizer | None, Tokenizer | None]:
    """Tokenizers of what the model reads and of what it generates; only the first is written."""
    source = model.tokenizer if model.source_tokenizer is None else model.source_tokenizer
    target = source if model.tokenizer is None else model.tokenizer
    if source is not target:
        warnings.warn(
            "a Hugging Face folder has room for one tokenizer: that of the source is written, that "
            "of the target is not",
            stacklevel=3,
        )
    return source, target


def _family_for(
    config: ModelConfig, params: Any, kind: ModelKind, model_type: str | None, preferred: str | None
) -> tuple[Family, dict[str, Any]]:
    """The given family, or the first that can represent the model, and its config fields."""
    ordered = sorted(FAMILIES.items(), key=lambda item: item[0] != preferred)
    able = {name: family for name, family in ordered if kind in family.classes.values()}
    if model_type not in (None, *able):
        raise ConfigError(
            f"model_type must be one of {', '.join(able)} for a model of kind {kind!r}, got "
            f"{model_type!r}"
        )
    leaves, reasons = traverse_util.flatten_dict(params, sep="/"), {}
    for name, family in able.items():
        if model_type not in (None, name):
            continue
        fields = family.write(config)
        tensors = [
            tensor for tensor, layout in family.layouts if leaves.keys() >= set(layout.leaves)
        ]
        try:
            values = ConfigFields(fields, "config.json", tensors)
            changes = differences(config, ModelConfig(**family.read(values, kind)))
            if not changes:
                tensor_slots(family, config, leaves)  # all parameters have a tensor
                return family, fields
            reasons[name] = [f"it could with {changes[0]}", *changes[1:]]
        except (ConfigError, CheckpointError) as error:
            reasons[name] = [str(error)]
    nearest = min(reasons, key=lambda name: len(reasons[name]))
    raise ConfigError(
        f"model type {nearest} cannot represent this model: "
        + ", ".join(reasons[nearest])
        + ("" if model_type else f"; nor can {', '.join(n for n in reasons if n != nearest)}")
    )
