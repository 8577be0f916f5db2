"""Llama, Mistral and Arcee, and what their kin share.

Rotary positions pair feature i with i + H/2. A `sliding_window` of W counts the token itself, which
a `local_window_size` does not.
"""

from collections.abc import Mapping
from typing import Any

from jaxformer.config import ModelConfig
from jaxformer.interop.config_fields import ConfigFields
from jaxformer.interop.family import Family, ModelKind
from jaxformer.interop.layer_fields import one_window, read_rotary, write_rotary
from jaxformer.interop.layouts import Layout, linear, same

__all__ = [
    "ATTENTION",
    "ENDS",
    "FEED_FORWARD",
    "GATED",
    "IGNORED",
    "LAYER",
    "LLAMA_FAMILIES",
    "PLAIN",
    "PRE_NORMS",
    "decoder_family",
    "read_llama",
    "write_llama",
]

GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_pytorch_tanh": "geglu_tanh"}
"""Activation of a gated feed-forward layer, by `hidden_act`."""
PLAIN = {
    "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu",
}  # fmt: skip
"""Activation of a feed-forward layer without a gate."""

LAYER = "model.layers.{layer}."
ENDS = {
    "model.embed_tokens.weight": same("embedding/embedding"),
    "model.norm.weight": same("final_norm/scale"),
    "model.norm.bias": same("final_norm/bias"),
    "lm_head.weight": same("embedding/output_embedding"),
}
PRE_NORMS = {
    LAYER + "input_layernorm.weight": same("{stack}/attention_norm/scale"),
    LAYER + "input_layernorm.bias": same("{stack}/attention_norm/bias"),
    LAYER + "post_attention_layernorm.weight": same("{stack}/feed_forward_norm/scale"),
    LAYER + "post_attention_layernorm.bias": same("{stack}/feed_forward_norm/bias"),
}
ATTENTION = {
    LAYER + "self_attn.q_proj.weight": linear("{stack}/attention/query_kernel"),
    LAYER + "self_attn.k_proj.weight": linear("{stack}/attention/key_kernel"),
    LAYER + "self_attn.v_proj.weight": linear("{stack}/attention/value_kernel"),
    LAYER + "self_attn.o_proj.weight": linear("{stack}/attention/output_kernel"),
    LAYER + "self_attn.q_proj.bias": same("{stack}/attention/query_bias"),
    LAYER + "self_attn.k_proj.bias": same("{stack}/attention/key_bias"),
    LAYER + "self_attn.v_proj.bias": same("{stack}/attention/value_bias"),
    LAYER + "self_attn.o_proj.bias": same("{stack}/attention/output_bias"),
    LAYER + "self_attn.q_norm.weight": same("{stack}/attention/query_norm_scale"),
    LAYER + "self_attn.k_norm.weight": same("{stack}/attention/key_norm_scale"),
}
FEED_FORWARD = {
    LAYER + "mlp.gate_proj.weight": linear("{stack}/feed_forward/gate_kernel"),
    LAYER + "mlp.up_proj.weight": linear("{stack}/feed_forward/up_kernel"),
    LAYER + "mlp.down_proj.weight": linear("{stack}/feed_forward/down_kernel"),
    LAYER + "mlp.gate_proj.bias": same("{stack}/feed_forward/gate_bias"),
    LAYER + "mlp.up_proj.bias": same("{stack}/feed_forward/up_bias"),
    LAYER + "mlp.down_proj.bias": same("{stack}/feed_forward/down_bias"),
}
# Constants that older versions saved.
IGNORED = (LAYER + "self_attn.rotary_emb.inv_freq",)


def decoder_family(
    model_type: str, name: str, read: Any, write: Any, tensors: Mapping[str, Layout]
) -> Family:
    """A family of decoders whose class is `{name}ForCausalLM`."""
    return Family(
        model_type=model_type, classes={f"{name}ForCausalLM": "decoder"}, read=read, write=write,
        tensors=tensors, prefix="model.", ignored=IGNORED,
        copies={"lm_head.weight": "model.embed_tokens.weight"},
    )  # fmt: skip


def read_llama(
    fields: ConfigFields, *, tied: bool = False, head_dim: int | None = None,
    base: float = 10_000.0, max_len: int = 2048, eps: float = 1e-6, act: str = "silu",
    acts: Mapping[str, str] = GATED, act_field: str = "hidden_act",
    has_biases: bool = True, has_rotary: bool = True, kv_heads: int | None = None,
    share: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Arguments of a `ModelConfig` from the fields of Llama, which its kin have, too.

    Args:
        fields: of the config.
        tied: `tie_word_embeddings` of a config that does not say it.
        head_dim: likewise; hidden_size / num_attention_heads when not given.
        base: likewise of `rope_theta`.
        max_len: likewise of `max_position_embeddings`.
        eps: likewise of `rms_norm_eps`.
        act: likewise of the activation.
        acts: what the activations are called here.
        act_field: name of the activation's field.
        has_biases: whether the family has `attention_bias`; and `mlp_bias`, if the file has it.
        kv_heads: likewise of `num_key_value_heads`; num_attention_heads when not given.
        share: likewise of `partial_rotary_factor`, of a family that has it.
        has_rotary: whether all layers are rotated alike; if not, positions are the caller's.
    """
    fields.skip("attention_dropout")
    width, heads = fields.take("hidden_size", int), fields.take("num_attention_heads", int)
    wide = fields.take("head_dim", int, head_dim or width // heads)
    longest = fields.take("max_position_embeddings", int, max_len)
    attention = has_biases and fields.take("attention_bias", bool, False)
    inner = "mlp_bias" in fields and fields.take("mlp_bias", bool, False)
    rotary = {"positions": read_rotary(fields, wide, base, longest, share)} if has_rotary else {}
    return rotary | {
        "architecture": "decoder",
        "vocab_size": fields.take("vocab_size", int),
        "max_len": longest,
        "num_layers": fields.take("num_hidden_layers", int),
        "d_model": width,
        "num_heads": heads,
        "num_kv_heads": fields.take("num_key_value_heads", int, kv_heads or heads),
        "head_dim": wide,
        "d_ff": fields.take("intermediate_size", int),
        "norm": "rms_norm",
        "norm_eps": float(fields.take("rms_norm_eps", float, eps)),
        "activation": fields.choose(act_field, acts, act),
        "use_bias": False,
        "qkv_bias": attention,
        "attention_output_bias": attention,
        "feed_forward_bias": inner,
        "tied_embeddings": fields.take("tie_word_embeddings", bool, tied),
    }


def write_llama(
    model: ModelConfig, *without: str, acts: Mapping[str, str] = GATED,
    act_field: str = "hidden_act",
) -> dict[str, Any]:  # fmt: skip
    """Fields of a `ModelConfig`, but for those that a family does not have."""
    names = {ours: theirs for theirs, ours in reversed([*acts.items()])}
    values = {
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_len,
        "num_hidden_layers": model.num_layers,
        "hidden_size": model.d_model,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.key_dim,
        "intermediate_size": model.ff_dim,
        "rope_parameters": write_rotary(model),
        "rms_norm_eps": model.norm_eps,
        act_field: names.get(model.activation, next(iter(acts))),
        "attention_bias": model.has_bias("qkv"),
        "mlp_bias": model.has_bias("feed_forward"),
        "tie_word_embeddings": model.tied_embeddings,
    }
    return {name: value for name, value in values.items() if name not in without}


def _read_llama(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    # How a product was split over devices in training; the product is the same.
    fields.skip("pretraining_tp")
    return read_llama(fields)


def _read_arcee(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Llama without a gate."""
    return read_llama(fields, act="relu2", acts=PLAIN, max_len=4096, eps=1e-5)


def _write_arcee(model: ModelConfig) -> dict[str, Any]:
    return write_llama(model, acts=PLAIN)


def _read_mistral(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    values = read_llama(fields, max_len=4096 * 32, has_biases=False, kv_heads=8)
    return values | {"local_window_size": one_window(fields, 4096)}


def _write_mistral(model: ModelConfig) -> dict[str, Any]:
    window = model.local_window_size
    values = {"sliding_window": None if window is None else window + 1}
    return write_llama(model, "attention_bias", "mlp_bias") | values


_LLAMA = ENDS | PRE_NORMS | ATTENTION | FEED_FORWARD
LLAMA_FAMILIES = (
    decoder_family("llama", "Llama", _read_llama, write_llama, _LLAMA),
    decoder_family("mistral", "Mistral", _read_mistral, _write_mistral, _LLAMA),
    decoder_family("arcee", "Arcee", _read_arcee, _write_arcee, _LLAMA),
)
