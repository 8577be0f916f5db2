"""Marian, BART, mBART and M2M-100 (NLLB): encoder-decoders with the same tensors."""

from typing import Any

from jaxformer.config import ModelConfig, SinusoidalConfig
from jaxformer.interop.config_fields import ConfigFields
from jaxformer.interop.family import Family, ModelKind
from jaxformer.interop.layouts import Layout, linear, row, rows_from, same
from jaxformer.interop.llama import PLAIN

__all__ = ["BART_FAMILIES"]

_NAMES = {"silu": "swish"} | {
    ours: theirs for theirs, ours in PLAIN.items() if theirs in ("gelu", "gelu_new", "relu")
}


def _attention(layer: str, name: str, stack: str, own: str) -> dict[str, Layout]:
    parts = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
    return {
        f"{layer}{name}.{theirs}.{kind}": make(f"{stack}/{own}/{ours}_{leaf}")
        for theirs, ours in parts.items()
        for kind, leaf, make in (("weight", "kernel", linear), ("bias", "bias", same))
    }


def _norm(name: str, path: str) -> dict[str, Layout]:
    return {f"{name}.weight": same(f"{path}/scale"), f"{name}.bias": same(f"{path}/bias")}


def _half(half: str) -> dict[str, Layout]:
    """Tensors of encoder or decoder."""
    layer, stack = f"model.{half}.layers.{{layer}}.", f"{half}/{{stack}}"
    table = _attention(layer, "self_attn", stack, "attention")
    table |= _norm(layer + "self_attn_layer_norm", f"{stack}/attention_norm")
    if half == "decoder":
        table |= _attention(layer, "encoder_attn", stack, "cross_attention")
        table |= _norm(layer + "encoder_attn_layer_norm", f"{stack}/cross_attention_norm")
    table |= {
        layer + "fc1.weight": linear(f"{stack}/feed_forward/up_kernel"),
        layer + "fc1.bias": same(f"{stack}/feed_forward/up_bias"),
        layer + "fc2.weight": linear(f"{stack}/feed_forward/down_kernel"),
        layer + "fc2.bias": same(f"{stack}/feed_forward/down_bias"),
    }
    table |= _norm(layer + "final_layer_norm", f"{stack}/feed_forward_norm")
    # Two rows of the positions are never used: the first token has position 2.
    table[f"model.{half}.embed_positions.weight"] = rows_from(2, f"{half}/positions/embedding")
    table |= _norm(f"model.{half}.layernorm_embedding", f"{half}/embedding_norm")
    return table | _norm(f"model.{half}.layer_norm", f"{half}/final_norm")


# Marian may have a table for each side.
_OWN = "source_embedding/embedding"
_TENSORS = {
    "model.shared.weight": same("embedding/embedding", unless=_OWN),
    "model.encoder.embed_tokens.weight": same(_OWN),
    "model.decoder.embed_tokens.weight": same("embedding/embedding", where=_OWN),
    **_half("encoder"),
    **_half("decoder"),
    "final_logits_bias": row("embedding/output_bias"),
    "lm_head.weight": same("embedding/output_embedding"),
}
_COPIES = dict.fromkeys(
    ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"),
    "model.shared.weight",
)


def _read(fields: ConfigFields) -> dict[str, Any]:
    fields.skip(
        "dropout", "attention_dropout", "activation_dropout", "classifier_dropout",
        "classif_dropout", "encoder_layerdrop", "decoder_layerdrop",
        # Norms and positions are those of the model_type, whatever these say.
        "normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits",
        "static_position_embeddings", "extra_pos_embeddings", "is_encoder_decoder", "is_decoder",
        "save_step", "no_repeat_ngram_size",
    )  # fmt: skip
    # Another name for encoder_layers, which wins over it.
    fields.require("num_hidden_layers", None, fields.take("encoder_layers", int))
    heads, inner = fields.take("encoder_attention_heads", int), fields.take("encoder_ffn_dim", int)
    # One number for both halves is all that there is here, and all that published models have.
    fields.require("decoder_attention_heads", heads)
    fields.require("decoder_ffn_dim", inner)
    return {
        "architecture": "encoder_decoder",
        "vocab_size": fields.take("vocab_size", int),
        "max_len": fields.take("max_position_embeddings", int, 1024),
        "num_encoder_layers": fields.take("encoder_layers", int),
        "num_layers": fields.take("decoder_layers", int),
        "num_heads": heads,
        "d_model": fields.take("d_model", int),
        "d_ff": inner,
        "activation": fields.choose("activation_function", PLAIN, "gelu"),
        "scale_embeddings": fields.take("scale_embedding", bool, False),
        "tied_embeddings": fields.take("tie_word_embeddings", bool, True),
        "output_bias": True,
    }


def _write(model: ModelConfig) -> dict[str, Any]:
    encoder_layers = model.num_encoder_layers
    return {
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_len,
        "encoder_layers": model.num_layers if encoder_layers is None else encoder_layers,
        "decoder_layers": model.num_layers,
        "encoder_attention_heads": model.num_heads,
        "decoder_attention_heads": model.num_heads,
        "d_model": model.d_model,
        "encoder_ffn_dim": model.ff_dim,
        "decoder_ffn_dim": model.ff_dim,
        "activation_function": _NAMES.get(model.activation),
        "scale_embedding": model.scale_embeddings,
        "tie_word_embeddings": model.tied_embeddings,
        "is_encoder_decoder": True,
    }


def _read_marian(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Post-norm; sines in the first half of the features, cosines in the second."""
    values = _read(fields) | {
        "positions": SinusoidalConfig(layout="half"), "norm_position": "post"
    }  # fmt: skip
    target = fields.take("decoder_vocab_size", int, values["vocab_size"])
    if fields.take("share_encoder_decoder_embeddings", bool, True):
        fields.require("decoder_vocab_size", None, values["vocab_size"])
        return values
    return values | {"vocab_size": target, "source_vocab_size": values["vocab_size"]}


def _write_marian(model: ModelConfig) -> dict[str, Any]:
    own = model.source_vocab_size
    return _write(model) | {
        "vocab_size": model.vocab_size if own is None else own,
        "decoder_vocab_size": model.vocab_size,
        "share_encoder_decoder_embeddings": own is None,
    }


def _read_bart(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Post-norm, with a norm after the embeddings."""
    fields.require("tie_word_embeddings", True)
    return _read(fields) | {
        "positions": "learned", "norm_position": "post", "embedding_norm": True
    }  # fmt: skip


def _read_mbart(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """BART with norms before the sublayers."""
    return _read_bart(fields, kind) | {"norm_position": "pre"}


def _m2m100_positions(width: int) -> SinusoidalConfig:
    # Wavelengths span half - 1 steps rather than half, and positions start behind the padding id.
    half = width // 2
    return SinusoidalConfig(layout="half", base=10_000.0 ** (half / (half - 1)), offset=2)


def _read_m2m100(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Norms before the sublayers; no bias on the logits."""
    fields.require("pad_token_id", 1)
    fields.require("tie_word_embeddings", True)
    values = _read(fields.with_defaults(activation_function="relu", scale_embedding=True))
    return values | {"positions": _m2m100_positions(values["d_model"]), "output_bias": False}


def _write_m2m100(model: ModelConfig) -> dict[str, Any]:
    return _write(model) | {"pad_token_id": 1}


def _family(
    model_type: str, name: str, read: Any, write: Any, ignored: tuple[str, ...] = ()
) -> Family:
    return Family(
        model_type=model_type, classes={name: "encoder_decoder"}, read=read, write=write,
        tensors=_TENSORS, prefix="model.", ignored=ignored, copies=_COPIES,
        auto_class="AutoModelForSeq2SeqLM",
    )  # fmt: skip


# Tables of sinusoidal positions, which are computed.
_STATIC = tuple(
    f"model.{half}.embed_positions.{name}"
    for half in ("encoder", "decoder")
    for name in ("weight", "weights")
)
_VERSIONS = ("model.encoder.version", "model.decoder.version")
BART_FAMILIES = (
    _family("marian", "MarianMTModel", _read_marian, _write_marian, _STATIC),
    _family("bart", "BartForConditionalGeneration", _read_bart, _write, _VERSIONS),
    _family("mbart", "MBartForConditionalGeneration", _read_mbart, _write, _VERSIONS),
    _family(
        "m2m_100", "M2M100ForConditionalGeneration", _read_m2m100, _write_m2m100,
        (*_STATIC, *_VERSIONS),
    ),
)  # fmt: skip
