"""The model families that can be loaded and saved."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from jaxformer.config import ModelConfig
from jaxformer.config.checks import suggestion
from jaxformer.errors import ConfigError
from jaxformer.interop.conversion.family import Family, ModelKind
from jaxformer.interop.families.bart import BART_FAMILIES
from jaxformer.interop.families.bert import BERT_FAMILIES
from jaxformer.interop.families.gemma import GEMMA_FAMILIES
from jaxformer.interop.families.gpt import GPT_FAMILIES, PARALLEL_FAMILIES
from jaxformer.interop.families.llama import LLAMA_FAMILIES
from jaxformer.interop.families.mixtures import MIXTURE_FAMILIES
from jaxformer.interop.families.t5 import T5_FAMILIES
from jaxformer.models import (
    Decoder,
    EncoderDecoder,
    MaskedLanguageModel,
    PooledEncoder,
    SequenceClassifier,
)

FAMILIES: Mapping[str, Family] = MappingProxyType({
    family.model_type: family
    for families in (
        GPT_FAMILIES, LLAMA_FAMILIES, GEMMA_FAMILIES, PARALLEL_FAMILIES, MIXTURE_FAMILIES,
        BERT_FAMILIES, BART_FAMILIES, T5_FAMILIES,
    )
    for family in families
})  # fmt: skip
"""Families by model_type."""

MODEL_CLASSES: Mapping[ModelKind, Any] = MappingProxyType({
    "decoder": Decoder,
    "encoder_decoder": EncoderDecoder,
    "masked": MaskedLanguageModel,
    "classifier": SequenceClassifier,
    "decoder_classifier": SequenceClassifier,
    "token_classifier": SequenceClassifier,
    "pooled": PooledEncoder,
})  # fmt: skip
"""Module classes by kind of model."""


def family_of(
    values: Mapping[str, Any], where: str, tensors: Collection[str] = ()
) -> tuple[Family, ModelKind]:
    """Family and kind of the model of a `config.json` and of the names of its tensors."""
    model_type = values.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ConfigError(
            f"{where}: model_type must be one of {', '.join(FAMILIES)}, got {model_type!r}"
            + suggestion(str(model_type), FAMILIES)
        )
    family = FAMILIES[model_type]
    names = values.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 else names
    if names is None:  # the family's first class; an encoder whose weights have no head is pooled
        first = next(iter(family.classes.values()))
        heads = [key for key, layout in family.layouts if layout.leaves[0] == "kernel"]
        return family, "pooled" if first == "masked" and not {*heads} & {*tensors} else first
    if not isinstance(name, str) or name not in family.classes:
        raise ConfigError(
            f"{where}: architectures must be one of {', '.join(family.classes)}, got {names!r}; "
            "other classes of transformers are not supported"
        )
    return family, family.classes[name]


def kind_of_params(config: ModelConfig, params: Mapping[str, Any]) -> ModelKind:
    """Kind of a model, by its config and parameters."""
    if config.num_classes is not None:
        if config.architecture == "decoder":
            return "decoder_classifier"
        return "token_classifier" if config.pooling == "none" else "classifier"
    if config.architecture != "encoder":
        return config.architecture
    return "masked" if "kernel" in params else "pooled"
