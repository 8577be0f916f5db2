"""Configs of the parts of a model: overrides of layers, mixtures of experts, and μP."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar, Literal

from jaxformer.config.checks import (
    Config,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Width,
)
from jaxformer.config.positions import IN_EMBEDDINGS, PositionsConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerConfig(Config):
    """Overrides for one layer; keys that are not set take the model's value.

    Args:
        positions: position scheme of this layer's attention: "none", "rotary", "alibi"
            or "relative". In Python, a string such as "alibi" stands for that kind with its
            defaults.
        local_window_size: attention window of this layer: number of earlier tokens, and in an
            encoder also of later ones, that a token attends to besides itself. A layer cannot
            remove the model's window; if only some layers have one, set it for these and not for
            the model.
        attention: name of an attention function that is passed to the model in Python; if not set,
            or "dot_product", `dot_product_attention` of jaxformer.
        attention_norm: whether the layer has a norm before attention; false in the first layer of
            ModernBERT (Warner et al., 2024). Only in first_layers with norm_position "pre".
        experts: whether the feed-forward layer is the model's mixture of experts; if false, it is a
            single network of the model's d_ff, as in the first layers of
            DeepSeek-V3 (DeepSeek-AI, 2024). Only in first_layers.

    Example:
        >>> LayerConfig(positions="alibi").positions
        AlibiConfig(kind='alibi')
    """

    positions: PositionsConfig | None = None
    local_window_size: NonNegativeInt | None = None
    attention: str | None = None
    attention_norm: bool | None = None
    experts: bool | None = None

    def _mistakes(self) -> Iterator[str]:
        if self.positions is not None and self.positions.kind in IN_EMBEDDINGS:
            yield (
                f"{self.positions.kind} positions are added to the embeddings once, so they cannot "
                "differ by layer; set model.positions instead, or choose another kind"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpertsConfig(Config):
    """Mixture of experts: feed-forward layers whose router chooses a few networks per token.

    Args:
        num_experts: number of experts, the networks of a layer. Memory for parameters grows with
            this number; time and FLOPs hardly do.
        num_experts_per_token: number of experts whose outputs a token gets, at most num_experts.
            Only these are computed for it, so time and FLOPs grow with this number.
        capacity_factor: room of each expert, as a multiple of its share of the choices if tokens
            were spread evenly; 1.25 in Switch Transformers. Training drops choices beyond it: they
            add nothing to the token's output. Validation and use drop none, so that a result does
            not depend on the other tokens of a batch. Default: no limit, and no choice is dropped.
        d_ff: hidden width of each expert; the model's d_ff if not set.
        normalize_weights: whether the weights of a token's experts are scaled to sum to 1, as in
            Mixtral (Jiang et al., 2024); if false, they are the router's probabilities. With one
            expert per token, set it to false, as in Switch Transformers: the scaled weight is
            always 1, and the router learns nothing from it.
        load_balancing_weight: weight of the loss that spreads tokens evenly over the experts, added
            to the training loss for every layer (Fedus et al., "Switch Transformers", 2021); 0 =
            none.
        router_z_weight: weight of the loss that keeps the router's logits small, added to the
            training loss for every layer (Zoph et al., "ST-MoE", 2022); 0 = none.
        router_bias: whether the router has a bias, as in gpt-oss (OpenAI, 2025).
        router_scores: scores that experts are chosen and weighted by: the router's probabilities
            ("softmax"), or the "sigmoid" of each logit, as in DeepSeek-V3 (DeepSeek-AI, 2024).
            With it, each expert has a selection bias, which is added when experts are chosen, and
            changes no weight. It starts at 0, and training leaves it as it is.
        num_groups: number of groups of experts, each of equal size. A token chooses only experts of
            the best groups, by the two best scores in each. Only for router_scores "sigmoid".
        num_groups_per_token: number of groups of which a token chooses experts.
        routed_scale: factor of the weights of the chosen experts.
        num_shared_experts: number of shared experts, which every token gets besides those that it
            chose (Dai et al., "DeepSeekMoE", 2024). They are one network, this many times as wide
            as an expert.
        shared_gate: whether the output of the shared experts is multiplied by a number between 0
            and 1 for each token, the sigmoid of a linear map, as in Qwen 1.5 MoE (Qwen
            Team, 2024).
    """

    num_experts: PositiveInt
    num_experts_per_token: PositiveInt
    capacity_factor: PositiveFloat | None = None
    d_ff: Width | None = None
    normalize_weights: bool = True
    load_balancing_weight: NonNegativeFloat = 0.01
    router_z_weight: NonNegativeFloat = 0.0
    router_bias: bool = False
    router_scores: Literal["softmax", "sigmoid"] = "softmax"
    num_groups: PositiveInt = 1
    num_groups_per_token: PositiveInt = 1
    routed_scale: PositiveFloat = 1.0
    num_shared_experts: NonNegativeInt = 0
    shared_gate: bool = False

    ONLY_FOR: ClassVar = {("num_groups", "router_scores"): ("sigmoid",)}

    def _mistakes(self) -> Iterator[str]:
        if self.shared_gate and not self.num_shared_experts:
            yield (
                "shared_gate is for shared experts, "
                f"{self.got('shared_gate', 'num_shared_experts')}; set num_shared_experts"
            )
        if self.num_experts_per_token > self.num_experts:
            yield (
                "num_experts_per_token must be at most num_experts, "
                f"{self.got('num_experts_per_token', 'num_experts')}; lower the one, or raise the "
                "other"
            )
        size, remainder = divmod(self.num_experts, self.num_groups)
        if remainder or (size < 2 and self.num_groups > 1):
            yield (
                "num_groups must divide num_experts into groups of at least two, "
                f"{self.got('num_groups', 'num_experts')}; change one of them"
            )
        most_chosen = size * self.num_groups_per_token
        if self.num_groups_per_token > self.num_groups or self.num_experts_per_token > most_chosen:
            names = ("num_groups_per_token", "num_groups", "num_experts_per_token")
            yield (
                "num_groups_per_token must be at most num_groups, and that many groups must have "
                f"num_experts_per_token experts, {self.got(*names)}, in groups of {size}; change "
                "one of them"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MupConfig(Config):
    """Maximal update parametrization (μP): widths of a base model whose hyperparameters apply.

    The learning rate, init_std and scales that are best for the base model stay nearly the best for
    wider models, so you can tune a narrow one. The base model is this model with the widths below
    in place of its own. A model as wide as its base is the same as without μP.

    If the input of a kernel is r times as wide as in the base, μP divides the kernel's learning
    rate by r, and its initial standard deviation by sqrt(r), or by r if the output is not wider.
    Attention scores are divided by head_dim instead of sqrt(head_dim), and logits by r. Weight
    decay does not change. Needs the optimizer "adamw" or "lion".

    Args:
        d_model: width of the residual stream.
        num_heads: number of query heads; that of the model if not set.
        num_kv_heads: number of key/value heads; you must set this and each of the following keys
            that the model sets.
        head_dim: width of each query and key head.
        value_head_dim: width of each value head.
        d_ff: hidden width of the feed-forward layers.
        embedding_dim: width of the embedding table.

    References:
        Yang et al., "Tensor Programs V: Tuning Large Neural Networks via Zero-Shot Hyperparameter
        Transfer", 2022, table 8.

    Example:
        >>> from jaxformer.config import ModelConfig
        >>> model = ModelConfig(max_len=8, d_model=256, num_heads=4, mup=MupConfig(d_model=64))
        >>> model.attention_factor == 16**0.5 / 64  # 1 / sqrt(16) in the base
        True
    """

    d_model: PositiveInt
    num_heads: PositiveInt | None = None
    num_kv_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    value_head_dim: PositiveInt | None = None
    d_ff: PositiveInt | None = None
    embedding_dim: PositiveInt | None = None
