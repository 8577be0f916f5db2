"""Config of low-rank adaptation."""

import dataclasses

from jaxformer.config.checks import require, require_positive, require_types

__all__ = ["LoraConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Low-rank adaptation: matrices beside kernels, trained while the weights stay (LoRA).

    Args:
        rank: R, width of the matrices. Beside a kernel `[D, F]` there are one `[D, R]` and one
            `[R, F]`, whose product is added to it.
        alpha: numerator of the scale of the products, alpha / R.
        targets: patterns of the paths of the kernels that get matrices, such as `*query_kernel`:
            `*` stands for anything, `?` for one character. The path of a kernel has the names of
            its modules and its own, between slashes, as in `stack/layers/attention/query_kernel`.

    Raises:
        ConfigError: a number is not positive, or there is no target, or an empty one.

    References:
        Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021. The default targets
        are those that it trains in GPT-3.

    Example:
        >>> LoraConfig(rank=4).targets
        ('*query_kernel', '*value_kernel')
    """

    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ("*query_kernel", "*value_kernel")

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(self, "rank", "alpha")
        rule = "targets must be patterns of paths of kernels, such as '*query_kernel'"
        fits = isinstance(self.targets, tuple) and self.targets != ()
        require(
            fits and all(isinstance(one, str) and one for one in self.targets), rule,
            targets=self.targets,
        )  # fmt: skip

    @property
    def scale(self) -> float:
        """Scale of the products, alpha / R."""
        return self.alpha / self.rank
