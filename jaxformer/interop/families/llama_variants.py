"""Granite, Phi-3, OLMo 1 to 3, StarCoder 2: Llama with factors, other tensors or other norms."""

from typing import Any

from jaxformer.config import LayerConfig, LongropeScalingConfig, ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.conversion.activations import PLAIN
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind
from jaxformer.interop.conversion.layer_fields import (
    FULL,
    SLIDING,
    layer_keys,
    one_window,
    read_layer_types,
    rotary_config,
    window_size,
    write_layer_types,
    write_rotary_by_type,
    write_window,
)
from jaxformer.interop.conversion.layouts import dense, linear, same
from jaxformer.interop.conversion.plain_fields import PlainFields, read_plain, whole, write_plain
from jaxformer.interop.families.llama import (
    ATTENTION,
    ENDS,
    FEED_FORWARD,
    LAYER,
    LLAMA_TENSORS,
    PRE_NORMS,
    decoder_family,
    read_llama,
    write_llama,
)

__all__ = ["VARIANT_FAMILIES"]

# Queries, keys and values share one tensor, and so do gate and up.
_PHI3 = ENDS | PRE_NORMS | {
    LAYER + "self_attn.qkv_proj.weight": linear(
        "{stack}/attention/query_kernel", "{stack}/attention/key_kernel",
        "{stack}/attention/value_kernel",
    ),
    LAYER + "self_attn.o_proj.weight": linear("{stack}/attention/output_kernel"),
    LAYER + "mlp.gate_up_proj.weight": linear(
        "{stack}/feed_forward/gate_kernel", "{stack}/feed_forward/up_kernel"
    ),
    LAYER + "mlp.down_proj.weight": linear("{stack}/feed_forward/down_kernel"),
}  # fmt: skip

_OLMO = {name: layout for name, layout in LLAMA_TENSORS.items() if "norm" not in name}

# The norms are on the sublayers' outputs.
_OLMO2 = ENDS | ATTENTION | FEED_FORWARD | {
    LAYER + "post_attention_layernorm.weight": same("{stack}/attention_output_norm/scale"),
    LAYER + "post_feedforward_layernorm.weight": same("{stack}/feed_forward_output_norm/scale"),
}  # fmt: skip

_STARCODER2 = ENDS | PRE_NORMS | ATTENTION | {
    **dense(LAYER + "mlp.c_fc", "{stack}/feed_forward/up"),
    **dense(LAYER + "mlp.c_proj", "{stack}/feed_forward/down"),
}  # fmt: skip


def _read_phi3(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.skip("resid_pdrop", "embd_pdrop")
    _rename_scaling(fields)
    fields.fill(
        max_position_embeddings=4096, original_max_position_embeddings=4096, rms_norm_eps=1e-5
    )
    values = read_llama(fields, has_biases=False, share=1.0)
    scaling = values["positions"].scaling
    if not isinstance(scaling, LongropeScalingConfig | None):
        raise ConfigError(
            f"the rope_type of Phi-3 must be default or longrope, got {scaling.kind!r}; use "
            "the config of another family for other kinds"
        )
    return values | {"local_window_size": one_window(fields)}


def _rename_scaling(fields: ConfigFields) -> None:
    """Older files call longrope "su", or wrongly "yarn"."""
    for name in ("rope_parameters", "rope_scaling"):
        values = fields.take(name, dict, {})
        kind = values.get("rope_type") or values.get("type")
        if kind in ("su", "yarn"):
            fields.override(**{name: {**values, "rope_type": "longrope"}})


def _write_phi3(model: ModelConfig) -> dict[str, Any]:
    values = write_llama(model, "attention_bias", "mlp_bias", "head_dim") | write_window(model)
    # transformers checks it against max_position_embeddings even without scaling.
    original = values["rope_parameters"].get("original_max_position_embeddings", model.max_len)
    return values | {"original_max_position_embeddings": original}


def _read_olmo(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Layer norms without scale and bias."""
    fields.require("clip_qkv", None)
    return read_llama(fields) | {
        "norm": "layer_norm", "norm_eps": 1e-5, "norm_scale": False, "norm_bias": False,
    }  # fmt: skip


def _write_olmo(model: ModelConfig) -> dict[str, Any]:
    return write_llama(model, "mlp_bias", "head_dim", "rms_norm_eps")


def _read_olmo2(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.fill(rms_norm_eps=1e-5)
    return read_llama(fields) | {
        "norm_position": "output", "qk_norm": True, "qk_norm_over": "all_heads",
    }  # fmt: skip


def _write_olmo2(model: ModelConfig) -> dict[str, Any]:
    return write_llama(model, "mlp_bias", "head_dim")


def _read_olmo3(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Three of four layers have a window; only the fourth has scaled rotary positions."""
    fields.fill(rms_norm_eps=1e-5)
    values = read_llama(fields, has_rotary=False) | {
        "norm_position": "output", "qk_norm": True, "qk_norm_over": "all_heads",
    }  # fmt: skip
    # transformers applies rope_theta of older files only to layers without a window.
    fields.require("rope_theta", 500_000.0, 500_000)
    given = fields.inner(fields.take("rope_parameters", dict, {}), "rope_parameters")
    scaling = {FULL: fields.take("rope_scaling", dict, {}), SLIDING: {}}
    wide, local = (
        rotary_config(
            fields, {"rope_theta": 500_000.0} | given.take(name, dict, {}) | scaling[name],
            values["d_model"] // values["num_heads"], values["max_len"],
        )
        for name in (FULL, SLIDING)
    )  # fmt: skip
    given.finish()
    size = window_size(fields.optional("sliding_window", int, 4096))
    near = read_layer_types(fields, [(i + 1) % 4 != 0 for i in range(values["num_layers"])])
    windowed = LayerConfig(local_window_size=size, positions=local)
    layers = [windowed if is_near else LayerConfig() for is_near in near]
    return values | layer_keys(wide, layers)


def _write_olmo3(model: ModelConfig) -> dict[str, Any]:
    rotary = {"rope_parameters": write_rotary_by_type(model)}
    return _write_olmo2(model) | write_layer_types(model, 4096) | rotary


def _read_starcoder2(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.skip("residual_dropout", "embedding_dropout")
    fields.fill(
        tie_word_embeddings=True, max_position_embeddings=4096, num_key_value_heads=2,
        hidden_act="gelu_pytorch_tanh",
    )  # fmt: skip
    values = read_llama(fields, acts=PLAIN, has_biases=False)
    biases = fields.take("use_bias", bool, True)
    return values | {
        "norm": "layer_norm",
        "norm_eps": float(fields.take("norm_epsilon", float, 1e-5)),
        "norm_bias": True,
        "qkv_bias": biases,
        "attention_output_bias": biases,
        "feed_forward_bias": biases,
        "local_window_size": one_window(fields),
    }


def _write_starcoder2(model: ModelConfig) -> dict[str, Any]:
    without = ("attention_bias", "mlp_bias", "head_dim", "rms_norm_eps")
    return write_llama(model, *without, acts=PLAIN) | write_window(model) | {
        "norm_epsilon": model.norm_eps, "use_bias": model.has_bias("qkv"),
    }  # fmt: skip


_GRANITE_FACTORS: PlainFields = {
    "embedding_multiplier": ("embedding_scale", 1.0),
    "attention_multiplier": ("attention_scale", 1.0),
    "residual_multiplier": ("residual_scale", 1.0),
}


def _read_granite(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    return read_llama(fields) | read_plain(fields, _GRANITE_FACTORS) | {
        "logit_scale": 1 / fields.take("logits_scaling", float, 1.0),
    }  # fmt: skip


def _write_granite(model: ModelConfig) -> dict[str, Any]:
    return write_llama(model) | write_plain(model, _GRANITE_FACTORS) | {
        "logits_scaling": whole(1 / (model.logit_scale or 1.0)),
    }  # fmt: skip


VARIANT_FAMILIES = (
    decoder_family("phi3", "Phi3", _read_phi3, _write_phi3, _PHI3),
    decoder_family("olmo", "Olmo", _read_olmo, _write_olmo, _OLMO),
    decoder_family("olmo2", "Olmo2", _read_olmo2, _write_olmo2, _OLMO2),
    decoder_family("olmo3", "Olmo3", _read_olmo3, _write_olmo3, _OLMO2),
    decoder_family("starcoder2", "Starcoder2", _read_starcoder2, _write_starcoder2, _STARCODER2),
    decoder_family("granite", "Granite", _read_granite, _write_granite, LLAMA_TENSORS),
)
