"""T5 and mT5: encoder-decoders with relative positions, RMS norms and unscaled attention."""

from typing import Any

from jaxformer.config import ModelConfig, RelativeConfig
from jaxformer.interop.config_fields import ConfigFields
from jaxformer.interop.family import Family, ModelKind
from jaxformer.interop.layouts import Layout, linear, same

__all__ = ["T5_FAMILIES"]

# feed_forward_proj, and what transformers derives from it; its "gated-gelu" is the tanh form.
_PROJECTIONS = {
    "relu": ("relu", "relu", False),
    "gated-gelu": ("geglu_tanh", "gelu_new", True),
    "gated-silu": ("swiglu", "silu", True),
}


def _attention(layer: str, stack: str, own: str) -> dict[str, Layout]:
    parts = {"q": "query", "k": "key", "v": "value", "o": "output"}
    return {
        f"{layer}.{theirs}.weight": linear(f"{stack}/{own}/{ours}_kernel")
        for theirs, ours in parts.items()
    }


def _half(half: str) -> dict[str, Layout]:
    """Tensors of encoder or decoder; the first block has the biases of all."""
    block, stack = f"{half}.block.{{layer}}.layer.", f"{half}/{{stack}}"
    first = f"{half}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    table = {first: same(f"{half}/positions/table")}
    table |= _attention(f"{block}0.SelfAttention", stack, "attention")
    table[f"{block}0.layer_norm.weight"] = same(f"{stack}/attention_norm/scale")
    if half == "decoder":
        table |= _attention(f"{block}1.EncDecAttention", stack, "cross_attention")
        table[f"{block}1.layer_norm.weight"] = same(f"{stack}/cross_attention_norm/scale")
    last = f"{block}{1 if half == 'encoder' else 2}"
    gate = f"{stack}/feed_forward/gate_kernel"
    return table | {
        f"{last}.DenseReluDense.wi.weight": linear(f"{stack}/feed_forward/up_kernel", unless=gate),
        f"{last}.DenseReluDense.wi_0.weight": linear(gate),
        f"{last}.DenseReluDense.wi_1.weight": linear(f"{stack}/feed_forward/up_kernel", where=gate),
        f"{last}.DenseReluDense.wo.weight": linear(f"{stack}/feed_forward/down_kernel"),
        f"{last}.layer_norm.weight": same(f"{stack}/feed_forward_norm/scale"),
        f"{half}.final_layer_norm.weight": same(f"{half}/final_norm/scale"),
    }


_TENSORS = {
    "shared.weight": same("embedding/embedding"),
    **_half("encoder"),
    **_half("decoder"),
    "lm_head.weight": same("embedding/output_embedding"),
}


def _read(fields: ConfigFields) -> dict[str, Any]:
    fields.skip(
        "dropout_rate", "classifier_dropout", "initializer_factor", "output_past", "n_positions",
        "is_encoder_decoder", "is_decoder",
    )  # fmt: skip
    projection = fields.take("feed_forward_proj", str, "relu")
    fields.require("feed_forward_proj", *_PROJECTIONS)
    activation, inner, gated = _PROJECTIONS[projection]
    fields.require("dense_act_fn", inner)
    fields.require("is_gated_act", gated)
    layers = fields.take("num_layers", int)
    positions = RelativeConfig(
        num_buckets=fields.take("relative_attention_num_buckets", int, 32),
        max_distance=fields.take("relative_attention_max_distance", int, 128),
    )
    return {
        "architecture": "encoder_decoder",
        "vocab_size": fields.take("vocab_size", int),
        "max_len": 512,  # the length of pre-training; the model itself has no limit
        "num_encoder_layers": layers,
        "num_layers": fields.take("num_decoder_layers", int, layers),
        "num_heads": fields.take("num_heads", int),
        "head_dim": fields.take("d_kv", int, 64),
        "d_model": fields.take("d_model", int),
        "d_ff": fields.take("d_ff", int),
        "positions": positions,
        "attention_scale": 1.0,
        "norm": "rms_norm",
        "norm_eps": float(fields.take("layer_norm_epsilon", float, 1e-6)),
        "activation": activation,
        "use_bias": False,
    }


def _read_t5(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """T5: hidden states are scaled before the output projection where that is the embedding table.

    Newer files say so by scale_decoder_outputs, and always tie_word_embeddings = true; whether the
    table is the output projection is then told by the tensors.
    """
    values, tied = _read(fields), fields.take("tie_word_embeddings", bool, True)
    scaled = fields.take("scale_decoder_outputs", bool, tied)
    if "scale_decoder_outputs" in fields:
        tied = not fields.has_tensor("lm_head.weight")
    scale = values["d_model"] ** -0.5 if scaled else None
    return values | {"logit_scale": scale, "tied_embeddings": tied}


def _read_mt5(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """mT5: hidden states are never scaled."""
    fields.skip("tie_word_embeddings", "tokenizer_class")
    tied = not fields.has_tensor("lm_head.weight")
    return _read(fields.with_defaults(feed_forward_proj="gated-gelu")) | {"tied_embeddings": tied}


def _write(model: ModelConfig) -> dict[str, Any]:
    names = {ours: name for name, (ours, *_) in _PROJECTIONS.items()}
    relative = model.positions if isinstance(model.positions, RelativeConfig) else RelativeConfig()
    encoder_layers = model.num_encoder_layers
    return {
        "vocab_size": model.vocab_size,
        "num_layers": model.num_layers if encoder_layers is None else encoder_layers,
        "num_decoder_layers": model.num_layers,
        "num_heads": model.num_heads,
        "d_kv": model.key_dim,
        "d_model": model.d_model,
        "d_ff": model.ff_dim,
        "relative_attention_num_buckets": relative.num_buckets,
        "relative_attention_max_distance": relative.max_distance,
        "layer_norm_epsilon": model.norm_eps,
        "feed_forward_proj": names.get(model.activation, "relu"),
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
    }


def _write_t5(model: ModelConfig) -> dict[str, Any]:
    return _write(model) | {"scale_decoder_outputs": model.logit_scale is not None}


def _family(model_type: str, name: str, read: Any, write: Any) -> Family:
    return Family(
        model_type=model_type, classes={name: "encoder_decoder"}, read=read, write=write,
        tensors=_TENSORS,
        # Files of older versions have a table that is never used.
        ignored=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
        copies=dict.fromkeys(
            ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
            "shared.weight",
        ),
        auto_class="AutoModelForSeq2SeqLM",
    )  # fmt: skip


T5_FAMILIES = (
    _family("t5", "T5ForConditionalGeneration", _read_t5, _write_t5),
    _family("mt5", "MT5ForConditionalGeneration", _read_mt5, _write),
)
