"""Llama, Mistral and Arcee, and the tables shared with related families."""

from typing import Any

from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import Family, decoder_family
from jaxformer.interop.conversion.fields import (
    COMMON,
    GATED,
    Field,
    FieldTable,
    Values,
    activation,
    biases,
    window,
)
from jaxformer.interop.conversion.layouts import dense, norm, projections, same
from jaxformer.interop.conversion.rotary import rotary

__all__ = [
    "ATTENTION",
    "ENDS",
    "FEED_FORWARD",
    "LAYER",
    "LLAMA_FAMILIES",
    "LLAMA_TENSORS",
    "PRE_NORMS",
    "llama_family",
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
    **projections(LAYER + "self_attn", "{stack}/attention"),
    LAYER + "self_attn.q_norm.weight": same("{stack}/attention/query_norm_scale"),
    LAYER + "self_attn.k_norm.weight": same("{stack}/attention/key_norm_scale"),
}
FEED_FORWARD = {
    **dense(LAYER + "mlp.gate_proj", "{stack}/feed_forward/gate"),
    **dense(LAYER + "mlp.up_proj", "{stack}/feed_forward/up"),
    **dense(LAYER + "mlp.down_proj", "{stack}/feed_forward/down"),
}
LLAMA_TENSORS = ENDS | PRE_NORMS | ATTENTION | FEED_FORWARD


def _kv_heads(fields: ConfigFields, name: str, values: Values) -> Values:
    """Null means num_attention_heads, whatever the family's default."""
    count = fields.optional(name, int, values["num_heads"])
    return {"num_kv_heads": values["num_heads"] if count is None else count}


def _mlp_bias(fields: ConfigFields, name: str, values: Values) -> Values:
    """Read from all files that have it, even where the family does not."""
    return {"feed_forward_bias": name in fields and fields.take(name, bool, False)}


_FIELDS: FieldTable = {
    **COMMON,
    "max_position_embeddings": ("max_len", 2048),
    "num_key_value_heads": Field(_kv_heads, lambda model: model.kv_heads),
    "head_dim": ("head_dim", lambda values: values["d_model"] // values["num_heads"]),
    "intermediate_size": "d_ff",
    "rms_norm_eps": ("norm_eps", 1e-6),
    "tie_word_embeddings": ("tied_embeddings", False),
    "hidden_act": activation("silu", GATED),
    "attention_bias": biases(False),
    "mlp_bias": Field(_mlp_bias, lambda model: model.has_bias("feed_forward")),
    "rope_parameters": rotary(),
}
_FIXED = {
    "architecture": "decoder", "norm": "rms_norm", "use_bias": False, "qkv_bias": False,
    "attention_output_bias": False,
}  # fmt: skip


def llama_family(
    model_type: str, name: str, *, fields: FieldTable | None = None, without: tuple[str, ...] = (),
    fixed: Values | None = None, skipped: tuple[str, ...] = (), tensors: Any = LLAMA_TENSORS,
    **others: Any,
) -> Family:  # fmt: skip
    """A family with Llama's fields, `without` some of them, and more; else as `Family`."""
    table = {field: entry for field, entry in _FIELDS.items() if field not in without}
    return decoder_family(
        model_type, name, fields=table | dict(fields or {}), fixed=_FIXED | (fixed or {}),
        skipped=("attention_dropout", *skipped), tensors=tensors, prefix="model.",
        # Constants that older versions saved.
        ignored=(LAYER + "self_attn.rotary_emb.inv_freq",), **others,
    )  # fmt: skip


LLAMA_FAMILIES = (
    # pretraining_tp only says how a product was split over devices in training.
    llama_family(
        "llama", "Llama", more=("LLaMAForCausalLM",),  # the oldest name
        skipped=("pretraining_tp",),
    ),
    llama_family(
        "mistral", "Mistral", without=("attention_bias",), unwritten=("mlp_bias",),
        fields={"sliding_window": window(4096)},
        defaults={"max_position_embeddings": 131_072, "num_key_value_heads": 8},
    ),
    # Llama without a gate.
    llama_family(
        "arcee", "Arcee", fields={"hidden_act": activation("relu2")},
        defaults={"max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
        note="Llama with a squared ReLU in place of the gate; transformers reads it from 4.53 on",
    ),
)  # fmt: skip
