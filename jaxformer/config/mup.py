"""Config of the maximal update parametrization (μP)."""

import dataclasses

from jaxformer.config.checks import require_positive, require_types

__all__ = ["MupConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MupConfig:
    """Maximal update parametrization (μP): widths of the base model, whose hyperparameters hold.

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

    d_model: int
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None
    d_ff: int | None = None
    embedding_dim: int | None = None

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, *(field.name for field in dataclasses.fields(self)))
