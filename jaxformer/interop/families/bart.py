"""Marian, BART, mBART, M2M-100 (NLLB) and Pegasus: encoder-decoders with the same tensors."""

from typing import Any

from jaxformer.config import ModelConfig, SinusoidalConfig
from jaxformer.interop.conversion.activations import OLDER, name_of
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import Family, ModelKind
from jaxformer.interop.conversion.layouts import (
    Layout,
    dense,
    norm,
    projections,
    row,
    rows_from,
    same,
)
from jaxformer.interop.conversion.plain_fields import PlainFields, read_plain, write_plain

__all__ = ["BART_FAMILIES"]


def _half(half: str) -> dict[str, Layout]:
    """Tensors that encoder and decoder both have."""
    layer, stack = f"model.{half}.layers.{{layer}}.", f"{half}/{{stack}}"
    return {
        f"model.{half}.embed_positions.weight": rows_from(2, f"{half}/positions/embedding"),
        **norm(f"model.{half}.layernorm_embedding", f"{half}/embedding_norm"),
        **projections(layer + "self_attn", f"{stack}/attention", "out_proj"),
        **norm(layer + "self_attn_layer_norm", f"{stack}/attention_norm"),
        **dense(layer + "fc1", f"{stack}/feed_forward/up"),
        **dense(layer + "fc2", f"{stack}/feed_forward/down"),
        **norm(layer + "final_layer_norm", f"{stack}/feed_forward_norm"),
        **norm(f"model.{half}.layer_norm", f"{half}/final_norm"),
    }


# Marian may have separate tables for source and target.
_OWN = "source_embedding/embedding"
_D = "model.decoder.layers.{layer}."
_TENSORS = {
    "model.shared.weight": same("embedding/embedding", unless=_OWN),
    "model.encoder.embed_tokens.weight": same(_OWN),
    "model.decoder.embed_tokens.weight": same("embedding/embedding", where=_OWN),
    **_half("encoder"),
    **_half("decoder"),
    **projections(_D + "encoder_attn", "decoder/{stack}/cross_attention", "out_proj"),
    **norm(_D + "encoder_attn_layer_norm", "decoder/{stack}/cross_attention_norm"),
    "final_logits_bias": row("embedding/output_bias"),
    "lm_head.weight": same("embedding/output_embedding"),
}
_COPIES = dict.fromkeys(
    ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"),
    "model.shared.weight",
)
_FIELDS: PlainFields = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": ("max_len", 1024),
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_layers",
    "encoder_attention_heads": "num_heads",
    "encoder_ffn_dim": "d_ff",
    "d_model": "d_model",
    "scale_embedding": ("scale_embeddings", False),
    "tie_word_embeddings": ("tied_embeddings", True),
}


def _read(fields: ConfigFields) -> dict[str, Any]:
    fields.skip(
        "dropout", "attention_dropout", "activation_dropout", "classifier_dropout",
        "classif_dropout", "encoder_layerdrop", "decoder_layerdrop",
        # Norms and positions follow the model_type, whatever these say.
        "normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits",
        "static_position_embeddings", "extra_pos_embeddings", "is_decoder", "save_step",
    )  # fmt: skip
    fields.alias(
        hidden_size="d_model", num_attention_heads="encoder_attention_heads",
        num_hidden_layers="encoder_layers",
    )  # fmt: skip
    values = read_plain(fields, _FIELDS)
    # Both halves must have the same numbers, as in all published models.
    fields.require("decoder_attention_heads", values["num_heads"])
    fields.require("decoder_ffn_dim", values["d_ff"])
    return values | {
        "architecture": "encoder_decoder",
        "activation": fields.choose("activation_function", OLDER, "gelu"),
        # A constant 0 in most models; files of the base model lack it.
        "output_bias": fields.has_tensor("final_logits_bias"),
    }


def _write(model: ModelConfig) -> dict[str, Any]:
    return write_plain(model, _FIELDS) | {
        "decoder_attention_heads": model.num_heads,
        "decoder_ffn_dim": model.ff_dim,
        "activation_function": name_of(model.activation, OLDER),
        "is_encoder_decoder": True,
    }


def _read_marian(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Post-norm; sines in the first half of the features, cosines in the second."""
    values = _read(fields) | {
        "positions": SinusoidalConfig(layout="half"), "norm_position": "post"
    }  # fmt: skip
    target = fields.take("decoder_vocab_size", int, values["vocab_size"])
    shared = fields.take("share_encoder_decoder_embeddings", bool, True)
    if shared:
        fields.require("decoder_vocab_size", None, values["vocab_size"])
    # Sharing means tying: if untied, each half has the table in the file.
    untied = not values["tied_embeddings"]
    if shared and not (untied and fields.has_tensor("model.encoder.embed_tokens.weight")):
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
    # Wavelengths span half - 1 steps instead of half, and positions start after the padding id.
    half = width // 2
    return SinusoidalConfig(layout="half", base=10_000.0 ** (half / (half - 1)), offset=2)


def _read_m2m100(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Norms before the sublayers; no bias on the logits."""
    fields.require("pad_token_id", 1)
    fields.require("tie_word_embeddings", True)
    fields.fill(activation_function="relu", scale_embedding=True)
    values = _read(fields)
    return values | {"positions": _m2m100_positions(values["d_model"]), "output_bias": False}


def _write_m2m100(model: ModelConfig) -> dict[str, Any]:
    return _write(model) | {"pad_token_id": 1}


def _read_pegasus(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Norms before the sublayers; Marian's positions, read from the file if it has them."""
    fields.require("tie_word_embeddings", True)
    stored = fields.has_tensor("model.encoder.embed_positions.weight")
    return _read(fields) | {"positions": "learned" if stored else SinusoidalConfig(layout="half")}


def _family(
    model_type: str, names: tuple[str, ...], read: Any, write: Any, ignored: tuple[str, ...] = (),
    tensors: dict[str, Layout] = _TENSORS,
) -> Family:  # fmt: skip
    return Family(
        model_type=model_type, classes=dict.fromkeys(names, "encoder_decoder"), read=read,
        write=write, tensors=tensors, prefix="model.", ignored=ignored, copies=_COPIES,
        auto_class="AutoModelForSeq2SeqLM",
    )  # fmt: skip


# Tables of sinusoidal positions, which are computed instead of read.
_STATIC = tuple(
    f"model.{half}.embed_positions.{name}"
    for half in ("encoder", "decoder")
    for name in ("weight", "weights")
)
_VERSIONS = ("model.encoder.version", "model.decoder.version")
BART_FAMILIES = (
    # A shared table is unused if both halves have their own.
    _family(
        "marian", ("MarianMTModel",), _read_marian, _write_marian,
        (*_STATIC, "model.shared.weight"),
    ),
    # The base model lacks only the output projection, which is the embedding table.
    _family(
        "bart", ("BartForConditionalGeneration", "BartModel"), _read_bart, _write, _VERSIONS
    ),
    _family("mbart", ("MBartForConditionalGeneration",), _read_mbart, _write, _VERSIONS),
    _family(
        "m2m_100", ("M2M100ForConditionalGeneration",), _read_m2m100, _write_m2m100,
        (*_STATIC, *_VERSIONS),
    ),
    _family(
        "pegasus", ("PegasusForConditionalGeneration",), _read_pegasus, _write,
        tensors=_TENSORS | {
            f"model.{half}.embed_positions.weight": same(f"{half}/positions/embedding")
            for half in ("encoder", "decoder")
        },
    ),
)  # fmt: skip
