"""Llama, Mistral and Arcee, and code shared with related families."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxformer.config import ModelConfig
from jaxformer.interop.conversion.activations import GATED, PLAIN, name_of
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import Family, ModelKind
from jaxformer.interop.conversion.layer_fields import (
    one_window,
    read_rotary,
    write_rotary,
    write_window,
)
from jaxformer.interop.conversion.layouts import Layout, dense, norm, projections, same
from jaxformer.interop.conversion.plain_fields import PlainFields, read_plain, write_plain

__all__ = [
    "ATTENTION",
    "ENDS",
    "FEED_FORWARD",
    "LAYER",
    "LLAMA_FAMILIES",
    "LLAMA_TENSORS",
    "PRE_NORMS",
    "decoder_family",
    "read_llama",
    "write_llama",
]

LAYER = "model.layers.{layer}."
ENDS = {
    "model.embed_tokens.weight": same("embedding/embedding"),
    **norm("model.norm", "final_norm"),
    "lm_head.weight": same("embedding/output_embedding"),
}
PRE_NORMS = {
    **norm(LAYER + "input_layernorm", "{stack}/attention_norm"),
    **norm(LAYER + "post_attention_layernorm", "{stack}/feed_forward_norm"),
}
ATTENTION = {
    **projections(LAYER + "self_attn", "{stack}/attention", "o_proj"),
    LAYER + "self_attn.q_norm.weight": same("{stack}/attention/query_norm_scale"),
    LAYER + "self_attn.k_norm.weight": same("{stack}/attention/key_norm_scale"),
}
FEED_FORWARD = {
    **dense(LAYER + "mlp.gate_proj", "{stack}/feed_forward/gate"),
    **dense(LAYER + "mlp.up_proj", "{stack}/feed_forward/up"),
    **dense(LAYER + "mlp.down_proj", "{stack}/feed_forward/down"),
}
LLAMA_TENSORS = ENDS | PRE_NORMS | ATTENTION | FEED_FORWARD


def decoder_family(
    model_type: str, name: str, read: Any, write: Any, tensors: Mapping[str, Layout]
) -> Family:
    """A family of decoders whose class is `{name}ForCausalLM`."""
    return Family(
        model_type=model_type, classes={f"{name}ForCausalLM": "decoder"}, read=read, write=write,
        tensors=tensors, prefix="model.",
        # Constants that older versions saved.
        ignored=(LAYER + "self_attn.rotary_emb.inv_freq",),
        copies={"lm_head.weight": "model.embed_tokens.weight"},
    )  # fmt: skip


_FIELDS: PlainFields = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": ("max_len", 2048),
    "num_hidden_layers": "num_layers",
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "intermediate_size": "d_ff",
    "rms_norm_eps": ("norm_eps", 1e-6),
    "tie_word_embeddings": ("tied_embeddings", False),
}


def read_llama(
    fields: ConfigFields, *, acts: Mapping[str, str] = GATED, act_field: str = "hidden_act",
    has_biases: bool = True, has_rotary: bool = True, share: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Arguments of a `ModelConfig` from the fields that Llama and related families share.

    Args:
        fields: fields of the config, filled with the family's defaults that differ from Llama's.
        acts: jaxformer's names of the activations.
        act_field: name of the activation's field.
        has_biases: whether the family has `attention_bias`; and `mlp_bias`, if the file has it.
        has_rotary: whether all layers have the same rotary positions; if not, the caller sets them.
        share: default of `partial_rotary_factor`, for a family that has it.
    """
    fields.skip("attention_dropout")
    width, heads = fields.take("hidden_size", int), fields.take("num_attention_heads", int)
    fields.fill(head_dim=width // heads, num_key_value_heads=heads)
    values = read_plain(fields, _FIELDS)
    if fields.optional("num_key_value_heads", int, heads) is None:
        values["num_kv_heads"] = heads  # null means heads, whatever the family's default
    if has_rotary:
        values["positions"] = read_rotary(fields, values["head_dim"], values["max_len"], share)
    attention = has_biases and fields.take("attention_bias", bool, False)
    return values | {
        "architecture": "decoder",
        "norm": "rms_norm",
        "activation": fields.choose(act_field, acts, "silu"),
        "use_bias": False,
        "qkv_bias": attention,
        "attention_output_bias": attention,
        "feed_forward_bias": "mlp_bias" in fields and fields.take("mlp_bias", bool, False),
    }


def write_llama(
    model: ModelConfig, *without: str, acts: Mapping[str, str] = GATED,
    act_field: str = "hidden_act",
) -> dict[str, Any]:  # fmt: skip
    """Fields of a `ModelConfig`, except those that a family does not have."""
    values = write_plain(model, _FIELDS) | {
        "rope_parameters": write_rotary(model),
        act_field: name_of(model.activation, acts),
        "attention_bias": model.has_bias("qkv"),
        "mlp_bias": model.has_bias("feed_forward"),
    }
    return {name: value for name, value in values.items() if name not in without}


def _read_llama(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    # pretraining_tp only says how a product was split over devices in training.
    fields.skip("pretraining_tp")
    return read_llama(fields)


def _read_arcee(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Llama without a gate."""
    fields.fill(hidden_act="relu2", max_position_embeddings=4096, rms_norm_eps=1e-5)
    return read_llama(fields, acts=PLAIN)


def _write_arcee(model: ModelConfig) -> dict[str, Any]:
    return write_llama(model, acts=PLAIN)


def _read_mistral(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.fill(max_position_embeddings=131_072, num_key_value_heads=8)
    return read_llama(fields, has_biases=False) | {"local_window_size": one_window(fields, 4096)}


def _write_mistral(model: ModelConfig) -> dict[str, Any]:
    return write_llama(model, "attention_bias", "mlp_bias") | write_window(model)


LLAMA_FAMILIES = (
    dataclasses.replace(
        decoder_family("llama", "Llama", _read_llama, write_llama, LLAMA_TENSORS),
        classes={"LlamaForCausalLM": "decoder", "LLaMAForCausalLM": "decoder"},  # oldest name
    ),
    decoder_family("mistral", "Mistral", _read_mistral, _write_mistral, LLAMA_TENSORS),
    dataclasses.replace(
        decoder_family("arcee", "Arcee", _read_arcee, _write_arcee, LLAMA_TENSORS),
        note="Llama with a squared ReLU in place of the gate; transformers reads it from 4.53 on",
    ),
)
