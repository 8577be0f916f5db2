"""GPT-J and Phi 1 to 2: decoders with parallel sublayers, one norm for both, and biased logits."""

from typing import Any

from jaxformer.config import ModelConfig, RotaryConfig
from jaxformer.interop.conversion.activations import PLAIN, name_of
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import Family, ModelKind
from jaxformer.interop.conversion.layer_fields import read_rotary, write_rotary
from jaxformer.interop.conversion.layouts import dense, norm, projections, same
from jaxformer.interop.conversion.plain_fields import PlainFields, read_plain, write_plain

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
_GPTJ_FIELDS: PlainFields = {
    "vocab_size": "vocab_size",
    "n_positions": ("max_len", 2048),
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "n_embd": "d_model",
    "n_inner": "d_ff",
    "layer_norm_epsilon": ("norm_eps", 1e-5),
    "tie_word_embeddings": ("tied_embeddings", False),
}


def _read_gptj(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.alias(
        hidden_size="n_embd", max_position_embeddings="n_positions",
        num_attention_heads="n_head", num_hidden_layers="n_layer",
    )  # fmt: skip
    # The file of the 6B model has the first two, but no code reads them.
    fields.skip("rotary", "scale_attn_weights", "embd_pdrop", "resid_pdrop", "attn_pdrop")
    fields.fill(n_inner=4 * fields.take("n_embd", int))
    return read_plain(fields, _GPTJ_FIELDS) | _SHARED | {
        "positions": RotaryConfig(
            layout="interleaved", rotary_dim=fields.optional("rotary_dim", int, 64)
        ),
        "activation": fields.choose("activation_function", PLAIN, "gelu_new"),
        "qkv_bias": False,
        "attention_output_bias": False,
    }  # fmt: skip


def _write_gptj(model: ModelConfig) -> dict[str, Any]:
    positions = model.positions
    own = positions.rotary_dim if isinstance(positions, RotaryConfig) else None
    return write_plain(model, _GPTJ_FIELDS) | {
        "rotary_dim": own or model.key_dim,
        "activation_function": name_of(model.activation),
    }


_L = "model.layers.{layer}."
_PHI = _HEAD | {
    "model.embed_tokens.weight": same("embedding/embedding"),
    **norm(_L + "input_layernorm", "{stack}/attention_norm"),
    **projections(_L + "self_attn", "{stack}/attention", "dense"),
    **dense(_L + "mlp.fc1", "{stack}/feed_forward/up"),
    **dense(_L + "mlp.fc2", "{stack}/feed_forward/down"),
    **norm("model.final_layernorm", "final_norm"),
}
_PHI_FIELDS: PlainFields = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": ("max_len", 2048),
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
    "layer_norm_eps": ("norm_eps", 1e-5),
    "tie_word_embeddings": ("tied_embeddings", False),
}


def _read_phi(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    # Layer norms of queries and keys, which no published model has.
    fields.require("qk_layernorm", False)
    fields.skip("attention_dropout", "embd_pdrop", "resid_pdrop")
    heads = fields.take("num_attention_heads", int)
    fields.fill(head_dim=fields.take("hidden_size", int) // heads, num_key_value_heads=heads)
    values = read_plain(fields, _PHI_FIELDS)
    return values | _SHARED | {
        "positions": read_rotary(fields, values["head_dim"], values["max_len"], share=0.5),
        "activation": fields.choose("hidden_act", PLAIN, "gelu_new"),
    }  # fmt: skip


def _write_phi(model: ModelConfig) -> dict[str, Any]:
    return write_plain(model, _PHI_FIELDS) | {
        "rope_parameters": {"partial_rotary_factor": 1.0} | write_rotary(model),
        "hidden_act": name_of(model.activation),
    }


GPTJ_FAMILIES = (
    Family(
        model_type="gptj", classes={"GPTJForCausalLM": "decoder"}, read=_read_gptj,
        write=_write_gptj, tensors=_GPTJ, prefix="transformer.",
        ignored=(_H + "attn.bias", _H + "attn.masked_bias"),
        copies={"lm_head.weight": "transformer.wte.weight"},
    ),
    Family(
        model_type="phi", classes={"PhiForCausalLM": "decoder"}, read=_read_phi, write=_write_phi,
        tensors=_PHI, prefix="model.",
        ignored=(_L + "self_attn.rotary_emb.inv_freq",),
        copies={"lm_head.weight": "model.embed_tokens.weight"},
    ),
)  # fmt: skip
