"""GPT-2, OPT and GPT-NeoX: decoders with layer norms and biases."""

from typing import Any

from jaxformer.config import ModelConfig
from jaxformer.interop.conversion.activations import PLAIN, name_of
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import Family, ModelKind
from jaxformer.interop.conversion.layer_fields import read_rotary, write_rotary
from jaxformer.interop.conversion.layouts import (
    conv1d,
    dense,
    dense_by_group,
    linear,
    norm,
    projections,
    rows_from,
    same,
)
from jaxformer.interop.conversion.plain_fields import PlainFields, read_plain, write_plain

__all__ = ["GPT_FAMILIES"]

_QKV = tuple(f"{{stack}}/attention/{part}" for part in ("query", "key", "value"))

_H = "transformer.h.{layer}."
_GPT2 = {
    "transformer.wte.weight": same("embedding/embedding"),
    "transformer.wpe.weight": same("positions/embedding"),
    **norm(_H + "ln_1", "{stack}/attention_norm"),
    **conv1d(_H + "attn.c_attn", *_QKV),
    **conv1d(_H + "attn.c_proj", "{stack}/attention/output"),
    **norm(_H + "ln_2", "{stack}/feed_forward_norm"),
    **conv1d(_H + "mlp.c_fc", "{stack}/feed_forward/up"),
    **conv1d(_H + "mlp.c_proj", "{stack}/feed_forward/down"),
    **norm("transformer.ln_f", "final_norm"),
    "lm_head.weight": same("embedding/output_embedding"),
}
_GPT2_FIELDS: PlainFields = {
    "vocab_size": "vocab_size",
    "n_positions": ("max_len", 1024),
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "n_embd": "d_model",
    "n_inner": "d_ff",
    "layer_norm_epsilon": ("norm_eps", 1e-5),
    "tie_word_embeddings": ("tied_embeddings", True),
}


def _read_gpt2(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.alias(
        hidden_size="n_embd", max_position_embeddings="n_positions",
        num_attention_heads="n_head", num_hidden_layers="n_layer",
    )  # fmt: skip
    fields.require("scale_attn_by_inverse_layer_idx", False)
    # reorder_and_upcast_attn computes products in float32, which is always the case here.
    fields.skip("reorder_and_upcast_attn", "embd_pdrop", "resid_pdrop", "attn_pdrop", "n_ctx")
    fields.fill(n_inner=4 * fields.take("n_embd", int))
    return read_plain(fields, _GPT2_FIELDS) | {
        "positions": "learned",
        "activation": fields.choose("activation_function", PLAIN, "gelu_new"),
        "attention_scale": None if fields.take("scale_attn_weights", bool, True) else 1.0,
    }


def _write_gpt2(model: ModelConfig) -> dict[str, Any]:
    return write_plain(model, _GPT2_FIELDS) | {
        "activation_function": name_of(model.activation),
        "scale_attn_weights": model.attention_scale is None,
    }


_D = "model.decoder.layers.{layer}."
_OPT = {
    "model.decoder.embed_tokens.weight": same("embedding/embedding"),
    "model.decoder.embed_positions.weight": rows_from(2, "positions/embedding"),
    "model.decoder.project_in.weight": linear("embedding/projection_kernel"),
    "model.decoder.project_out.weight": linear("embedding/output_projection_kernel"),
    **norm(_D + "self_attn_layer_norm", "{stack}/attention_norm"),
    **projections(_D + "self_attn", "{stack}/attention", "out_proj"),
    **norm(_D + "final_layer_norm", "{stack}/feed_forward_norm"),
    **dense(_D + "fc1", "{stack}/feed_forward/up"),
    **dense(_D + "fc2", "{stack}/feed_forward/down"),
    **norm("model.decoder.final_layer_norm", "final_norm"),
    "lm_head.weight": same("embedding/output_embedding"),
}
_OPT_FIELDS: PlainFields = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": ("max_len", 2048),
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "d_model",
    "ffn_dim": "d_ff",
    "tie_word_embeddings": ("tied_embeddings", True),
}


def _read_opt(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    width = fields.take("hidden_size", int)
    table = fields.take("word_embed_proj_dim", int, width)
    if kind == "decoder_classifier":  # its head reads vectors of that width
        fields.require("word_embed_proj_dim", width)
    if table != width:  # as in the 350M model; an untied output is not supported then
        fields.require("tie_word_embeddings", True)
    fields.require("layer_norm_elementwise_affine", True)
    fields.require("_remove_final_layer_norm", False)
    fields.skip("dropout", "attention_dropout", "activation_dropout", "layerdrop")
    return read_plain(fields, _OPT_FIELDS) | {
        "embedding_dim": None if table == width else table,
        "positions": "learned",
        "norm_position": "pre" if fields.take("do_layer_norm_before", bool, True) else "post",
        "activation": fields.choose("activation_function", PLAIN, "relu"),
        "use_bias": fields.take("enable_bias", bool, True),
        "norm_bias": True,
    }


def _write_opt(model: ModelConfig) -> dict[str, Any]:
    return write_plain(model, _OPT_FIELDS) | {
        "word_embed_proj_dim": model.table_dim,
        "do_layer_norm_before": model.norm_position == "pre",
        "activation_function": name_of(model.activation),
        "enable_bias": model.has_bias("qkv"),
    }


_N = "gpt_neox.layers.{layer}."
_GPT_NEOX = {
    "gpt_neox.embed_in.weight": same("embedding/embedding"),
    **norm(_N + "input_layernorm", "{stack}/attention_norm"),
    **dense_by_group(_N + "attention.query_key_value", *_QKV),
    **dense(_N + "attention.dense", "{stack}/attention/output"),
    **norm(_N + "post_attention_layernorm", "{stack}/feed_forward_norm"),
    **dense(_N + "mlp.dense_h_to_4h", "{stack}/feed_forward/up"),
    **dense(_N + "mlp.dense_4h_to_h", "{stack}/feed_forward/down"),
    **norm("gpt_neox.final_layer_norm", "final_norm"),
    "embed_out.weight": same("embedding/output_embedding"),
}
_GPT_NEOX_FIELDS: PlainFields = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": ("max_len", 2048),
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
    "layer_norm_eps": ("norm_eps", 1e-5),
    "tie_word_embeddings": ("tied_embeddings", False),
}


def _read_gpt_neox(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.skip("attention_dropout", "hidden_dropout", "classifier_dropout")
    fields.require("is_decoder", False, True)
    values = read_plain(fields, _GPT_NEOX_FIELDS)
    # The usual names of these two are read inside rope_parameters only.
    fields.override(
        rope_theta=fields.take("rotary_emb_base", float, 10_000.0),
        partial_rotary_factor=fields.take("rotary_pct", float, 0.25),
    )
    head_dim = values["d_model"] // values["num_heads"]
    fields.require("head_dim", None, head_dim)
    parallel = fields.take("use_parallel_residual", bool, True)
    biases = fields.take("attention_bias", bool, True)
    return values | {
        "positions": read_rotary(fields, head_dim, values["max_len"], share=0.25),
        "residual": "parallel" if parallel else "sequential",
        "activation": fields.choose("hidden_act", PLAIN, "gelu"),
        "qkv_bias": biases,
        "attention_output_bias": biases,
    }


def _write_gpt_neox(model: ModelConfig) -> dict[str, Any]:
    return write_plain(model, _GPT_NEOX_FIELDS) | {
        "rope_parameters": {"partial_rotary_factor": 1.0} | write_rotary(model),
        "use_parallel_residual": model.residual == "parallel",
        "hidden_act": name_of(model.activation),
        "attention_bias": model.has_bias("qkv"),
    }


GPT_FAMILIES = (
    Family(
        model_type="gpt2", classes={"GPT2LMHeadModel": "decoder"}, read=_read_gpt2,
        write=_write_gpt2, tensors=_GPT2, prefix="transformer.",
        ignored=(_H + "attn.bias", _H + "attn.masked_bias"),
        copies={"lm_head.weight": "transformer.wte.weight"},
    ),
    Family(
        model_type="opt", classes={"OPTForCausalLM": "decoder"}, read=_read_opt, write=_write_opt,
        tensors=_OPT, prefix="model.",
        copies={"lm_head.weight": "model.decoder.embed_tokens.weight"},
    ),
    Family(
        model_type="gpt_neox", classes={"GPTNeoXForCausalLM": "decoder"}, read=_read_gpt_neox,
        write=_write_gpt_neox, tensors=_GPT_NEOX, prefix="gpt_neox.",
        ignored=(
            _N + "attention.bias", _N + "attention.masked_bias",
            _N + "attention.rotary_emb.inv_freq",
        ),
        copies={"embed_out.weight": "gpt_neox.embed_in.weight"},
    ),
)  # fmt: skip
