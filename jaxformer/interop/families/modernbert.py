"""ModernBERT: an encoder with rotary positions, gates, and windows in most layers."""

import dataclasses
from typing import Any

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.interop.conversion.activations import GATED, name_of
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import Family, ModelKind
from jaxformer.interop.conversion.layer_fields import (
    FULL,
    SLIDING,
    layer_keys,
    read_layer_types,
    rotary_config,
    write_layer_types,
    write_rotary_by_type,
)
from jaxformer.interop.conversion.layouts import Layout, dense, linear, norm, same
from jaxformer.interop.conversion.plain_fields import PlainFields, read_plain, write_plain
from jaxformer.interop.families.bert import encoder_classes, write_labels

__all__ = ["MODERNBERT_FAMILIES"]

_S = "encoder/{stack}/"  # paths of the parameters of a layer
_M = "model.layers.{layer}."
# The first half of Wi is the gate, the second the up projection. `head` is for masked tokens or for
# classes.
_TENSORS: dict[str, Layout | tuple[Layout, ...]] = {
    "model.embeddings.tok_embeddings.weight": same("encoder/embedding/embedding"),
    **norm("model.embeddings.norm", "encoder/embedding_norm"),
    **norm(_M + "attn_norm", _S + "attention_norm"),
    **dense(_M + "attn.Wqkv", *(f"{_S}attention/{part}" for part in ("query", "key", "value"))),
    **dense(_M + "attn.Wo", _S + "attention/output"),
    **norm(_M + "mlp_norm", _S + "feed_forward_norm"),
    **dense(_M + "mlp.Wi", _S + "feed_forward/gate", _S + "feed_forward/up"),
    **dense(_M + "mlp.Wo", _S + "feed_forward/down"),
    **norm("model.final_norm", "encoder/final_norm"),
    "head.dense.weight": (linear("kernel"), linear("pooler/kernel")),
    "head.dense.bias": (same("bias"), same("pooler/bias")),
    "head.norm.weight": (same("norm/scale"), same("pooler/norm/scale")),
    "head.norm.bias": (same("norm/bias"), same("pooler/norm/bias")),
    "decoder.bias": same("encoder/embedding/output_bias"),
    **dense("classifier", "class"),
}
_FIELDS: PlainFields = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": ("max_len", 8192),
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
    "norm_eps": ("norm_eps", 1e-5),
}


def _read(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Every third layer attends to all tokens; a window of W has W // 2 on each side."""
    fields.skip(
        "attention_dropout", "mlp_dropout", "embedding_dropout", "classifier_dropout",
        "initializer_cutoff_factor", "deterministic_flash_attn", "reference_compile",
        "repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction",
        "position_embedding_type",
        "layer_norm_eps",  # in published files, but only norm_eps is read
    )  # fmt: skip
    fields.require("tie_word_embeddings", True)
    fields.skip("classifier_activation")  # belongs to a head
    if kind != "pooled":
        fields.require("classifier_activation", "gelu")
    values = read_plain(fields, _FIELDS)
    head_dim, depth = values["d_model"] // values["num_heads"], values["num_layers"]
    every = fields.take("global_attn_every_n_layers", int, 3)
    given = fields.take("rope_parameters", dict, {})
    bases = {
        FULL: fields.take("global_rope_theta", float, 160_000.0),
        SLIDING: fields.take("local_rope_theta", float, 10_000.0),
    }
    wide, local = (
        rotary_config(
            fields, {"rope_theta": base, **given.get(name, {})}, head_dim, values["max_len"]
        )
        for name, base in bases.items()
    )
    both_sides = fields.take("local_attention", int, 128)
    size = fields.take("sliding_window", int, both_sides // 2)
    near = read_layer_types(fields, [layer % every != 0 for layer in range(depth)])
    windowed = LayerConfig(local_window_size=size, positions=local)
    layers = [windowed if is_near else LayerConfig() for is_near in near]
    layers[0] = dataclasses.replace(layers[0], attention_norm=False)
    bias = fields.take("classifier_bias", bool, False)
    decoder_bias = fields.take("decoder_bias", bool, True)
    pooling = fields.choose("classifier_pooling", {"cls": "first", "mean": "mean"}, "cls")
    head: dict[str, Any] = {"pooling": pooling}
    if kind == "masked":
        head = {"head_bias": bias, "output_bias": decoder_bias}
    elif kind != "pooled":
        head |= {"pooler": "gelu_norm", "head_bias": bias, "num_classes": fields.num_classes()}
    if kind == "token_classifier":
        head["pooling"] = "none"
    attention_bias = fields.take("attention_bias", bool, False)
    return values | layer_keys(wide, layers) | head | {
        "architecture": "encoder",
        "embedding_norm": True,
        "activation": fields.choose("hidden_activation", GATED, "gelu"),
        "qkv_bias": attention_bias,
        "attention_output_bias": attention_bias,
        "feed_forward_bias": fields.take("mlp_bias", bool, False),
        "norm_bias": fields.take("norm_bias", bool, False),
    }  # fmt: skip


def _write(model: ModelConfig) -> dict[str, Any]:
    types = write_layer_types(model)
    window = types["sliding_window"]
    return write_plain(model, _FIELDS) | {
        "layer_types": types["layer_types"],
        "local_attention": 128 if window is None else 2 * (window - 1),
        "rope_parameters": write_rotary_by_type(model),
        "norm_bias": model.has_bias("norm"),
        "attention_bias": model.has_bias("qkv"),
        "mlp_bias": model.has_bias("feed_forward"),
        "hidden_activation": name_of(model.activation, GATED),
        "classifier_pooling": "cls" if model.pooling == "first" else "mean",
        "classifier_bias": model.head_bias,
        "decoder_bias": model.output_bias,
        "tie_word_embeddings": model.tied_embeddings,
        **write_labels(model),
    }


MODERNBERT_FAMILIES = (
    Family(
        model_type="modernbert", classes=encoder_classes("ModernBert"), read=_read,
        write=_write, tensors=_TENSORS, prefix="model.",
        copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
        auto_class="AutoModelForMaskedLM",
    ),
)  # fmt: skip
