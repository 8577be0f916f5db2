"""ModernBERT: an encoder with rotary positions, gates, and windows in most layers."""

from typing import Any

from jaxformer.config import ModelConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind
from jaxformer.interop.conversion.fields import COMMON, GATED, TIED, Values, activation, biases
from jaxformer.interop.conversion.layers import FULL, SLIDING, read_windows, write_layer_types
from jaxformer.interop.conversion.layouts import Layout, block, dense, linear, norm, same
from jaxformer.interop.conversion.rotary import read_rotary_by_type, write_rotary_by_type
from jaxformer.interop.families.bert import ENCODER, encoder_family

_M = "model.layers.{layer}."
# The first half of Wi is the gate, the second the up projection. `head` is for masked tokens or for
# classes.
_TENSORS: dict[str, Layout | tuple[Layout, ...]] = {
    "model.embeddings.tok_embeddings.weight": same("encoder/embedding/embedding"),
    **norm("model.embeddings.norm", "encoder/embedding_norm"),
    **block(_M, ENCODER, norms="attn_norm mlp_norm", attention="attn Wqkv Wo"),
    **dense(_M + "mlp.Wi", ENCODER + "/feed_forward/gate", ENCODER + "/feed_forward/up"),
    **dense(_M + "mlp.Wo", ENCODER + "/feed_forward/down"),
    **norm("model.final_norm", "encoder/final_norm"),
    "head.dense.weight": (linear("kernel"), linear("pooler/kernel")),
    "head.dense.bias": (same("bias"), same("pooler/bias")),
    "head.norm.weight": (same("norm/scale"), same("pooler/norm/scale")),
    "head.norm.bias": (same("norm/bias"), same("pooler/norm/bias")),
    "decoder.bias": same("encoder/embedding/output_bias"),
    **dense("classifier", "class"),
}


def _read(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Every third layer attends to all tokens; a window of W has W // 2 on each side."""
    every = fields.take("global_attn_every_n_layers", int, 3)
    bases = {
        FULL: fields.take("global_rope_theta", float, 160_000.0),
        SLIDING: fields.take("local_rope_theta", float, 10_000.0),
    }
    wide, local = read_rotary_by_type(fields, values, bases, scaled=bases)
    both_sides = fields.take("local_attention", int, 128)
    size = fields.take("sliding_window", int, both_sides // 2)
    return _read_head(fields, kind) | read_windows(
        fields, values | {"positions": wide}, lambda layer: layer % every != 0, size + 1,
        local=local, attention_norm=False,
    )  # fmt: skip


def _read_head(fields: ConfigFields, kind: ModelKind) -> Values:
    if kind != "pooled":
        fields.require("classifier_activation", "gelu")
    bias = fields.take("classifier_bias", bool, False)
    decoder_bias = fields.take("decoder_bias", bool, True)
    pooling = fields.choose("classifier_pooling", {"cls": "first", "mean": "mean"}, "cls")
    if kind == "masked":
        return {"head_bias": bias, "output_bias": decoder_bias}
    if kind == "pooled":
        return {"pooling": pooling}
    return {
        "pooling": "none" if kind == "token_classifier" else pooling,
        "pooler": "gelu_norm",
        "head_bias": bias,
    }


def _write(model: ModelConfig) -> dict[str, Any]:
    types = write_layer_types(model)
    window = types["sliding_window"]
    return {
        "layer_types": types["layer_types"],
        "local_attention": 128 if window is None else 2 * (window - 1),
        "rope_parameters": write_rotary_by_type(model),
        "classifier_pooling": "cls" if model.pooling == "first" else "mean",
        "classifier_bias": model.head_bias,
        "decoder_bias": model.output_bias,
    }


MODERNBERT_FAMILIES = (
    encoder_family(
        "modernbert", "ModernBert",
        fields={
            **TIED,
            **COMMON,
            "max_position_embeddings": ("max_len", 8192),
            "intermediate_size": "d_ff",
            "norm_eps": ("norm_eps", 1e-5),
            "hidden_activation": activation("gelu", GATED),
            "attention_bias": biases(False),
            "mlp_bias": ("feed_forward_bias", False),
            "norm_bias": ("norm_bias", False),
        },
        fixed={"architecture": "encoder", "embedding_norm": True},
        special_read=_read, special_write=_write,
        tensors=_TENSORS, prefix="model.",
        copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    ),
)  # fmt: skip
