"""Hugging Face model folders, opened without reading the weights."""

import dataclasses
import os
import pathlib
import re
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import jax.numpy as jnp

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.conversion.config_fields import ConfigFields, ProblemType
from jaxformer.interop.conversion.family import Family, ModelKind
from jaxformer.interop.conversion.weights import read_params
from jaxformer.interop.families.registry import MODEL_CLASSES, family_of
from jaxformer.interop.generation_config import SpecialTokens, read_special_tokens
from jaxformer.interop.hub import FILES
from jaxformer.interop.mxfp4 import with_dequantized
from jaxformer.interop.safetensors import Tensor, open_tensors
from jaxformer.interop.tokenizers.loading import Tokenizers, load_tokenizers
from jaxformer.models.init_shapes import init_shapes
from jaxformer.storage import file_digest, on_disk, read_object, sha256
from jaxformer.text import Tokenizer

CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"
Float = Literal["float32", "bfloat16"]

_COMPARED = (5, 24)  # newest version of transformers that the families were compared with


@dataclasses.dataclass(frozen=True)
class HuggingFaceFolder:
    """A Hugging Face model folder: its config and tensor names were read, its weights were not.

    Args:
        path: path of the folder.
        kind: kind of model.
        config: config of the model.
        values: content of `config.json`.
        family: family of the model.
        tensors: tensors of its files by name, unread.
        ignore: names of generation settings that the user knows to be irrelevant.
    """

    path: pathlib.Path
    kind: ModelKind
    config: ModelConfig
    values: Mapping[str, Any]
    family: Family
    tensors: Mapping[str, Tensor]
    ignore: tuple[str, ...] = ()

    @property
    def shapes(self) -> Any:
        """Shapes and dtypes of the parameters, a nested dict."""
        # A scan has the same parameters as a loop, and traces all layers once.
        config = dataclasses.replace(self.config, layer_execution="scan")
        return init_shapes(MODEL_CLASSES[self.kind](config))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of a classifier's classes, in the order of its logits."""
        names = self.values.get("id2label") or {}
        count = self.config.num_classes or 0
        return tuple(str(names.get(str(i), f"LABEL_{i}")) for i in range(count))

    @property
    def problem_type(self) -> ProblemType:
        """How to interpret a classifier's logits; by default, a single one is a score."""
        problem_type: ProblemType | None = self.values.get("problem_type")
        is_score = self.config.num_classes == 1
        return problem_type or ("regression" if is_score else "single_label_classification")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the config and all weights; takes as long as reading them."""
        files = sorted({tensor.path for tensor in self.tensors.values() if tensor.path})
        return sha256("".join(file_digest(path) for path in (self.path / CONFIG, *files)))

    def read_params(self, shardings: Any = None) -> Any:
        """Reads the nested dict of parameters, one parameter at a time.

        Args:
            shardings: placement of each parameter, such as a `jax.sharding.NamedSharding`, in a
                nested dict like the parameters; by default the default device.

        Raises:
            CheckpointError: tensors are missing, extra or misshapen, or a file is damaged.
        """
        return read_params(self.family, self.config, self.shapes, self.tensors, shardings)

    def read_tokenizers(
        self, source_language: str | None = None, target_language: str | None = None
    ) -> Tokenizers | None:
        """Reads the tokenizers, with the same arguments as `load_tokenizers`.

        If the tokenizer's files name no end of text, it is the `eos_token_id` of the model's files.
        """
        tokenizers = load_tokenizers(
            self.path, self.family.model_type,
            source_language=source_language, target_language=target_language,
        )  # fmt: skip
        if tokenizers is None or tokenizers.target.end_of_text is not None:
            return tokenizers
        source, target = tokenizers
        ends = [id for id in self.read_special_tokens(target).eos if 0 <= id < target.vocab_size]
        if not ends:
            return tokenizers
        roles = dataclasses.replace(target.roles, end_of_text=target.token_name(ends[0]))
        ended = source.with_roles(roles)
        return Tokenizers(ended, ended if target is source else target.with_roles(roles))

    def read_special_tokens(self, tokenizer: Tokenizer | None = None) -> SpecialTokens:
        """Reads the special tokens and the generation settings.

        Unsupported settings are listed in its `unsupported` and raise no error, since the weights
        can be used without them. Code that generates text calls `require_supported`.

        Args:
            tokenizer: tokenizer of the generated text, to look up tokens by name.

        Raises:
            CheckpointError: a file is damaged.
            ConfigError: a setting has a value that no model can have.
        """
        return read_special_tokens(
            self.path, self.values, tokenizer=tokenizer, ignore=self.ignore,
            generates=self.kind in ("decoder", "encoder_decoder"),
            translates=self.kind == "encoder_decoder",
        )  # fmt: skip


def open_huggingface(
    path: str | os.PathLike[str], *, dtype: Float | None = None, param_dtype: Float | None = None,
    max_len: int | None = None, ignore: tuple[str, ...] = (),
) -> HuggingFaceFolder:  # fmt: skip
    """Reads the config and the tensor names of a Hugging Face model folder, but no weights.

    The arguments are those of `load_huggingface`.

    Raises:
        CheckpointError: a file is missing or damaged.
        ConfigError: a field of the config or a dtype is not supported.
    """
    folder = on_disk(path, FILES)
    values, where = read_object(folder / CONFIG), str(folder / CONFIG)
    if (folder / ADAPTER_CONFIG).exists() and ADAPTER_CONFIG not in ignore:
        raise ConfigError(
            f"{folder} must hold a model or an adapter of PEFT, got both {CONFIG} and "
            f"{ADAPTER_CONFIG}; to open the model without the adapter, pass "
            f"ignore=({ADAPTER_CONFIG!r},), or --ignore {ADAPTER_CONFIG}; then "
            "interop.load_adapter reads the adapter"
        )
    tensors = with_dequantized(open_tensors(folder))
    family, kind = family_of(values, where, tensors)
    written = re.match(r"(\d+)\.(\d+)", str(values.get("transformers_version")))
    if written and (int(written[1]), int(written[2])) > _COMPARED:
        warnings.warn(
            f"{where} was written by transformers {written[0]}; fields that versions "
            f"after {_COMPARED[0]}.{_COMPARED[1]} added to the model are not read",
            stacklevel=3,
        )
    arguments = family.read(ConfigFields(values, where, tensors), kind)
    if max_len is not None and arguments["positions"] == "learned":
        raise ConfigError(
            f"max_len cannot be set for a model with a table of {arguments['max_len']} positions, "
            f"got {max_len}; omit it"
        )
    # Selection biases of experts are in float32 in any case.
    dtypes = {
        tensor.dtype
        for name, tensor in tensors.items()
        if not name.endswith("e_score_correction_bias")
    }
    is_bfloat16 = dtypes == {jnp.dtype(jnp.bfloat16)}
    stored = param_dtype or ("bfloat16" if is_bfloat16 else "float32")
    arguments |= {"dtype": dtype or stored, "param_dtype": stored}
    config = ModelConfig(**arguments | ({} if max_len is None else {"max_len": max_len}))
    return HuggingFaceFolder(folder, kind, config, values, family, tensors, ignore)
