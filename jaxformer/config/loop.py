"""The config of the training loop: how long it runs, and how often it writes something down."""

import dataclasses

from jaxformer.config.checks import require_positive

__all__ = ["LoopConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """How many steps to train, and what to do at which interval.

    Args:
        steps: optimizer steps in all, those of a resumed run included.
        accumulate_steps: micro-batches per optimizer step; they bound the memory, and change no
            result, but for training.batch_tokens, where they decide how many rows a batch has.
        log_every: steps between two lines of metrics.
        eval_every: steps between two evaluations of the validation data.
        checkpoint_every: steps between two checkpoints; the last step always has one.
        keep_checkpoints: how many of the latest checkpoints to keep, beside the best.

    Raises:
        ConfigError: a number is not positive.

    Example:
        >>> LoopConfig(steps=1000).checkpoint_every
        200
    """

    steps: int
    accumulate_steps: int = 1
    log_every: int = 10
    eval_every: int = 200
    checkpoint_every: int = 200
    keep_checkpoints: int = 2

    def __post_init__(self) -> None:
        require_positive(
            self, "steps", "accumulate_steps", "log_every", "eval_every", "checkpoint_every",
            "keep_checkpoints",
        )  # fmt: skip
