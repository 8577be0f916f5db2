"""Callbacks: functions of the metrics that may stop training, and early stopping."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from jaxformer.errors import ConfigError

Callback = Callable[[int, Mapping[str, float]], bool | None]
"""Function of (number of steps taken, metrics); True stops the training."""


@dataclasses.dataclass(kw_only=True)
class EarlyStopping:
    """Stops training when a validation metric no longer improves.

    Args:
        patience: number of validations in a row without a new best value before it stops.
        metric: name of the metric, as in `metrics.jsonl`.
        min_delta: smallest improvement that counts as a new best value.
        higher_is_better: whether higher values are better, as for accuracy.

    Raises:
        ConfigError: patience is not positive; or, at a validation, there is no such metric.

    Example:
        >>> stop = EarlyStopping(patience=2)
        >>> [stop(10, {"validation_loss": loss}) for loss in (3.0, 2.0, 2.5, 2.0)]
        [False, False, False, True]
    """

    patience: int
    metric: str = "validation_loss"
    min_delta: float = 0.0
    higher_is_better: bool = False
    needs_validation: ClassVar[bool] = True  # `fit` refuses data without any

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise ConfigError(f"patience must be at least 1 validation, got {self.patience}")
        self.resume(())

    def resume(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Replays the recorded metrics of a run; returns whether they stop it."""
        self._best, self._since = math.inf, 0
        for record in records:
            self(record["step"], record)
        return self._since >= self.patience

    def __call__(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Whether to stop after these metrics; records without a validation are ignored."""
        if "validation_loss" not in metrics:
            return False
        if self.metric not in metrics:
            raise ConfigError(f"metric must be one of {sorted(metrics)}, got {self.metric!r}")
        value = -metrics[self.metric] if self.higher_is_better else metrics[self.metric]
        self._since += 1
        if value < self._best - self.min_delta:
            self._best, self._since = value, 0
        return self._since >= self.patience
