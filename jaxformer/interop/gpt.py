"""GPT-2, OPT and GPT-NeoX: decoders with layer norms and biases."""

from typing import Any

from jaxformer.config import ModelConfig
from jaxformer.interop.config_fields import ConfigFields
from jaxformer.interop.family import Family, ModelKind
from jaxformer.interop.layer_fields import read_rotary, write_rotary
from jaxformer.interop.layouts import linear, linear_by_head, rows_from, same, same_by_head
from jaxformer.interop.llama import PLAIN

__all__ = ["GPT_FAMILIES"]

_NAMES = {ours: theirs for theirs, ours in reversed(PLAIN.items())}

_H = "transformer.h.{layer}."
_QKV = tuple(f"{{stack}}/attention/{part}_kernel" for part in ("query", "key", "value"))
_QKV_BIAS = tuple(f"{{stack}}/attention/{part}_bias" for part in ("query", "key", "value"))
# Kernels are [in, out] (Conv1D); queries, keys and values are one product.
_GPT2 = {
    "transformer.wte.weight": same("embedding/embedding"),
    "transformer.wpe.weight": same("positions/embedding"),
    _H + "ln_1.weight": same("{stack}/attention_norm/scale"),
    _H + "ln_1.bias": same("{stack}/attention_norm/bias"),
    _H + "attn.c_attn.weight": same(*_QKV),
    _H + "attn.c_attn.bias": same(*_QKV_BIAS),
    _H + "attn.c_proj.weight": same("{stack}/attention/output_kernel"),
    _H + "attn.c_proj.bias": same("{stack}/attention/output_bias"),
    _H + "ln_2.weight": same("{stack}/feed_forward_norm/scale"),
    _H + "ln_2.bias": same("{stack}/feed_forward_norm/bias"),
    _H + "mlp.c_fc.weight": same("{stack}/feed_forward/up_kernel"),
    _H + "mlp.c_fc.bias": same("{stack}/feed_forward/up_bias"),
    _H + "mlp.c_proj.weight": same("{stack}/feed_forward/down_kernel"),
    _H + "mlp.c_proj.bias": same("{stack}/feed_forward/down_bias"),
    "transformer.ln_f.weight": same("final_norm/scale"),
    "transformer.ln_f.bias": same("final_norm/bias"),
    "lm_head.weight": same("embedding/output_embedding"),
}


def _read_gpt2(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.require("scale_attn_by_inverse_layer_idx", False)
    # Where products are computed in float32, which here is always the case.
    fields.skip("reorder_and_upcast_attn", "embd_pdrop", "resid_pdrop", "attn_pdrop", "n_ctx")
    width = fields.take("n_embd", int)
    return {
        "vocab_size": fields.take("vocab_size", int),
        "max_len": fields.take("n_positions", int, 1024),
        "num_layers": fields.take("n_layer", int),
        "num_heads": fields.take("n_head", int),
        "d_model": width,
        "d_ff": fields.take("n_inner", int, 4 * width),
        "positions": "learned",
        "norm_eps": float(fields.take("layer_norm_epsilon", float, 1e-5)),
        "activation": fields.choose("activation_function", PLAIN, "gelu_new"),
        "attention_scale": None if fields.take("scale_attn_weights", bool, True) else 1.0,
        "tied_embeddings": fields.take("tie_word_embeddings", bool, True),
    }


def _write_gpt2(model: ModelConfig) -> dict[str, Any]:
    return {
        "vocab_size": model.vocab_size,
        "n_positions": model.max_len,
        "n_layer": model.num_layers,
        "n_head": model.num_heads,
        "n_embd": model.d_model,
        "n_inner": model.ff_dim,
        "layer_norm_epsilon": model.norm_eps,
        "activation_function": _NAMES.get(model.activation),
        "scale_attn_weights": model.attention_scale is None,
        "tie_word_embeddings": model.tied_embeddings,
    }


_D = "model.decoder.layers.{layer}."
# Two rows of the positions are never used: the first token has position 2.
_OPT = {
    "model.decoder.embed_tokens.weight": same("embedding/embedding"),
    "model.decoder.embed_positions.weight": rows_from(2, "positions/embedding"),
    _D + "self_attn_layer_norm.weight": same("{stack}/attention_norm/scale"),
    _D + "self_attn_layer_norm.bias": same("{stack}/attention_norm/bias"),
    _D + "self_attn.q_proj.weight": linear("{stack}/attention/query_kernel"),
    _D + "self_attn.q_proj.bias": same("{stack}/attention/query_bias"),
    _D + "self_attn.k_proj.weight": linear("{stack}/attention/key_kernel"),
    _D + "self_attn.k_proj.bias": same("{stack}/attention/key_bias"),
    _D + "self_attn.v_proj.weight": linear("{stack}/attention/value_kernel"),
    _D + "self_attn.v_proj.bias": same("{stack}/attention/value_bias"),
    _D + "self_attn.out_proj.weight": linear("{stack}/attention/output_kernel"),
    _D + "self_attn.out_proj.bias": same("{stack}/attention/output_bias"),
    _D + "final_layer_norm.weight": same("{stack}/feed_forward_norm/scale"),
    _D + "final_layer_norm.bias": same("{stack}/feed_forward_norm/bias"),
    _D + "fc1.weight": linear("{stack}/feed_forward/up_kernel"),
    _D + "fc1.bias": same("{stack}/feed_forward/up_bias"),
    _D + "fc2.weight": linear("{stack}/feed_forward/down_kernel"),
    _D + "fc2.bias": same("{stack}/feed_forward/down_bias"),
    "model.decoder.final_layer_norm.weight": same("final_norm/scale"),
    "model.decoder.final_layer_norm.bias": same("final_norm/bias"),
    "lm_head.weight": same("embedding/output_embedding"),
}


def _read_opt(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    width = fields.take("hidden_size", int)
    # A narrower table has projections on both ends, as only the 350M model has.
    fields.require("word_embed_proj_dim", width)
    fields.require("layer_norm_elementwise_affine", True)
    fields.require("_remove_final_layer_norm", False)
    fields.skip("dropout", "attention_dropout", "activation_dropout", "layerdrop")
    return {
        "vocab_size": fields.take("vocab_size", int),
        "max_len": fields.take("max_position_embeddings", int, 2048),
        "num_layers": fields.take("num_hidden_layers", int),
        "num_heads": fields.take("num_attention_heads", int),
        "d_model": width,
        "d_ff": fields.take("ffn_dim", int),
        "positions": "learned",
        "norm_position": "pre" if fields.take("do_layer_norm_before", bool, True) else "post",
        "activation": fields.choose("activation_function", PLAIN, "relu"),
        "use_bias": fields.take("enable_bias", bool, True),
        "norm_bias": True,
        "tied_embeddings": fields.take("tie_word_embeddings", bool, True),
    }


def _write_opt(model: ModelConfig) -> dict[str, Any]:
    return {
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_len,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "hidden_size": model.d_model,
        "word_embed_proj_dim": model.d_model,
        "ffn_dim": model.ff_dim,
        "do_layer_norm_before": model.norm_position == "pre",
        "activation_function": _NAMES.get(model.activation),
        "enable_bias": model.has_bias("qkv"),
        "tie_word_embeddings": model.tied_embeddings,
    }


_N = "gpt_neox.layers.{layer}."
# Queries, keys and values are one product, in which they alternate head by head.
_GPT_NEOX = {
    "gpt_neox.embed_in.weight": same("embedding/embedding"),
    _N + "input_layernorm.weight": same("{stack}/attention_norm/scale"),
    _N + "input_layernorm.bias": same("{stack}/attention_norm/bias"),
    _N + "attention.query_key_value.weight": linear_by_head(*_QKV),
    _N + "attention.query_key_value.bias": same_by_head(*_QKV_BIAS),
    _N + "attention.dense.weight": linear("{stack}/attention/output_kernel"),
    _N + "attention.dense.bias": same("{stack}/attention/output_bias"),
    _N + "post_attention_layernorm.weight": same("{stack}/feed_forward_norm/scale"),
    _N + "post_attention_layernorm.bias": same("{stack}/feed_forward_norm/bias"),
    _N + "mlp.dense_h_to_4h.weight": linear("{stack}/feed_forward/up_kernel"),
    _N + "mlp.dense_h_to_4h.bias": same("{stack}/feed_forward/up_bias"),
    _N + "mlp.dense_4h_to_h.weight": linear("{stack}/feed_forward/down_kernel"),
    _N + "mlp.dense_4h_to_h.bias": same("{stack}/feed_forward/down_bias"),
    "gpt_neox.final_layer_norm.weight": same("final_norm/scale"),
    "gpt_neox.final_layer_norm.bias": same("final_norm/bias"),
    "embed_out.weight": same("embedding/output_embedding"),
}


def _read_gpt_neox(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.skip("attention_dropout", "hidden_dropout", "classifier_dropout")
    fields.require("is_decoder", False, True)
    width, heads = fields.take("hidden_size", int), fields.take("num_attention_heads", int)
    longest = fields.take("max_position_embeddings", int, 2048)
    share = fields.take("rotary_pct", float, 0.25)
    base = fields.take("rotary_emb_base", float, 10_000.0)
    parallel = fields.take("use_parallel_residual", bool, True)
    biases = fields.take("attention_bias", bool, True)
    return {
        "vocab_size": fields.take("vocab_size", int),
        "max_len": longest,
        "num_layers": fields.take("num_hidden_layers", int),
        "num_heads": heads,
        "d_model": width,
        "d_ff": fields.take("intermediate_size", int),
        "positions": read_rotary(fields, width // heads, base, longest, share),
        "norm_eps": float(fields.take("layer_norm_eps", float, 1e-5)),
        "residual": "parallel" if parallel else "sequential",
        "activation": fields.choose("hidden_act", PLAIN, "gelu"),
        "qkv_bias": biases,
        "attention_output_bias": biases,
        "tied_embeddings": fields.take("tie_word_embeddings", bool, False),
    }


def _write_gpt_neox(model: ModelConfig) -> dict[str, Any]:
    return {
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_len,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "hidden_size": model.d_model,
        "intermediate_size": model.ff_dim,
        "rope_parameters": {"partial_rotary_factor": 1.0} | write_rotary(model),
        "layer_norm_eps": model.norm_eps,
        "use_parallel_residual": model.residual == "parallel",
        "hidden_act": _NAMES.get(model.activation),
        "attention_bias": model.has_bias("qkv"),
        "tie_word_embeddings": model.tied_embeddings,
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
