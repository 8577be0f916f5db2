"""GPT-2, OPT and GPT-NeoX: decoders with layer norms and biases."""

from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind, decoder_family
from jaxformer.interop.conversion.fields import (
    COMMON,
    FieldTable,
    Values,
    activation,
    biases,
    default_head_dim,
    only,
    switch,
)
from jaxformer.interop.conversion.layouts import QKV, dense, linear, norm, projections, same
from jaxformer.interop.conversion.rotary import rotary

_H = "transformer.h.{layer}."
_GPT2 = {
    "transformer.wte.weight": same("embedding/embedding"),
    "transformer.wpe.weight": same("positions/embedding"),
    **norm(_H + "ln_1", "{stack}/attention_norm"),
    **dense(_H + "attn.c_attn", *QKV, transposed=False),
    **dense(_H + "attn.c_proj", "{stack}/attention/output", transposed=False),
    **norm(_H + "ln_2", "{stack}/feed_forward_norm"),
    **dense(_H + "mlp.c_fc", "{stack}/feed_forward/up", transposed=False),
    **dense(_H + "mlp.c_proj", "{stack}/feed_forward/down", transposed=False),
    **norm("transformer.ln_f", "final_norm"),
    "lm_head.weight": same("embedding/output_embedding"),
}
GPT2_FIELDS: FieldTable = {
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
        **GPT2_FIELDS,
        "n_positions": ("max_len", 1024),
        "tie_word_embeddings": ("tied_embeddings", True),
        "scale_attn_weights": switch("attention_scale", None, 1.0),
        "scale_attn_by_inverse_layer_idx": only(False),
    },
    fixed={"positions": "learned"},
    tensors=_GPT2, prefix="transformer.",
    ignored=(_H + "attn.bias", _H + "attn.masked_bias"),
)  # fmt: skip


_D = "model.decoder.layers.{layer}."
_OPT = {
    "model.decoder.embed_tokens.weight": same("embedding/embedding"),
    "model.decoder.embed_positions.weight": same("positions/embedding", skipped_rows=2),
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


_N = "gpt_neox.layers.{layer}."
_GPT_NEOX = {
    "gpt_neox.embed_in.weight": same("embedding/embedding"),
    **norm(_N + "input_layernorm", "{stack}/attention_norm"),
    **dense(_N + "attention.query_key_value", *QKV, by_group=True),
    **dense(_N + "attention.dense", "{stack}/attention/output"),
    **norm(_N + "post_attention_layernorm", "{stack}/feed_forward_norm"),
    **dense(_N + "mlp.dense_h_to_4h", "{stack}/feed_forward/up"),
    **dense(_N + "mlp.dense_4h_to_h", "{stack}/feed_forward/down"),
    **norm("gpt_neox.final_layer_norm", "final_norm"),
    "embed_out.weight": same("embedding/output_embedding"),
}


def _rename_rotary(fields: ConfigFields, kind: ModelKind) -> None:
    """The usual names of these two are read inside rope_parameters only."""
    fields.override(
        rope_theta=fields.take("rotary_emb_base", float, 10_000.0),
        partial_rotary_factor=fields.take("rotary_pct", float, 0.25),
    )


_GPT_NEOX_FAMILY = decoder_family(
    "gpt_neox", "GPTNeoX",
    fields={
        **COMMON,
        "max_position_embeddings": ("max_len", 2048),
        "intermediate_size": "d_ff",
        "layer_norm_eps": ("norm_eps", 1e-5),
        "tie_word_embeddings": ("tied_embeddings", False),
        "head_dim": only(None, default_head_dim),
        "is_decoder": only(False, True),
        "use_parallel_residual": switch("residual", "parallel", "sequential"),
        "hidden_act": activation("gelu"),
        "attention_bias": biases(True),
        "rope_parameters": rotary(0.25),
    },
    before=_rename_rotary,
    tensors=_GPT_NEOX, prefix="gpt_neox.",
    ignored=(_N + "attention.bias", _N + "attention.masked_bias"),
)  # fmt: skip

GPT_FAMILIES = (_GPT2_FAMILY, _OPT_FAMILY, _GPT_NEOX_FAMILY)
