"""GPT-J and Phi 1 to 2: decoders with parallel sublayers, one norm for both, and biased logits."""

from jaxformer.config import ModelConfig, RotaryConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import decoder_family
from jaxformer.interop.conversion.fields import COMMON, Field, Values, activation, only
from jaxformer.interop.conversion.layouts import dense, norm, projections, same
from jaxformer.interop.conversion.rotary import rotary
from jaxformer.interop.families.gpt import GPT2_ALIASES, GPT2_FIELDS

__all__ = ["GPTJ_FAMILIES"]

_SHARED = {"residual": "parallel_one_norm", "output_bias": True}
_HEAD = {
    "lm_head.weight": same("embedding/output_embedding"),
    "lm_head.bias": same("embedding/output_bias"),
}

_H = "transformer.h.{layer}."
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
    own = model.positions.rotary_dim if isinstance(model.positions, RotaryConfig) else None
    return own or model.key_dim


_GPTJ_FAMILY = decoder_family(
    "gptj", "GPTJ",
    fields={
        **GPT2_FIELDS,
        "n_positions": ("max_len", 2048),
        "tie_word_embeddings": ("tied_embeddings", False),
        "rotary_dim": Field(_read_rotary, _write_rotary),
    },
    fixed=_SHARED | {"qkv_bias": False, "attention_output_bias": False},
    aliases=GPT2_ALIASES,
    # The file of the 6B model has the first two, but no code reads them.
    skipped=("rotary", "scale_attn_weights", "embd_pdrop", "resid_pdrop", "attn_pdrop"),
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
    "phi",
    "Phi",
    fields={
        **COMMON,
        "max_position_embeddings": ("max_len", 2048),
        "num_key_value_heads": ("num_kv_heads", lambda values: values["num_heads"]),
        "head_dim": ("head_dim", lambda values: values["d_model"] // values["num_heads"]),
        "intermediate_size": "d_ff",
        "layer_norm_eps": ("norm_eps", 1e-5),
        "tie_word_embeddings": ("tied_embeddings", False),
        "qk_layernorm": only(False),  # no published model has these norms
        "hidden_act": activation("gelu_new"),
        "rope_parameters": rotary(0.5),
    },
    fixed=_SHARED,
    skipped=("attention_dropout", "embd_pdrop", "resid_pdrop"),
    tensors=_PHI,
    prefix="model.",
    ignored=(_L + "self_attn.rotary_emb.inv_freq",),
)

GPTJ_FAMILIES = (_GPTJ_FAMILY, _PHI_FAMILY)
