"""Config of low-rank adaptation."""

import dataclasses

from jaxformer.config.checks import require, require_positive, require_types

__all__ = ["LoraConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Low-rank adaptation (LoRA): trains pairs of narrow matrices, and freezes the weights.

    Args:
        rank: R, width of the matrices: a kernel `[D, F]` gets a pair `[D, R]` and `[R, F]`, whose
            product is added to it.
        alpha: scale of the update: the product of each pair of matrices is multiplied by
            alpha / rank.
        targets: patterns for the paths of the kernels that get matrices, such as `*query_kernel`:
            `*` matches anything, `?` one character. A path is the names of the enclosing modules
            and the kernel's own name, separated by slashes, as in
            `stack/layers/attention/query_kernel`.

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
