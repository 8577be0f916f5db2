"""Falcon, GPT-J and Phi 1 to 2: decoders with parallel sublayers."""

import dataclasses
from typing import Any

from jaxformer.config import ModelConfig, RotaryConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind, decoder_family
from jaxformer.interop.conversion.fields import (
    COMMON,
    Field,
    Values,
    activation,
    default_head_dim,
    only,
)
from jaxformer.interop.conversion.layouts import QKV, Layout, dense, norm, projections, same
from jaxformer.interop.conversion.rotary import rotary
from jaxformer.interop.families.gpt import GPT2_FIELDS

_H = "transformer.h.{layer}."


def _norm_of(name: str, path: str, *residuals: str) -> dict[str, tuple[Layout, ...]]:
    """A norm that has this name in models with these values of `residual`."""
    return {
        full: tuple(dataclasses.replace(layout, residual=residual) for residual in residuals)
        for full, layout in norm(_H + name, f"{{stack}}/{path}_norm").items()
    }


_FALCON = {
    "transformer.word_embeddings.weight": same("embedding/embedding"),
    **_norm_of("input_layernorm", "attention", "sequential", "parallel_one_norm"),
    **_norm_of("post_attention_layernorm", "feed_forward", "sequential"),
    **_norm_of("ln_attn", "attention", "parallel"),
    **_norm_of("ln_mlp", "feed_forward", "parallel"),
    **dense(_H + "self_attention.query_key_value", *QKV, by_group=True),
    **dense(_H + "self_attention.dense", "{stack}/attention/output"),
    **dense(_H + "mlp.dense_h_to_4h", "{stack}/feed_forward/up"),
    **dense(_H + "mlp.dense_4h_to_h", "{stack}/feed_forward/down"),
    **norm("transformer.ln_f", "final_norm"),
    "lm_head.weight": same("embedding/output_embedding"),
}


def _read_variant(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Key/value heads and residual sums, of models like Falcon 40B or of older ones."""
    num_heads = values["num_heads"]
    if fields.take("new_decoder_architecture", bool, False):
        fields.require("parallel_attn", True)
        norms = {2: "parallel", 1: "parallel_one_norm"}
        return {
            "num_kv_heads": fields.take("num_kv_heads", int, num_heads),
            "residual": fields.choose("num_ln_in_parallel_attn", norms, 2),
        }
    has_one_head = fields.take("multi_query", bool, True)
    parallel = fields.take("parallel_attn", bool, True)
    if not has_one_head:
        fields.require("num_kv_heads", num_heads)
    if parallel:
        fields.require("num_ln_in_parallel_attn", 1)
    return {
        "num_kv_heads": 1 if has_one_head else num_heads,
        "residual": "parallel_one_norm" if parallel else "sequential",
    }


def _write_variant(model: ModelConfig) -> dict[str, Any]:
    ungrouped = model.kv_heads in (1, model.num_heads)
    is_new = model.residual == "parallel" or not ungrouped
    return {
        "new_decoder_architecture": is_new,
        "num_ln_in_parallel_attn": (2 if model.residual == "parallel" else 1) if is_new else None,
        "parallel_attn": model.residual != "sequential",
        "multi_query": model.kv_heads == 1,
        "num_kv_heads": model.kv_heads,
    }


_FALCON_FAMILY = decoder_family(
    "falcon", "Falcon",
    fields={
        # transformers rounds ALiBi biases to bfloat16, so nearby keys get the same bias; with
        # eager attention, it adds them twice.
        "alibi": only(False, write=lambda _: False),
        "apply_residual_connection_post_layernorm": only(False),
        **COMMON,
        "max_position_embeddings": ("max_len", 2048),
        "ffn_hidden_size": ("d_ff", lambda values: 4 * values["d_model"]),
        "layer_norm_epsilon": ("norm_eps", 1e-5),
        "tie_word_embeddings": ("tied_embeddings", True),
        "rope_parameters": rotary(),
        "activation": activation("gelu"),
        "bias": ("use_bias", False),
    },
    fixed={"norm_bias": True},
    special_read=_read_variant, special_write=_write_variant,
    tensors=_FALCON, prefix="transformer.",
)  # fmt: skip


_SHARED = {"residual": "parallel_one_norm", "output_bias": True}
_HEAD = {
    "lm_head.weight": same("embedding/output_embedding"),
    "lm_head.bias": same("embedding/output_bias"),
}

_GPTJ = _HEAD | {
    "transformer.wte.weight": same("embedding/embedding"),
    **norm(_H + "ln_1", "{stack}/attention_norm"),
    **projections(_H + "attn", "{stack}/attention", "out_proj"),
    **dense(_H + "mlp.fc_in", "{stack}/feed_forward/up"),
    **dense(_H + "mlp.fc_out", "{stack}/feed_forward/down"),
    **norm("transformer.ln_f", "final_norm"),
}


def _read_rotary(fields: ConfigFields, name: str, values: Values) -> Values:
    width = fields.optional(name, int, 64)
    return {"positions": RotaryConfig(layout="interleaved", rotary_dim=width)}


def _write_rotary(model: ModelConfig) -> int:
    rotary_dim = model.positions.rotary_dim if isinstance(model.positions, RotaryConfig) else None
    return rotary_dim or model.key_dim


_GPTJ_FAMILY = decoder_family(
    "gptj", "GPTJ",
    fields={
        **GPT2_FIELDS,
        "n_positions": ("max_len", 2048),
        "tie_word_embeddings": ("tied_embeddings", False),
        "rotary_dim": Field(_read_rotary, _write_rotary),
    },
    fixed=_SHARED | {"qkv_bias": False, "attention_output_bias": False},
    tensors=_GPTJ, prefix="transformer.",
    ignored=(_H + "attn.bias", _H + "attn.masked_bias"),
)  # fmt: skip


_L = "model.layers.{layer}."
_PHI = _HEAD | {
    "model.embed_tokens.weight": same("embedding/embedding"),
    **norm(_L + "input_layernorm", "{stack}/attention_norm"),
    **projections(_L + "self_attn", "{stack}/attention", "dense"),
    **dense(_L + "mlp.fc1", "{stack}/feed_forward/up"),
    **dense(_L + "mlp.fc2", "{stack}/feed_forward/down"),
    **norm("model.final_layernorm", "final_norm"),
}
_PHI_FAMILY = decoder_family(
    "phi", "Phi",
    fields={
        **COMMON,
        "max_position_embeddings": ("max_len", 2048),
        "num_key_value_heads": ("num_kv_heads", lambda values: values["num_heads"]),
        "head_dim": ("head_dim", default_head_dim),
        "intermediate_size": "d_ff",
        "layer_norm_eps": ("norm_eps", 1e-5),
        "tie_word_embeddings": ("tied_embeddings", False),
        "qk_layernorm": only(False),  # no published model has these norms
        "hidden_act": activation("gelu_new"),
        "rope_parameters": rotary(0.5),
    },
    fixed=_SHARED,
    tensors=_PHI, prefix="model.",
)  # fmt: skip

PARALLEL_FAMILIES = (_FALCON_FAMILY, _GPTJ_FAMILY, _PHI_FAMILY)
