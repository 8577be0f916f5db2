"""Granite, Phi-3, OLMo 1 to 3, StarCoder 2: Llama with factors, other tensors or other norms."""

from typing import Any

from jaxformer.config import ModelConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind
from jaxformer.interop.conversion.fields import Field, Values, activation, only, whole, window
from jaxformer.interop.conversion.layers import FULL, SLIDING, read_windows
from jaxformer.interop.conversion.layouts import block, dense, norm
from jaxformer.interop.conversion.rotary import (
    read_rotary_by_type,
    rotary,
    write_by_type,
    write_rotary,
)
from jaxformer.interop.families.llama import (
    ATTENTION,
    ENDS,
    FEED_FORWARD,
    LAYER,
    LLAMA_TENSORS,
    MLP_BIAS,
    PRE_NORMS,
    llama_family,
)

# Queries, keys and values share one tensor, and so do gate and up.
_PHI3 = ENDS | PRE_NORMS | {
    **block(LAYER, "{stack}", attention="self_attn qkv_proj o_proj"),
    **dense(LAYER + "mlp.gate_up_proj", "{stack}/feed_forward/gate", "{stack}/feed_forward/up"),
    **dense(LAYER + "mlp.down_proj", "{stack}/feed_forward/down"),
}  # fmt: skip

_OLMO = {name: layout for name, layout in LLAMA_TENSORS.items() if "norm" not in name}

# The norms are on the sublayers' outputs.
_OLMO2 = ENDS | ATTENTION | FEED_FORWARD | {
    **norm(LAYER + "post_attention_layernorm", "{stack}/attention_output_norm"),
    **norm(LAYER + "post_feedforward_layernorm", "{stack}/feed_forward_output_norm"),
}  # fmt: skip

_STARCODER2 = (
    ENDS | PRE_NORMS | ATTENTION | block(LAYER, "{stack}", feed_forward="mlp.c_fc mlp.c_proj")
)


def _read_phi3_rotary(fields: ConfigFields, name: str, values: Values) -> Values:
    """Older files call longrope "su", or wrongly "yarn"."""
    for table in ("rope_parameters", "rope_scaling"):
        rope = fields.take(table, dict, {})
        if (rope.get("rope_type") or rope.get("type")) in ("su", "yarn"):
            fields.override(**{table: {**rope, "rope_type": "longrope"}})
    return rotary(1.0).read(fields, name, values)


def _write_phi3(model: ModelConfig) -> dict[str, Any]:
    # transformers checks it against max_position_embeddings even without scaling.
    name = "original_max_position_embeddings"
    return {name: write_rotary(model).get(name, model.max_len)}


def _read_olmo3(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Three of four layers have a window; only the fourth has scaled rotary positions."""
    # transformers applies rope_theta of older files only to layers without a window.
    fields.require("rope_theta", 500_000.0, 500_000)
    wide, local = read_rotary_by_type(fields, values, {FULL: 500_000.0, SLIDING: 500_000.0})
    size = fields.optional("sliding_window", int, 4096)
    return read_windows(
        fields, values | {"positions": wide}, lambda layer: (layer + 1) % 4 != 0, size, local=local
    )


def _use_bias(fields: ConfigFields, name: str, values: Values) -> Values:
    parts = ("qkv_bias", "attention_output_bias", "feed_forward_bias")
    return dict.fromkeys(parts, fields.take(name, bool, True))


_OLMO2_FIXED = {"norm_position": "output", "qk_norm": True, "qk_norm_over": "all_heads"}
VARIANT_FAMILIES = (
    llama_family(
        "phi3", "Phi3", tensors=_PHI3, without=("attention_bias",),
        fields={
            "rope_parameters": Field(_read_phi3_rotary, rotary(1.0).write),
            "sliding_window": window(),
        },
        defaults={
            "max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
        },
        special_write=_write_phi3,
    ),
    # Layer norms without scale and bias.
    llama_family(
        "olmo", "Olmo", tensors=_OLMO, without=("rms_norm_eps",), fields={"clip_qkv": only(None)},
        fixed={"norm": "layer_norm", "norm_scale": False, "norm_bias": False, "norm_eps": 1e-5},
    ),
    llama_family(
        "olmo2", "Olmo2", tensors=_OLMO2, fixed=_OLMO2_FIXED, defaults={"rms_norm_eps": 1e-5},
    ),
    llama_family(
        "olmo3", "Olmo3", tensors=_OLMO2, without=("rope_parameters",), fixed=_OLMO2_FIXED,
        defaults={"rms_norm_eps": 1e-5},
        special_read=_read_olmo3, special_write=write_by_type,
    ),
    llama_family(
        "starcoder2", "Starcoder2", tensors=_STARCODER2,
        without=("attention_bias", "rms_norm_eps"),
        fields={
            "hidden_act": activation("gelu_pytorch_tanh"),
            "norm_epsilon": ("norm_eps", 1e-5),
            "use_bias": Field(_use_bias, lambda model: model.has_bias("qkv")),
            "sliding_window": window(),
        },
        fixed={"norm": "layer_norm", "norm_bias": True},
        defaults={
            "tie_word_embeddings": True, "max_position_embeddings": 4096, "num_key_value_heads": 2,
        },
    ),
    llama_family(
        "granite", "Granite", classified=None,  # transformers has no classifier for it
        fields={
            **MLP_BIAS,
            "embedding_multiplier": ("embedding_scale", 1.0),
            "attention_multiplier": ("attention_scale", 1.0),
            "residual_multiplier": ("residual_scale", 1.0),
            "logits_scaling": Field(
                lambda fields, name, _: {"logit_scale": 1 / fields.take(name, float, 1.0)},
                lambda model: whole(1 / (model.logit_scale or 1.0)),
            ),
        },
    ),
)  # fmt: skip
