"""Config of a mixture of experts."""

import dataclasses

from jaxformer.config.checks import (
    require_at_least_zero,
    require_at_most,
    require_positive,
    require_types,
)
from jaxformer.errors import ConfigError

__all__ = ["MAX_WIDTH", "ExpertsConfig"]

MAX_WIDTH = 2**24
"""Largest width of a part of a model: far more than any has, and small enough for shapes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpertsConfig:
    """Mixture of experts: feed-forward layers whose router chooses a few networks per token.

    Args:
        num_experts: number of experts, the networks of a layer.
        num_experts_per_token: number of experts that a token is sent to, at most num_experts.
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

    Example:
        >>> mixtral = ExpertsConfig(num_experts=8, num_experts_per_token=2)
        >>> mixtral.load_balancing_weight
        0.01
    """

    num_experts: int
    num_experts_per_token: int
    d_ff: int | None = None
    normalize_weights: bool = True
    load_balancing_weight: float = 0.01
    router_z_weight: float = 0.0
    router_bias: bool = False

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "num_experts", "num_experts_per_token", "d_ff")
        require_at_most(self, MAX_WIDTH, "d_ff")
        require_at_least_zero(self, "load_balancing_weight", "router_z_weight")
        if self.num_experts_per_token > self.num_experts:
            raise ConfigError(
                "num_experts_per_token must be at most num_experts, got "
                f"num_experts_per_token={self.num_experts_per_token} and "
                f"num_experts={self.num_experts}; lower the one, or raise the other"
            )
