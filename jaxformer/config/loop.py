"""Config of the training loop: its length, and the intervals of logs and checkpoints."""

import dataclasses

from jaxformer.config.checks import require, require_positive, require_shares, require_types

__all__ = ["LoopConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """Number of training steps, and intervals of metrics, validation and checkpoints.

    Args:
        steps: total number of optimizer steps, including those before a resume.
        accumulate_steps: number of micro-batches that each optimizer step is split into, to save
            memory. With batch_size, this does not change the result. With batch_tokens, it also
            affects how many rows a batch has.
        log_every: number of steps between records of metrics. The last step is always recorded, and
            so is the first if there are fewer than log_every steps.
        eval_every: number of steps between validations; the last step always has one.
        checkpoint_every: number of steps between checkpoints; the last step is always saved.
        keep_checkpoints: number of newest checkpoints to keep, in addition to the best.
        skip_bad_steps: number of steps with an infinite or NaN loss or gradient that a run
            tolerates, including those before a resume. Such a step still counts toward `steps`, but
            its batch changes nothing. The first one beyond this number ends the run.
        average_decay: decay per step of an exponential moving average of the parameters, usually
            0.999. Validation, samples and the opened run then use the average. For the first
            1 / (1 - average_decay) steps it is the plain mean. Default: no average.

    Raises:
        ConfigError: a number is not a positive integer, skip_bad_steps a negative one, or
            average_decay not in [0, 1).

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
    average_decay: float | None = None

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
        require_shares(self, "average_decay")
