"""GPT-2, OPT, GPT-NeoX, Falcon, GPT-J and Phi 1 to 2: decoders with layer norms."""

from typing import Any

from jaxformer.config import ModelConfig, RotaryConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind, decoder_family
from jaxformer.interop.conversion.fields import (
    COMMON,
    Field,
    FieldTable,
    Values,
    activation,
    biases,
    default_head_dim,
    only,
    switch,
)
from jaxformer.interop.conversion.layers import rotary
from jaxformer.interop.conversion.layouts import block, linear, norm, same

_S = "{stack}"  # path of the parameters of a layer
_H = "transformer.h.{layer}."
_GPT2 = {
    "transformer.wte.weight": same("embedding/embedding"),
    "transformer.wpe.weight": same("positions/embedding"),
    **block(
        _H, _S, norms="ln_1 ln_2", attention="attn c_attn c_proj",
        feed_forward="mlp.c_fc mlp.c_proj", transposed=False,
    ),
    **norm("transformer.ln_f", "final_norm"),
    "lm_head.weight": same("embedding/output_embedding"),
}  # fmt: skip
_GPT2_FIELDS: FieldTable = {
    "vocab_size": "vocab_size",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "n_embd": "d_model",
    "n_inner": ("d_ff", lambda values: 4 * values["d_model"]),
    "layer_norm_epsilon": ("norm_eps", 1e-5),
    "activation_function": activation("gelu_new"),
}
_GPT2_FAMILY = decoder_family(
    "gpt2", "GPT2", head="LMHeadModel",
    fields={
        **_GPT2_FIELDS,
        "n_positions": ("max_len", 1024),
        "tie_word_embeddings": ("tied_embeddings", True),
        "scale_attn_weights": switch("attention_scale", None, 1.0),
        "scale_attn_by_inverse_layer_idx": only(False),
    },
    fixed={"positions": "learned"},
    tensors=_GPT2, prefix="transformer.",
)  # fmt: skip


_OPT = {
    "model.decoder.embed_tokens.weight": same("embedding/embedding"),
    "model.decoder.embed_positions.weight": same("positions/embedding", skipped_rows=2),
    "model.decoder.project_in.weight": linear("embedding/projection_kernel"),
    "model.decoder.project_out.weight": linear("embedding/output_projection_kernel"),
    **block(
        "model.decoder.layers.{layer}.", _S, norms="self_attn_layer_norm final_layer_norm",
        attention="self_attn q_proj k_proj v_proj out_proj", feed_forward="fc1 fc2",
    ),
    **norm("model.decoder.final_layer_norm", "final_norm"),
    "lm_head.weight": same("embedding/output_embedding"),
}  # fmt: skip


def _read_opt(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    width = values["d_model"]
    table = fields.take("word_embed_proj_dim", int, width)
    if kind == "decoder_classifier":  # its head reads vectors of that width
        fields.require("word_embed_proj_dim", width)
    if table != width:  # as in the 350M model; an untied output is not supported then
        fields.require("tie_word_embeddings", True)
    return {"embedding_dim": None if table == width else table}


_OPT_FAMILY = decoder_family(
    "opt", "OPT",
    fields={
        **COMMON,
        "max_position_embeddings": ("max_len", 2048),
        "ffn_dim": "d_ff",
        "tie_word_embeddings": ("tied_embeddings", True),
        "layer_norm_elementwise_affine": only(True),
        "_remove_final_layer_norm": only(False),
        "do_layer_norm_before": switch("norm_position", "pre", "post"),
        "activation_function": activation("relu"),
        "enable_bias": ("use_bias", True),
    },
    fixed={"positions": "learned", "norm_bias": True},
    special_read=_read_opt,
    special_write=lambda model: {"word_embed_proj_dim": model.table_dim},
    tensors=_OPT, prefix="model.",
)  # fmt: skip


_GPT_NEOX = {
    "gpt_neox.embed_in.weight": same("embedding/embedding"),
    **block(
        "gpt_neox.layers.{layer}.", _S, norms="input_layernorm post_attention_layernorm",
        attention="attention query_key_value dense", interleaved="heads",
        feed_forward="mlp.dense_h_to_4h mlp.dense_4h_to_h",
    ),
    **norm("gpt_neox.final_layer_norm", "final_norm"),
    "embed_out.weight": same("embedding/output_embedding"),
}  # fmt: skip


def _read_neox_rotary(fields: ConfigFields, name: str, values: Values) -> Values:
    """The usual names of these two are read inside rope_parameters only."""
    fields = fields.changed(
        rope_theta=fields.take("rotary_emb_base", float, 10_000.0),
        partial_rotary_factor=fields.take("rotary_pct", float, 0.25),
    )
    return rotary(0.25).read(fields, name, values)


_GPT_NEOX_FAMILY = decoder_family(
    "gpt_neox", "GPTNeoX",
    fields={
        **COMMON,
        "max_position_embeddings": ("max_len", 2048),
        "intermediate_size": "d_ff",
        "layer_norm_eps": ("norm_eps", 1e-5),
        "tie_word_embeddings": ("tied_embeddings", False),
        "head_dim": only(None, default_head_dim),
        "use_parallel_residual": switch("residual", "parallel", "sequential"),
        "hidden_act": activation("gelu"),
        "attention_bias": biases(True),
        "rope_parameters": Field(_read_neox_rotary, rotary(0.25).write),
    },
    tensors=_GPT_NEOX, prefix="gpt_neox.",
)  # fmt: skip


_FALCON = {
    "transformer.word_embeddings.weight": same("embedding/embedding"),
    **block(
        _H, _S, norms="input_layernorm post_attention_layernorm",
        when=lambda model: model.residual != "parallel",
    ),
    **block(_H, _S, norms="ln_attn ln_mlp", when=lambda model: model.residual == "parallel"),
    **block(
        _H, _S, attention="self_attention query_key_value dense", interleaved="heads",
        feed_forward="mlp.dense_h_to_4h mlp.dense_4h_to_h",
    ),
    **norm("transformer.ln_f", "final_norm"),
    "lm_head.weight": same("embedding/output_embedding"),
}  # fmt: skip


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
    **block(
        _H, _S, norms="ln_1", attention="attn q_proj k_proj v_proj out_proj",
        feed_forward="mlp.fc_in mlp.fc_out",
    ),
    **norm("transformer.ln_f", "final_norm"),
}  # fmt: skip


def _read_gptj_rotary(fields: ConfigFields, name: str, values: Values) -> Values:
    width = fields.optional(name, int, 64)
    return {"positions": RotaryConfig(layout="interleaved", rotary_dim=width)}


def _write_gptj_rotary(model: ModelConfig) -> int:
    rotary_dim = model.positions.rotary_dim if isinstance(model.positions, RotaryConfig) else None
    return rotary_dim or model.key_dim


_GPTJ_FAMILY = decoder_family(
    "gptj", "GPTJ",
    fields={
        **_GPT2_FIELDS,
        "n_positions": ("max_len", 2048),
        "tie_word_embeddings": ("tied_embeddings", False),
        "rotary_dim": Field(_read_gptj_rotary, _write_gptj_rotary),
    },
    fixed=_SHARED | {"qkv_bias": False, "attention_output_bias": False},
    tensors=_GPTJ, prefix="transformer.",
)  # fmt: skip


_PHI = _HEAD | {
    "model.embed_tokens.weight": same("embedding/embedding"),
    **block(
        "model.layers.{layer}.", _S, norms="input_layernorm",
        attention="self_attn q_proj k_proj v_proj dense", feed_forward="mlp.fc1 mlp.fc2",
    ),
    **norm("model.final_layernorm", "final_norm"),
}  # fmt: skip
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

GPT_FAMILIES = (_GPT2_FAMILY, _OPT_FAMILY, _GPT_NEOX_FAMILY)
PARALLEL_FAMILIES = (_FALCON_FAMILY, _GPTJ_FAMILY, _PHI_FAMILY)
