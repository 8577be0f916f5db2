"""Gemma 1 to 3: scaled embeddings, norms that store scale - 1; windows in 2 and 3."""

from typing import Any

from jaxformer.config import LayerConfig, ModelConfig
from jaxformer.interop.conversion.activations import GATED
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind
from jaxformer.interop.conversion.layer_fields import (
    FULL,
    SLIDING,
    layer_keys,
    read_layer_types,
    rotary_config,
    window_size,
    write_layer_types,
    write_rotary_by_type,
)
from jaxformer.interop.conversion.layouts import same
from jaxformer.interop.conversion.plain_fields import whole
from jaxformer.interop.families.llama import (
    ATTENTION,
    ENDS,
    FEED_FORWARD,
    LAYER,
    LLAMA_TENSORS,
    decoder_family,
    read_llama,
    write_llama,
)

__all__ = ["GEMMA_FAMILIES"]

_TENSORS = ENDS | ATTENTION | FEED_FORWARD | {
    LAYER + "input_layernorm.weight": same("{stack}/attention_norm/scale"),
    LAYER + "post_attention_layernorm.weight": same("{stack}/attention_output_norm/scale"),
    LAYER + "pre_feedforward_layernorm.weight": same("{stack}/feed_forward_norm/scale"),
    LAYER + "post_feedforward_layernorm.weight": same("{stack}/feed_forward_output_norm/scale"),
}  # fmt: skip


# "gelu" in the first files also means the tanh approximation.
_GEMMA1_ACTS = GATED | {"gelu": "geglu_tanh"}


def _read_gemma1(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    fields.fill(
        tie_word_embeddings=True, head_dim=256, num_key_value_heads=16,
        max_position_embeddings=8192, hidden_act="gelu_pytorch_tanh",
    )  # fmt: skip
    fields.skip("hidden_activation")  # a name that transformers does not read
    fields.require("use_bidirectional_attention", None, False)
    return read_llama(fields, acts=_GEMMA1_ACTS) | {
        "zero_centered_norm": True, "scale_embeddings": True,
    }  # fmt: skip


def _write_gemma1(model: ModelConfig) -> dict[str, Any]:
    return write_llama(model, "mlp_bias")


def _read_gemma(fields: ConfigFields, *, has_rotary: bool = True) -> dict[str, Any]:
    fields.fill(
        tie_word_embeddings=True, head_dim=256, num_key_value_heads=4,
        max_position_embeddings=8192, hidden_activation="gelu_pytorch_tanh",
    )  # fmt: skip
    values = read_llama(fields, act_field="hidden_activation", has_rotary=has_rotary)
    fields.skip("hidden_act")  # an older name, which transformers does not read
    fields.require("use_bidirectional_attention", None, False)
    return values | {
        "norm_position": "sandwich",
        "zero_centered_norm": True,
        "scale_embeddings": True,
        "attention_scale": fields.take("query_pre_attn_scalar", float, 256) ** -0.5,
    }


def _write_gemma(model: ModelConfig) -> dict[str, Any]:
    values = write_llama(model, "mlp_bias", act_field="hidden_activation")
    scale = model.attention_scale or model.key_dim**-0.5
    return values | write_layer_types(model, 4096) | {"query_pre_attn_scalar": whole(scale**-2)}


def _read_gemma2(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Every second layer has a window, beginning with the first."""
    values = _read_gemma(fields) | {
        "attention_softcap": fields.optional("attn_logit_softcapping", float, 50.0),
        "logit_softcap": fields.optional("final_logit_softcapping", float, 30.0),
    }
    fields.skip("cache_implementation")
    size = window_size(fields.optional("sliding_window", int, 4096))
    near = read_layer_types(fields, [layer % 2 == 0 for layer in range(values["num_layers"])])
    layers = [LayerConfig(local_window_size=size if is_near else None) for is_near in near]
    return values | layer_keys(values["positions"], layers)


def _write_gemma2(model: ModelConfig) -> dict[str, Any]:
    return _write_gemma(model) | {
        "attn_logit_softcapping": model.attention_softcap,
        "final_logit_softcapping": model.logit_softcap,
    }


def _read_gemma3(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    """Five of six layers have a window and their own rotary positions."""
    fields.fill(max_position_embeddings=131_072)
    every = fields.take("sliding_window_pattern", int, 6)
    fields.skip("_sliding_window_pattern")  # in files that also have layer_types
    given = fields.take("rope_parameters", dict, {})
    scaling = fields.take("rope_scaling", dict, {})
    far = {"rope_theta": fields.take("rope_theta", float, 1e6)} | scaling | given.get(FULL, {})
    base = fields.take("rope_local_base_freq", float, 10_000.0)
    near = {"rope_theta": base} | given.get(SLIDING, {})
    values = _read_gemma(fields, has_rotary=False) | {
        "qk_norm": True,
        "logit_softcap": fields.optional("final_logit_softcapping", float),
    }
    # transformers reads the cap of Gemma 2, but passes it to no layer.
    fields.skip("cache_implementation", "attn_logit_softcapping")
    size = window_size(fields.optional("sliding_window", int, 4096))
    depth = values["num_layers"]
    types = read_layer_types(fields, [(layer + 1) % every != 0 for layer in range(depth)])
    # In older files, rope_scaling applies only to layers without a window.
    wide, local = (
        rotary_config(fields, each, values["head_dim"], values["max_len"]) for each in (far, near)
    )
    windowed = LayerConfig(local_window_size=size, positions=local)
    layers = [windowed if is_near else LayerConfig() for is_near in types]
    return values | layer_keys(wide, layers)


def _write_gemma3(model: ModelConfig) -> dict[str, Any]:
    return _write_gemma(model) | {
        "final_logit_softcapping": model.logit_softcap,
        "rope_parameters": write_rotary_by_type(model),
    }


GEMMA_FAMILIES = (
    decoder_family("gemma", "Gemma", _read_gemma1, _write_gemma1, LLAMA_TENSORS),
    decoder_family("gemma2", "Gemma2", _read_gemma2, _write_gemma2, _TENSORS),
    decoder_family("gemma3_text", "Gemma3", _read_gemma3, _write_gemma3, _TENSORS),
)
