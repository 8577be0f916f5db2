"""Gemma 1 to 3: scaled embeddings, norms that store scale - 1; windows in 2 and 3."""

from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind
from jaxformer.interop.conversion.fields import GATED, Field, Values, activation, key, only, whole
from jaxformer.interop.conversion.layers import (
    FULL,
    SLIDING,
    read_windows,
    write_by_type,
    write_layer_types,
)
from jaxformer.interop.conversion.layouts import block, norm
from jaxformer.interop.families.llama import ATTENTION, ENDS, FEED_FORWARD, LAYER, llama_family

_TENSORS = ENDS | ATTENTION | FEED_FORWARD | {
    **block(LAYER, "{stack}", norms="input_layernorm pre_feedforward_layernorm"),
    **norm(LAYER + "post_attention_layernorm", "{stack}/attention_output_norm"),
    **norm(LAYER + "post_feedforward_layernorm", "{stack}/feed_forward_output_norm"),
}  # fmt: skip
_BIDIRECTIONAL = {"use_bidirectional_attention": only(None, False)}
# "gelu" in the first files also means the tanh approximation.
_ACTIVATION = activation("gelu_pytorch_tanh", GATED | {"gelu": "geglu_tanh"})._replace(
    write=activation("silu", GATED).write
)
_FIXED = {"zero_centered_norm": True, "scale_embeddings": True}
_DEFAULTS = {
    "tie_word_embeddings": True, "head_dim": 256, "num_key_value_heads": 4,
    "max_position_embeddings": 8192,
}  # fmt: skip
# Fields of Gemma 2 and 3. The scale is stored as that of queries of this width.
_NEWER = _BIDIRECTIONAL | {
    "hidden_activation": activation("gelu_pytorch_tanh", GATED),
    "query_pre_attn_scalar": Field(
        lambda fields, name, _: {"attention_scale": fields.take(name, float, 256) ** -0.5},
        lambda model: whole((model.attention_scale or model.key_dim**-0.5) ** -2),
    ),
}


def _read_gemma2(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Every second layer has a window, beginning with the first."""
    size = fields.optional("sliding_window", int, 4096)
    return read_windows(fields, values, lambda layer: layer % 2 == 0, size)


def _read_gemma3(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Five of six layers have a window and their own rotary positions."""
    every = fields.take("sliding_window_pattern", int, 6)
    bases = {
        FULL: fields.take("rope_theta", float, 1e6),
        SLIDING: fields.take("rope_local_base_freq", float, 10_000.0),
    }
    size = fields.optional("sliding_window", int, 4096)
    return read_windows(fields, values, lambda layer: (layer + 1) % every != 0, size, bases=bases)


GEMMA_FAMILIES = (
    llama_family(
        "gemma", "Gemma", fixed=_FIXED,
        fields=_BIDIRECTIONAL | {"hidden_act": _ACTIVATION},
        defaults=_DEFAULTS | {"num_key_value_heads": 16},
    ),
    llama_family(
        "gemma2", "Gemma2", tensors=_TENSORS, without=("hidden_act",),
        fixed=_FIXED | {"norm_position": "sandwich"}, defaults=_DEFAULTS,
        fields=_NEWER | {
            "attn_logit_softcapping": key("attention_softcap", 50.0, null=True),
            "final_logit_softcapping": key("logit_softcap", 30.0, null=True),
        },
        special_read=_read_gemma2, special_write=lambda model: write_layer_types(model, 4096),
    ),
    llama_family(
        "gemma3_text", "Gemma3", classified="Gemma3Text", tensors=_TENSORS,
        without=("hidden_act", "rope_parameters"),
        fixed=_FIXED | {"norm_position": "sandwich", "qk_norm": True},
        defaults=_DEFAULTS | {"max_position_embeddings": 131_072},
        fields=_NEWER | {"final_logit_softcapping": key("logit_softcap", None, null=True)},
        # transformers reads the cap of Gemma 2's attention, too, but passes it to no layer.
        special_read=_read_gemma3, special_write=write_by_type,
    ),
)  # fmt: skip
