"""Validation: the loss and other metrics on validation data."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from jaxformer.errors import DataError
from jaxformer.training.data import ValidationBatches


class Evaluation(NamedTuple):
    """Validation loss and other metrics.

    Args:
        loss: mean loss in nats per unit.
        predicted: number of labels that the loss is averaged over.
        bits_per_byte: bits per byte of text, comparable across lossless tokenizers (all except the
            word tokenizer); None if not all of the text is predicted.
        unit: what one label is, such as "token", "masked token" or "text".
        scores: other metrics by name.
        details: lines that explain how the scores were computed.
    """

    loss: float
    predicted: int
    bits_per_byte: float | None = None
    unit: str = "token"
    scores: Mapping[str, float] = MappingProxyType({})
    details: tuple[str, ...] = ()

    @property
    def perplexity(self) -> float:
        """The exponential of the loss; infinite if it overflows a float."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf

    @property
    def figures(self) -> dict[str, float]:
        """All metrics by name, as in `metrics.jsonl`."""
        figures = {"validation_loss": self.loss, **self.scores}
        if self.bits_per_byte is not None:
            figures["bits_per_byte"] = self.bits_per_byte
        return figures

    def __str__(self) -> str:
        parts = [f"{self.loss:.4f} nats per {self.unit}"]
        if self.bits_per_byte is not None:
            parts.append(f"{self.bits_per_byte:.4f} bits per byte")
        if self.unit.endswith("token"):
            parts.append(f"perplexity {self.perplexity:.2f}")
        parts += [f"{name} {value:.4g}" for name, value in self.scores.items()]
        return ", ".join(parts)


class LossSums(NamedTuple):
    """Losses (nats) and weights of validation batches, `[batches, runs]`."""

    losses: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]
    parts: Mapping[str, tuple[int, int]]  # first batch of each part, and the one after its last

    def evaluation(self, num_bytes: int | None, unit: str, run: int = 0) -> Evaluation:
        """Mean loss of a run, as `evaluate` returns it, which has the arguments and errors, too."""
        losses, weights = self.losses[:, run], self.weights[:, run]
        if weights.sum() == 0:
            raise DataError("validation data must have labels that count, got a total weight of 0")
        scores = {}
        for name, (start, end) in self.parts.items():
            if weights[start:end].sum() == 0:
                raise DataError(
                    f"validation data must have labels that count, got a weight of 0 in {name!r}"
                )
            scores[f"loss {name}"] = float(losses[start:end].sum() / weights[start:end].sum())
        return Evaluation(
            loss=losses.sum() / weights.sum(),
            predicted=int(np.nansum(weights)),
            bits_per_byte=None if num_bytes is None else losses.sum() / math.log(2) / num_bytes,
            unit=unit,
            scores=scores,
        )


def evaluate(
    eval_step: Callable[..., Any],
    params: Any,
    batches: ValidationBatches,
    num_bytes: int | None = None,
    unit: str = "token",
) -> Evaluation:
    """Mean loss over all batches.

    Args:
        eval_step: function of (params, batch) that returns (loss_sum, weight_sum).
        params: parameters.
        batches: validation batches; or a dict of the batches of each part of the data, whose losses
            become scores, "loss NAME", without further forward passes.
        num_bytes: UTF-8 bytes of the text that the batches predict, for bits per byte.
        unit: what one label is, as in `Evaluation`.

    Returns:
        The evaluation. Its loss does not depend on how the data is split into batches.

    Raises:
        DataError: there is no batch, or the total weight, or that of a part, is 0.
    """
    return loss_sums(eval_step, params, batches).evaluation(num_bytes, unit)


def loss_sums(eval_step: Callable[..., Any], params: Any, batches: ValidationBatches) -> LossSums:
    """Losses of all batches; arguments and errors are those of `evaluate`."""
    parts = batches if isinstance(batches, Mapping) else {"": batches}
    sums, ends = [], []
    for part in parts.values():
        sums += [eval_step(params, batch) for batch in part]
        ends.append(len(sums))
    if not sums:
        raise DataError(
            "validation must have at least one batch, got none; return a new iterator each time"
        )
    # Fetched once at the end, so that the device never waits for the host; summed in float64.
    fetched = np.asarray(jax.device_get(sums), np.float64).reshape(len(sums), 2, -1)
    spans = dict(zip(parts, zip([0, *ends], ends, strict=False), strict=True))
    return LossSums(fetched[:, 0], fetched[:, 1], spans if isinstance(batches, Mapping) else {})
