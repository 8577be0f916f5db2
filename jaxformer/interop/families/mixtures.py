"""Mixtral, Qwen MoE, GLM-4.5, dots.llm1 and gpt-oss: decoders with mixtures of experts.

Files of all but gpt-oss have one tensor per expert, although transformers joins them in memory.
"""

from typing import Any

from jaxformer.config import ExpertsConfig, LayerConfig, ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind
from jaxformer.interop.conversion.fields import FieldTable, Values, only, window
from jaxformer.interop.conversion.layers import (
    layer_keys,
    read_windows,
    rotary,
    write_layer_types,
)
from jaxformer.interop.conversion.layouts import Layout, block, linear, same
from jaxformer.interop.families.llama import ATTENTION, ENDS, LAYER, PRE_NORMS, llama_family


def _tensors(name: str, gate: str, up: str, down: str) -> dict[str, Layout]:
    """Tensors of a decoder with these names of the mixture and of an expert's projections."""
    mixture = f"{LAYER}{name}."
    return ENDS | PRE_NORMS | ATTENTION | {
        mixture + "gate.weight": linear("{stack}/feed_forward/router_kernel"),
    } | {
        f"{mixture}experts.{{expert}}.{projection}.weight": linear(
            f"{{stack}}/feed_forward/{part}_kernel", when=lambda model: model.experts is not None
        )
        for part, projection in (("gate", gate), ("up", up), ("down", down))
    }  # fmt: skip


_QWEN_EXPERTS = _tensors("mlp", "gate_proj", "up_proj", "down_proj")


def _shared_tensors(name: str) -> dict[str, Layout]:
    """Tensors of the shared experts, with this name of their network."""
    return {
        f"{LAYER}mlp.{name}.{part}_proj.weight": linear(
            f"{{stack}}/feed_forward/shared/{part}_kernel"
        )
        for part in ("gate", "up", "down")
    }


def _experts(
    fields: ConfigFields, num_experts: int, chosen: int, *,
    names: tuple[str, ...] = ("num_local_experts", "num_experts"), **options: Any,
) -> ExpertsConfig:  # fmt: skip
    """The experts; of several names of their number, the first that a file has counts."""
    for name in reversed(names):
        num_experts = fields.take(name, int, num_experts)
    return ExpertsConfig(
        num_experts=num_experts,
        num_experts_per_token=fields.take("num_experts_per_tok", int, chosen),
        **{"load_balancing_weight": float(fields.take("router_aux_loss_coef", float, 0.001))}
        | options,
    )  # fmt: skip


_ONE_EXPERT = ExpertsConfig(num_experts=1, num_experts_per_token=1)  # written for other models


def _write_experts(
    model: ModelConfig, width: str, count: str = "num_local_experts"
) -> dict[str, Any]:
    """Fields of the experts; `width` and `count` name those of their width and number."""
    experts = model.experts or _ONE_EXPERT
    return {
        count: experts.num_experts,
        "num_experts_per_tok": experts.num_experts_per_token,
        "router_aux_loss_coef": experts.load_balancing_weight,
        width: experts.d_ff or model.ff_dim,
    }


def _read_qwen2_moe(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Every second layer before `max_window_layers` has the window, if it is used."""
    width = fields.take("moe_intermediate_size", int, 1408)
    shared_width = fields.take("shared_expert_intermediate_size", int, 5632)
    num_shared, remainder = divmod(shared_width, max(1, width))
    if remainder:
        raise ConfigError(
            f"{fields.where}: shared_expert_intermediate_size must be a multiple of "
            f"moe_intermediate_size, got {shared_width} and {width}; others are not supported"
        )
    experts = _experts(
        fields, 60, 4, names=("num_experts",), d_ff=width, num_shared_experts=num_shared,
        shared_gate=True, normalize_weights=fields.take("norm_topk_prob", bool, False),
    )  # fmt: skip
    used = fields.take("use_sliding_window", bool, False)
    first_full = fields.take("max_window_layers", int, 28)
    # A window that is not used is empty, so layer_types may not name it.
    size = fields.optional("sliding_window", int, 4096) if used else 0
    windows = read_windows(
        fields, values, lambda layer: used and layer % 2 == 0 and layer < first_full, size
    )
    return windows | {"experts": experts}


def _write_qwen2_moe(model: ModelConfig) -> dict[str, Any]:
    experts, types = model.experts or _ONE_EXPERT, write_layer_types(model)
    return types | _write_experts(model, "moe_intermediate_size", "num_experts") | {
        "shared_expert_intermediate_size": (
            experts.num_shared_experts * (experts.d_ff or model.ff_dim)
        ),
        "norm_topk_prob": experts.normalize_weights,
        "use_sliding_window": types["sliding_window"] is not None,
    }  # fmt: skip


def _read_qwen3_moe(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    experts = _experts(
        fields, 128, 8, d_ff=fields.take("moe_intermediate_size", int, 768),
        normalize_weights=fields.take("norm_topk_prob", bool, False),
    )  # fmt: skip
    used = fields.take("use_sliding_window", bool, False)
    return {"experts": experts} | ({} if used else {"local_window_size": None})


def _write_qwen3_moe(model: ModelConfig) -> dict[str, Any]:
    return _write_experts(model, "moe_intermediate_size") | {
        "norm_topk_prob": (model.experts or _ONE_EXPERT).normalize_weights,
        "use_sliding_window": model.local_window_size is not None,
    }


_EXPERTS = LAYER + "mlp.experts."
_GATE_AND_UP = ("{stack}/feed_forward/gate_", "{stack}/feed_forward/up_")
_GPT_OSS = ENDS | PRE_NORMS | ATTENTION | {
    LAYER + "self_attn.sinks": same("{stack}/attention/sinks"),
    LAYER + "mlp.router.weight": linear("{stack}/feed_forward/router_kernel"),
    LAYER + "mlp.router.bias": same("{stack}/feed_forward/router_bias"),
    _EXPERTS + "gate_up_proj": Layout(
        tuple(f"{path}kernel" for path in _GATE_AND_UP), interleaved="outputs"
    ),
    _EXPERTS + "gate_up_proj_bias": Layout(
        tuple(f"{path}bias" for path in _GATE_AND_UP), interleaved="outputs"
    ),
    _EXPERTS + "down_proj": same("{stack}/feed_forward/down_kernel"),
    _EXPERTS + "down_proj_bias": same("{stack}/feed_forward/down_bias"),
}  # fmt: skip
_YARN = {
    "rope_type": "yarn", "factor": 32.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip


# Routing of DeepSeek-V3, with dense layers first.
_DEEPSEEK = _QWEN_EXPERTS | _shared_tensors("shared_experts") | {
    LAYER + "mlp.gate.e_score_correction_bias": same("{stack}/feed_forward/selection_bias"),
    **block(
        LAYER, "{stack}", feed_forward="mlp.gate_proj mlp.up_proj mlp.down_proj",
        when=lambda model: model.experts is None,
    ),
}  # fmt: skip


def _deepseek_experts(
    fields: ConfigFields, num_experts: Any, chosen: Any, num_shared: Any, normalizes: bool
) -> ExpertsConfig:
    """The experts, with transformers' defaults of the family."""
    num_shared = fields.take("n_shared_experts", int, num_shared)
    if num_shared == 0:
        raise ConfigError(f"{fields.where}: n_shared_experts must be at least 1, got 0")
    return _experts(
        fields, num_experts, chosen, names=("n_routed_experts",), router_scores="sigmoid",
        d_ff=fields.take("moe_intermediate_size", int, 1408), num_shared_experts=num_shared,
        num_groups=fields.take("n_group", int, 1),
        num_groups_per_token=fields.take("topk_group", int, 1),
        routed_scale=float(fields.take("routed_scaling_factor", float, 1.0)),
        normalize_weights=fields.take("norm_topk_prob", bool, normalizes),
        load_balancing_weight=0.0,  # the selection biases balance the experts
    )  # fmt: skip


def _write_deepseek(model: ModelConfig) -> dict[str, Any]:
    experts = model.experts or _ONE_EXPERT
    return _write_experts(model, "moe_intermediate_size", "n_routed_experts") | {
        "n_shared_experts": experts.num_shared_experts,
        "n_group": experts.num_groups,
        "topk_group": experts.num_groups_per_token,
        "routed_scaling_factor": experts.routed_scale,
        "norm_topk_prob": experts.normalize_weights,
        "first_k_dense_replace": sum(layer.experts is False for layer in model.layer_overrides),
    }


def _read_glm4_moe(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    num_dense = fields.take("first_k_dense_replace", int, 1)
    layers = [
        LayerConfig(experts=False if layer < num_dense else None)
        for layer in range(values["num_layers"])
    ]
    experts = _deepseek_experts(fields, 128, 8, num_shared=1, normalizes=True)
    return layer_keys(values["positions"], layers) | {"experts": experts}


def _read_dots1(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Layers from `max_window_layers` on have a window."""
    size = fields.optional("sliding_window", int, 4096)
    first_near = fields.take("max_window_layers", int, 62)
    windows = read_windows(
        fields, values, lambda layer: size is not None and layer >= first_near, size,
        num_dense=fields.take("first_k_dense_replace", int, 0),
    )  # fmt: skip
    return windows | {"experts": _deepseek_experts(fields, ..., ..., ..., normalizes=False)}


# All layers of a stack must have the same parameters, so all must be mixtures.
_ALL_MIXTURES: FieldTable = {"decoder_sparse_step": only(1), "mlp_only_layers": only([])}


def _read_gpt_oss(fields: ConfigFields, kind: ModelKind, values: Values) -> Values:
    """Every second layer has a window, beginning with the first."""
    size = fields.optional("sliding_window", int, 128)
    windows = read_windows(fields, values, lambda layer: layer % 2 == 0, size)
    return windows | {"experts": _experts(fields, 128, 4, router_bias=True)}


MIXTURE_FAMILIES = (
    llama_family(
        "mixtral", "Mixtral", tensors=_tensors("block_sparse_moe", "w1", "w3", "w2"),
        without=("attention_bias",), fields={"sliding_window": window()},
        defaults={
            "rope_theta": 1e6, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5,
            "num_key_value_heads": 8,
        },
        special_read=lambda fields, *_: {"experts": _experts(fields, 8, 2)},
        special_write=lambda model: _write_experts(model, "intermediate_size"),
    ),
    llama_family(
        "qwen2_moe", "Qwen2Moe", without=("attention_bias",),
        tensors=_QWEN_EXPERTS | _shared_tensors("shared_expert") | {
            LAYER + "mlp.shared_expert_gate.weight": linear(
                "{stack}/feed_forward/shared_weight_kernel"
            ),
        },
        fields={**_ALL_MIXTURES, "qkv_bias": ("qkv_bias", True)},
        defaults={"max_position_embeddings": 32_768, "num_key_value_heads": 16},
        special_read=_read_qwen2_moe, special_write=_write_qwen2_moe,
    ),
    llama_family(
        "qwen3_moe", "Qwen3Moe", tensors=_QWEN_EXPERTS, fixed={"qk_norm": True},
        fields={**_ALL_MIXTURES, "sliding_window": window(4096)},
        defaults={"max_position_embeddings": 32_768, "num_key_value_heads": 4},
        special_read=_read_qwen3_moe, special_write=_write_qwen3_moe,
    ),
    llama_family(
        "glm4_moe", "Glm4Moe", tensors=_DEEPSEEK, classified=None, without=("attention_bias",),
        fields={
            "attention_bias": ("qkv_bias", False),
            "use_qk_norm": ("qk_norm", False),
            "rope_parameters": rotary(0.5),
        },
        defaults={
            "max_position_embeddings": 131_072, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
        },
        special_read=_read_glm4_moe, special_write=_write_deepseek,
        # Layers that predict further tokens, which transformers leaves out, too.
        unused=r"model\.layers\.(46|92)\..*",
    ),
    llama_family(
        "dots1", "Dots1", tensors=_DEEPSEEK, classified=None, fixed={"qk_norm": True},
        defaults={"num_key_value_heads": 32},
        special_read=_read_dots1,
        special_write=lambda model: _write_deepseek(model) | write_layer_types(model),
    ),
    llama_family(
        "gpt_oss", "GptOss", tensors=_GPT_OSS, without=("hidden_act",),
        fields={
            "swiglu_alpha": only(1.702, write=lambda _: 1.702),
            "swiglu_limit": only(7.0, write=lambda _: 7.0),
        },
        fixed={
            "activation": "clamped_swiglu", "attention_sinks": True, "feed_forward_bias": True,
        },
        defaults={
            "attention_bias": True, "head_dim": 64, "max_position_embeddings": 131_072,
            "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 150_000.0,
            "rope_parameters": _YARN,
        },
        special_read=_read_gpt_oss,
        special_write=lambda model: (
            _write_experts(model, "intermediate_size") | write_layer_types(model, 128)
        ),
    ),
)  # fmt: skip
