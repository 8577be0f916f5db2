"""Training and validation batches, and checks on them before they reach a device."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxformer.errors import DataError

ValidationBatches = Iterable[Any] | Mapping[str, Iterable[Any]]
"""Validation batches, or a dict of the batches of each part of the data."""


class BatchSource(Protocol):
    """Training batches, indexed by step: a list, or anything with `__getitem__`."""

    def __getitem__(self, step: int, /) -> Any: ...


class TrainingData(NamedTuple):
    """Training batches, validation batches, and validation metrics.

    Args:
        batches: `batches[step]` returns this host's rows of the batch of a step, the same each
            time: a pytree of arrays `[rows, ...]`. It can be a list of all batches.
        validation: function that returns an iterable of this host's validation batches, each time
            from the first; None to train without validation. If it returns a dict of such
            iterables, the validation loss is over all batches, and the loss of each part is a
            score, "loss NAME".
        validation_bytes: UTF-8 bytes of the text that the validation batches predict, for bits
            per byte; None if they do not predict all of it.
        unit: what one label is, such as "token", "masked token" or "text".
        scores: function of the parameters, on one device, that returns a dict of scores, such as
            BLEU; called at every evaluation.

    Example:
        >>> import numpy as np
        >>> x = np.arange(8.0).reshape(4, 2)
        >>> data = TrainingData([{"x": x}] * 10, validation=lambda: [{"x": x + 1}], unit="row")
        >>> data.batches[3]["x"].shape
        (4, 2)
    """

    batches: BatchSource
    validation: Callable[[], ValidationBatches] | None = None
    validation_bytes: int | None = None
    unit: str = "token"
    scores: Callable[[Any], dict[str, float]] | None = None


def shares_batches(data: Sequence[TrainingData]) -> bool:
    """Whether runs have the same batches."""
    return all(part is data[0] for part in data)


class _Joined:
    """Batches of several runs, as tuples."""

    def __init__(self, parts: Sequence[TrainingData]) -> None:
        self._parts = parts

    def __getitem__(self, step: int) -> tuple[Any, ...]:
        return tuple(part.batches[step] for part in self._parts)


def joined_runs(parts: Sequence[TrainingData]) -> TrainingData:
    """Data of several runs, whose batches are tuples unless they are the same."""
    if shares_batches(parts):
        return parts[0]

    def validation() -> ValidationBatches:
        batches: list[Any] = [part.validation() for part in parts if part.validation is not None]
        if isinstance(batches[0], Mapping):
            return {
                name: zip(*(parts[name] for parts in batches), strict=True) for name in batches[0]
            }
        return zip(*batches, strict=True)

    has_validation = parts[0].validation is not None
    return TrainingData(_Joined(parts), validation if has_validation else None, unit=parts[0].unit)


def check_data(data: TrainingData, steps: int) -> None:
    """Raises DataError if the data cannot be used for training over this many steps."""
    batches = data.batches
    if not hasattr(batches, "__getitem__"):
        raise DataError(
            "batches must be indexed by step, as batches[step], because a resumed run needs the "
            f"batch of any step again, got {type(batches).__name__}; pass a list, or write a class "
            "with __getitem__(self, step)"
        )
    if isinstance(batches, Sequence) and len(batches) < steps:
        raise DataError(
            f"a list of batches must have one for each of the {steps} steps, got {len(batches)}; "
            "lower steps, or to repeat batches, write a class whose __getitem__(self, step) uses "
            f"step % {len(batches) or 'their number'}"
        )
    if data.scores is not None and data.validation is None:
        raise DataError("scores need validation batches, got none; set validation or remove scores")


def batch_at(batches: BatchSource, step: int, parts: int) -> Any:
    """Batch of a step, counted from 0; raises DataError if it is missing or fails `check_rows`."""
    try:
        batch = batches[step]
    except (IndexError, KeyError) as error:
        raise DataError(
            f"batches must have a batch for every step, got {type(error).__name__} for step "
            f"{step}: {error}; lower steps, or repeat batches"
        ) from error
    check_rows(f"the batch of step {step}", batch, parts)
    return batch


def check_rows(name: str, batch: Any, parts: int) -> None:
    """Raises DataError unless arrays have equally many rows, which divide into `parts`."""
    shapes = [(path, np.shape(leaf)) for path, leaf in jax.tree.leaves_with_path(batch)]
    for path, shape in shapes:
        if not shape or shape[:1] != shapes[0][1][:1] or shape[0] % parts:
            raise DataError(
                f"{name} must have the same number of rows in every array, a multiple of devices "
                f"* accumulate_steps = {parts}, got shape {shape} at "
                f"{jax.tree_util.keystr(path) or 'it'}; pad with rows of weight 0, or use fewer "
                "devices, such as runner=SingleRunner()"
            )
