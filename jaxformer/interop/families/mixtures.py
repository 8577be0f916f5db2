"""Mixtral and Qwen 3 MoE: decoders whose feed-forward layers are mixtures of experts.

Files have one tensor per expert, although transformers joins them in memory.
"""

from typing import Any

from jaxformer.config import ExpertsConfig, ModelConfig
from jaxformer.interop.conversion.config_fields import ConfigFields
from jaxformer.interop.conversion.family import ModelKind
from jaxformer.interop.conversion.layer_fields import one_window, write_window
from jaxformer.interop.conversion.layouts import Layout, linear
from jaxformer.interop.families.llama import (
    ATTENTION,
    ENDS,
    LAYER,
    PRE_NORMS,
    decoder_family,
    read_llama,
    write_llama,
)

__all__ = ["MIXTURE_FAMILIES"]


def _tensors(name: str, gate: str, up: str, down: str) -> dict[str, Layout]:
    """Tensors of a decoder with these names of the mixture and of an expert's projections."""
    mixture = f"{LAYER}{name}."
    return ENDS | PRE_NORMS | ATTENTION | {
        mixture + "gate.weight": linear("{stack}/feed_forward/router_kernel"),
        mixture + f"experts.{{expert}}.{gate}.weight": linear("{stack}/feed_forward/gate_kernel"),
        mixture + f"experts.{{expert}}.{up}.weight": linear("{stack}/feed_forward/up_kernel"),
        mixture + f"experts.{{expert}}.{down}.weight": linear("{stack}/feed_forward/down_kernel"),
    }  # fmt: skip


_MIXTRAL = _tensors("block_sparse_moe", "w1", "w3", "w2")
_QWEN3_MOE = _tensors("mlp", "gate_proj", "up_proj", "down_proj")


def _experts(fields: ConfigFields, **options: Any) -> ExpertsConfig:
    count = fields.take("num_local_experts", int, fields.take("num_experts", int, 8))
    fields.skip("output_router_logits", "router_jitter_noise")
    return ExpertsConfig(
        num_experts=count,
        load_balancing_weight=float(fields.take("router_aux_loss_coef", float, 0.001)),
        **options,
    )


def _write_experts(model: ModelConfig) -> dict[str, Any]:
    experts = model.experts or ExpertsConfig(num_experts=1, num_experts_per_token=1)
    return {
        "num_local_experts": experts.num_experts,
        "num_experts_per_tok": experts.num_experts_per_token,
        "router_aux_loss_coef": experts.load_balancing_weight,
    }


def _read_mixtral(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    chosen = fields.take("num_experts_per_tok", int, 2)
    fields.fill(
        rope_theta=1e6, max_position_embeddings=131_072, rms_norm_eps=1e-5, num_key_value_heads=8
    )
    values = read_llama(fields, has_biases=False)
    experts = _experts(fields, num_experts_per_token=chosen)
    return values | {"experts": experts, "local_window_size": one_window(fields)}


def _write_mixtral(model: ModelConfig) -> dict[str, Any]:
    inner = model.experts.d_ff if model.experts is not None else None
    values = write_llama(model, "attention_bias", "mlp_bias") | write_window(model)
    return values | _write_experts(model) | {
        "intermediate_size": model.ff_dim if inner is None else inner,
    }  # fmt: skip


def _read_qwen3_moe(fields: ConfigFields, kind: ModelKind) -> dict[str, Any]:
    # All layers of a stack must have the same parameters, so all must be mixtures.
    fields.require("decoder_sparse_step", 1)
    fields.require("mlp_only_layers", [])
    chosen = fields.take("num_experts_per_tok", int, 8)
    fields.fill(max_position_embeddings=32_768, num_key_value_heads=4, num_experts=128)
    values = read_llama(fields)
    experts = _experts(
        fields, num_experts_per_token=chosen, d_ff=fields.take("moe_intermediate_size", int, 768),
        normalize_weights=fields.take("norm_topk_prob", bool, False),
    )  # fmt: skip
    used = fields.take("use_sliding_window", bool, False)
    fields.skip("max_window_layers")
    window = one_window(fields, 4096)
    return values | {
        "qk_norm": True, "experts": experts, "local_window_size": window if used else None,
    }  # fmt: skip


def _write_qwen3_moe(model: ModelConfig) -> dict[str, Any]:
    experts = model.experts
    own = None if experts is None else experts.d_ff
    return write_llama(model, "mlp_bias") | write_window(model) | _write_experts(model) | {
        "moe_intermediate_size": model.ff_dim if own is None else own,
        "norm_topk_prob": experts is None or experts.normalize_weights,
        "use_sliding_window": model.local_window_size is not None,
    }  # fmt: skip


MIXTURE_FAMILIES = (
    decoder_family("mixtral", "Mixtral", _read_mixtral, _write_mixtral, _MIXTRAL),
    decoder_family("qwen3_moe", "Qwen3Moe", _read_qwen3_moe, _write_qwen3_moe, _QWEN3_MOE),
)
