"""Marian, BART, mBART, M2M-100 (NLLB) and Pegasus: encoder-decoders with the same tensors."""

from typing import Any

from jaxformer.config import ModelConfig, SinusoidalConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import Family, ModelKind, no_values
from jaxformer.interop.conversion.fields import TIED, FieldTable, Values, activation, only
from jaxformer.interop.conversion.layouts import Layout, block, norm, same

_PROJECTIONS = "q_proj k_proj v_proj out_proj"


def _half(half: str) -> dict[str, Layout]:
    """Tensors that encoder and decoder both have."""
    return {
        f"model.{half}.embed_positions.weight": same(f"{half}/positions/embedding", skipped_rows=2),
        **norm(f"model.{half}.layernorm_embedding", f"{half}/embedding_norm"),
        **block(
            f"model.{half}.layers.{{layer}}.", f"{half}/{{stack}}",
            norms="self_attn_layer_norm final_layer_norm",
            attention=f"self_attn {_PROJECTIONS}", feed_forward="fc1 fc2",
        ),
        **norm(f"model.{half}.layer_norm", f"{half}/final_norm"),
    }  # fmt: skip


# Marian may have separate tables for source and target.
_TENSORS = {
    "model.shared.weight": same(
        "embedding/embedding", when=lambda model: model.source_vocab_size is None
    ),
    "model.encoder.embed_tokens.weight": same("source_embedding/embedding"),
    "model.decoder.embed_tokens.weight": same(
        "embedding/embedding", when=lambda model: model.source_vocab_size is not None
    ),
    **_half("encoder"),
    **_half("decoder"),
    **block(
        "model.decoder.layers.{layer}.", "decoder/{stack}", path="cross_attention",
        norms="encoder_attn_layer_norm", attention=f"encoder_attn {_PROJECTIONS}",
    ),
    "final_logits_bias": same("embedding/output_bias", leading=True),
    "lm_head.weight": same("embedding/output_embedding"),
}  # fmt: skip
_COPIES = dict.fromkeys(
    ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"),
    "model.shared.weight",
)
_FIELDS: FieldTable = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": ("max_len", 1024),
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_layers",
    "encoder_attention_heads": "num_heads",
    "encoder_ffn_dim": "d_ff",
    # Both halves must have the same numbers, as in all published models.
    "decoder_attention_heads": only(
        lambda values: values["num_heads"], write=lambda model: model.num_heads
    ),
    "decoder_ffn_dim": only(lambda values: values["d_ff"], write=lambda model: model.ff_dim),
    "d_model": "d_model",
    "scale_embedding": ("scale_embeddings", False),
    "tie_word_embeddings": ("tied_embeddings", True),
    "activation_function": activation("gelu"),
}


def _read_bias(fields: ConfigFields, *_: Any) -> Values:
    """A constant 0 in most models; files of the base model lack it."""
    return {"output_bias": "final_logits_bias" in fields.tensors}


def _read_marian(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    keys = _read_bias(fields)
    target = fields.take("decoder_vocab_size", int, values["vocab_size"])
    shared = fields.take("share_encoder_decoder_embeddings", bool, True)
    if shared:
        fields.require("decoder_vocab_size", None, values["vocab_size"])
    # Sharing means tying: if untied, each half has the table in the file.
    untied = not values["tied_embeddings"]
    if shared and not (untied and "model.encoder.embed_tokens.weight" in fields.tensors):
        return keys
    return keys | {"vocab_size": target, "source_vocab_size": values["vocab_size"]}


def _write_marian(model: ModelConfig) -> dict[str, Any]:
    source_size = model.source_vocab_size
    return {
        "vocab_size": model.vocab_size if source_size is None else source_size,
        "decoder_vocab_size": model.vocab_size,
        "share_encoder_decoder_embeddings": source_size is None,
    }


def _read_m2m100(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Wavelengths span half - 1 steps instead of half, and positions start after the padding id."""
    half = values["d_model"] // 2
    positions = SinusoidalConfig(layout="half", base=10_000.0 ** (half / (half - 1)), offset=2)
    return {"positions": positions, "output_bias": False}


def _read_pegasus(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Marian's positions, read from the file if it has them."""
    stored = "model.encoder.embed_positions.weight" in fields.tensors
    positions = "learned" if stored else SinusoidalConfig(layout="half")
    return _read_bias(fields) | {"positions": positions}


def _family(
    model_type: str, *names: str, fixed: Values | None = None, fields: FieldTable = TIED,
    special_read: Any = _read_bias, special_write: Any = no_values, tensors: Any = _TENSORS,
    **settings: Any,
) -> Family:  # fmt: skip
    return Family(
        model_type=model_type, classes=dict.fromkeys(names, "encoder_decoder"),
        fields={**_FIELDS, **fields},
        fixed={"architecture": "encoder_decoder", **(fixed or {})},
        special_write=lambda model: {"is_encoder_decoder": True} | special_write(model),
        special_read=special_read, tensors=tensors, prefix="model.", copies=_COPIES, **settings,
    )  # fmt: skip


_LEARNED = {"positions": "learned", "embedding_norm": True}
BART_FAMILIES = (
    # Post-norm; sines in the first half of the features, cosines in the second.
    _family(
        "marian", "MarianMTModel", fields={},
        fixed={"positions": SinusoidalConfig(layout="half"), "norm_position": "post"},
        special_read=_read_marian, special_write=_write_marian,
    ),
    # Post-norm, with a norm after the embeddings. The base model lacks only the output projection,
    # which is the embedding table.
    _family(
        "bart", "BartForConditionalGeneration", "BartModel",
        fixed=_LEARNED | {"norm_position": "post"},
    ),
    # BART with norms before the sublayers, as in the rest.
    _family("mbart", "MBartForConditionalGeneration", fixed=_LEARNED),
    _family(
        "m2m_100", "M2M100ForConditionalGeneration",
        fields={**TIED, "pad_token_id": only(1, write=lambda _: 1)},
        defaults={"activation_function": "relu", "scale_embedding": True},
        special_read=_read_m2m100,
    ),
    _family(
        "pegasus", "PegasusForConditionalGeneration", special_read=_read_pegasus,
        tensors=_TENSORS | {
            f"model.{half}.embed_positions.weight": same(f"{half}/positions/embedding")
            for half in ("encoder", "decoder")
        },
    ),
)  # fmt: skip
