"""Config of the training loop: its length, and the intervals of logs and checkpoints."""

import dataclasses

from jaxformer.config.checks import require, require_positive, require_types

__all__ = ["LoopConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """Number of training steps, and intervals of metrics, validation and checkpoints.

    Args:
        steps: optimizer steps in all, those before a resume included.
        accumulate_steps: micro-batches per optimizer step, to save memory. The result does not
            depend on them; only with training.batch_tokens they affect the rows of a batch.
        log_every: steps between two records of metrics. The last step has one, too, and the first
            where there are fewer steps.
        eval_every: steps between two validations.
        checkpoint_every: steps between two checkpoints; the last step always has one.
        keep_checkpoints: number of latest checkpoints to keep, beside the best.
        skip_bad_steps: how many steps of the run, those before a resume included, may have a loss
            or gradient that is not finite. They are skipped: counted, but their batch changes
            nothing. The next one ends the run.

    Raises:
        ConfigError: a number is not a positive integer, or skip_bad_steps a negative one.

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
    skip_bad_steps: int = 0

    def __post_init__(self) -> None:
        require_types(self)
        require_positive(
            self, "steps", "accumulate_steps", "log_every", "eval_every", "checkpoint_every",
            "keep_checkpoints",
        )  # fmt: skip
        require(
            0 <= self.skip_bad_steps < 2**31,
            "skip_bad_steps must be zero or more, and less than 2**31",
            skip_bad_steps=self.skip_bad_steps,
        )
