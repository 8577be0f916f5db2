"""Falcon: decoders, most with parallel sublayers and few key/value heads."""

import dataclasses
from typing import Any

from jaxformer.config import ModelConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind, decoder_family
from jaxformer.interop.conversion.fields import COMMON, Values, activation, only
from jaxformer.interop.conversion.layouts import QKV, Layout, dense, norm, same
from jaxformer.interop.conversion.rotary import rotary

__all__ = ["FALCON_FAMILIES"]

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
        fields.skip("multi_query")
        fields.require("parallel_attn", True)
        norms = {2: "parallel", 1: "parallel_one_norm"}
        return {
            "num_kv_heads": fields.take("num_kv_heads", int, num_heads),
            "residual": fields.choose("num_ln_in_parallel_attn", norms, 2),
        }
    one = fields.take("multi_query", bool, True)
    parallel = fields.take("parallel_attn", bool, True)
    if one:
        fields.skip("num_kv_heads")
    else:
        fields.require("num_kv_heads", num_heads)
    if parallel:
        fields.require("num_ln_in_parallel_attn", 1)
    else:
        fields.skip("num_ln_in_parallel_attn")
    return {
        "num_kv_heads": 1 if one else num_heads,
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


FALCON_FAMILIES = (
    decoder_family(
        "falcon", "Falcon",
        fields={
            # transformers rounds ALiBi biases to bfloat16, so nearby keys get the same bias; with
            # eager attention, it adds them twice.
            "alibi": only(False, written=True),
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
        # ff_factor was used to compute ffn_hidden_size.
        skipped=("hidden_dropout", "attention_dropout", "ff_factor"),
        special_read=_read_variant,
        special_write=_write_variant,
        tensors=_FALCON, prefix="transformer.",
    ),
)  # fmt: skip
