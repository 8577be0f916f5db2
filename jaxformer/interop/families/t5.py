"""T5, mT5 and UMT5: encoders and encoder-decoders with relative positions and RMS norms."""

import dataclasses
from typing import Any

from jaxformer.config import LayerConfig, ModelConfig, RelativeConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import Family, ModelKind
from jaxformer.interop.conversion.fields import Field, Values
from jaxformer.interop.conversion.layers import positions_of_layers
from jaxformer.interop.conversion.layouts import Layout, block, linear, norm, same

# feed_forward_proj, and the fields that transformers derives from it. Its "gated-gelu" uses tanh.
_PROJECTIONS = {
    "relu": ("relu", "relu", False),
    "gated-gelu": ("geglu_tanh", "gelu_new", True),
    "gated-silu": ("swiglu", "silu", True),
}


def _half(half: str, last: int) -> dict[str, Layout]:
    """Tensors of "encoder" or "decoder"; `last`: the index of a block's feed-forward layer."""
    layer, stack = f"{half}.block.{{layer}}.layer.", f"{half}/{{stack}}"
    biases = "layer.0.SelfAttention.relative_attention_bias.weight"
    inner, up = f"{layer}{last}.DenseReluDense", f"{stack}/feed_forward/up_kernel"
    # The first block may have the biases of all blocks.
    return {
        f"{half}.block.0.{biases}": same(f"{half}/positions/table"),
        f"{half}.block.{{layer}}.{biases}": same(f"{half}/layer_positions_{{layer}}/table"),
        **block(
            layer, stack, norms=f"0.layer_norm {last}.layer_norm",
            attention="0.SelfAttention q k v o",
        ),
        f"{inner}.wi.weight": linear(up, when=lambda model: not model.is_gated),
        f"{inner}.wi_0.weight": linear(f"{stack}/feed_forward/gate_kernel"),
        f"{inner}.wi_1.weight": linear(up, when=lambda model: model.is_gated),
        f"{inner}.wo.weight": linear(f"{stack}/feed_forward/down_kernel"),
        **norm(f"{half}.final_layer_norm", f"{half}/final_norm"),
    }  # fmt: skip


_TENSORS: dict[str, Layout | tuple[Layout, ...]] = {
    "shared.weight": (same("embedding/embedding"), same("encoder/embedding/embedding")),
    **_half("encoder", last=1),
    **_half("decoder", last=2),
    **block(
        "decoder.block.{layer}.layer.1.", "decoder/{stack}", path="cross_attention",
        norms="layer_norm", attention="EncDecAttention q k v o",
    ),
    "lm_head.weight": same("embedding/output_embedding"),
}  # fmt: skip


def _read_projection(fields: ConfigFields, name: str, values: Values) -> Values:
    projection = fields.take(name, str, "relu")
    fields.require(name, *_PROJECTIONS)
    activation, inner, gated = _PROJECTIONS[projection]
    fields.require("dense_act_fn", inner)
    fields.require("is_gated_act", gated)
    return {"activation": activation}


def _write_projection(model: ModelConfig) -> str:
    names = {activation: name for name, (activation, *_) in _PROJECTIONS.items()}
    return names.get(model.activation, "relu")


def _read(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    positions = RelativeConfig(
        num_buckets=fields.take("relative_attention_num_buckets", int, 32),
        max_distance=fields.take("relative_attention_max_distance", int, 128),
    )
    if kind != "pooled":
        return {"positions": positions}
    # The encoder alone, as in Sentence-T5, which takes the mean.
    depth = values.pop("num_encoder_layers")
    return {"positions": positions, "architecture": "encoder", "num_layers": depth}


def _read_t5(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """T5: hidden states are scaled before the output projection if it is the embedding table."""
    # Newer files state this in scale_decoder_outputs, and always have tie_word_embeddings = true.
    # Then tensors tell if the projection is tied. An older file with tie_word_embeddings = false
    # must have lm_head.weight, since the versions that wrote it always included it.
    keys, tied = _read(fields, kind, values), fields.take("tie_word_embeddings", bool, True)
    scaled = fields.take("scale_decoder_outputs", bool, tied)
    if kind == "pooled":
        return keys
    if "scale_decoder_outputs" in fields.values:
        tied = "lm_head.weight" not in fields.tensors
    scale = values["d_model"] ** -0.5 if scaled else None
    return keys | {"logit_scale": scale, "tied_embeddings": tied}


def _read_mt5(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """mT5: hidden states are never scaled."""
    tied = kind == "pooled" or "lm_head.weight" not in fields.tensors
    return _read(fields, kind, values) | {"tied_embeddings": tied}


def _read_umt5(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """T5 whose layers do not share their biases."""
    keys = _read_t5(fields, kind, values)
    depth = (values | keys)["num_layers"]
    if kind != "pooled":  # both halves use one list of layers
        fields.require("num_decoder_layers", values["num_encoder_layers"])
    tables = [dataclasses.replace(keys["positions"], table=index) for index in range(depth)]
    layers = tuple(LayerConfig(positions=positions) for positions in tables)
    return keys | {"positions": "none", "layers": layers}


def _write(model: ModelConfig) -> dict[str, Any]:
    first = positions_of_layers(model)[0]
    relative = first if isinstance(first, RelativeConfig) else RelativeConfig()
    return {
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
        "relative_attention_num_buckets": relative.num_buckets,
        "relative_attention_max_distance": relative.max_distance,
    }


def _write_t5(model: ModelConfig) -> dict[str, Any]:
    return _write(model) | {"scale_decoder_outputs": model.logit_scale is not None}


def _family(model_type: str, name: str, *more: str, **settings: Any) -> Family:
    classes: dict[str, ModelKind] = {
        f"{name}ForConditionalGeneration": "encoder_decoder", f"{name}EncoderModel": "pooled"
    }  # fmt: skip
    return Family(
        model_type=model_type, classes=classes | dict.fromkeys(more, "encoder_decoder"),
        fields={
            "feed_forward_proj": Field(_read_projection, _write_projection),
            "vocab_size": "vocab_size",
            "num_layers": "num_encoder_layers",
            "num_decoder_layers": ("num_layers", lambda values: values["num_encoder_layers"]),
            "num_heads": "num_heads",
            "d_kv": ("head_dim", 64),
            "d_model": "d_model",
            "d_ff": "d_ff",
            "layer_norm_epsilon": ("norm_eps", 1e-6),
        },
        fixed={
            "architecture": "encoder_decoder",
            "max_len": 512,  # the length of pre-training; the model itself has no limit
            "attention_scale": 1.0,
            "norm": "rms_norm",
            "use_bias": False,
        },
        tensors=_TENSORS,
        copies=dict.fromkeys(
            ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
            "shared.weight",
        ),
        **settings,
    )  # fmt: skip


_GATED = {"feed_forward_proj": "gated-gelu"}
T5_FAMILIES = (
    # T5WithLMHeadModel is the name of the first class in older files.
    _family("t5", "T5", "T5WithLMHeadModel", special_read=_read_t5, special_write=_write_t5),
    _family("mt5", "MT5", defaults=_GATED, special_read=_read_mt5, special_write=_write),
    _family("umt5", "UMT5", defaults=_GATED, special_read=_read_umt5, special_write=_write_t5),
)
