"""Training and validation batches, and the checks that they pass before they reach a device."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxformer.errors import DataError

__all__ = [
    "BatchSource",
    "HostBatch",
    "TrainingData",
    "ValidationBatches",
    "batch_at",
    "check_data",
    "joined_validation",
]

HostBatch = dict[str, Any]
"""Arrays by name, or any other pytree of arrays that the loss takes."""


ValidationBatches = Iterable[Any] | Mapping[str, Iterable[Any]]
"""Validation batches; or those of each part of the data, by the name of the part."""


class BatchSource(Protocol):
    """Training batches, indexed by step: a list, or anything with `__getitem__`."""

    def __getitem__(self, step: int, /) -> Any: ...


class TrainingData(NamedTuple):
    """Training batches, validation batches, and what is measured on them.

    Args:
        batches: `batches[step]` is this host's rows of the batch of any step, the same each time:
            a pytree of arrays `[rows, ...]`. It can be a list of all batches.
        validation: returns an iterable of this host's validation batches, each time from the
            first; None to train without validation. Or returns a dict of such iterables: the
            validation loss is that of all batches, and that of each part is a score, "loss NAME".
        validation_bytes: UTF-8 bytes of the text that the validation batches predict, for bits
            per byte; None where they do not predict all of it.
        unit: what one label is, such as "token", "masked token" or "text".
        scores: function of the parameters, on one device, to numbers by name, such as BLEU,
            computed at every evaluation; None for none.

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


def joined_validation(parts: Mapping[str, TrainingData]) -> TrainingData:
    """Validation data of several parts, whose losses are told apart; no training batches.

    Args:
        parts: data with validation batches, by name; with one unit, and without scores.
    """

    def validation() -> dict[str, Any]:
        return {name: data.validation() for name, data in parts.items() if data.validation}

    sizes = [data.validation_bytes for data in parts.values()]
    return TrainingData(
        batches=(),
        validation=validation,
        validation_bytes=None if None in sizes else sum(size for size in sizes if size),
        unit=next(data.unit for data in parts.values()),
    )


def check_data(data: TrainingData, steps: int) -> None:
    """Checks that the data can be trained on for so many steps; raises DataError if not."""
    batches = data.batches
    if not hasattr(batches, "__getitem__"):
        raise DataError(
            "batches must be indexed by step, as batches[step], because a resumed run needs the "
            f"batch of any step again, got {_kind(batches)}; make a list of it, or write a class "
            "with __getitem__(self, step)"
        )
    if isinstance(batches, Sequence) and len(batches) < steps:
        raise DataError(
            f"a list of batches must have one for each of the {steps} steps, got {len(batches)}; "
            "to go through them again, write a class whose __getitem__(self, step) takes step % "
            f"{len(batches) or 'their number'}, or lower steps"
        )
    if data.validation is not None and not callable(data.validation):
        raise DataError(
            "validation must be a function that returns the batches, because every evaluation "
            f"starts from the first, got {_kind(data.validation)}; try lambda: batches"
        )
    if data.scores is not None and data.validation is None:
        raise DataError("scores are taken beside a validation loss, got no validation batches")


def batch_at(batches: BatchSource, step: int, parts: int) -> Any:
    """Batch of a step, counted from 0, whose rows must divide evenly into `parts`.

    Raises:
        DataError: there is no such batch, it is no pytree of arrays, or its rows do not divide.
    """
    try:
        batch = batches[step]
    except (IndexError, KeyError) as error:
        raise DataError(
            f"batches must have a batch for every step, got {type(error).__name__} for step "
            f"{step}: {error}; lower steps, or start again from the first batch"
        ) from error
    check_rows(f"the batch of step {step}", batch, parts)
    return batch


def check_rows(name: str, batch: Any, parts: int) -> None:
    """Checks that a batch is a pytree of arrays whose rows divide; raises DataError if not."""
    leaves = jax.tree.leaves_with_path(batch)
    if not leaves:
        raise DataError(f"{name} must have arrays, got {batch!r}")
    rows = np.shape(leaves[0][1])[:1]
    for path, leaf in leaves:
        where = jax.tree_util.keystr(path) or "it"
        shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
        if shape is None or dtype is None or dtype.kind in "OSUMm":
            raise DataError(
                f"{name} must be a dict, or another pytree, of arrays of numbers, got "
                f"{_kind(leaf) if dtype is None else f'an array of {dtype}'} at {where}; make "
                "arrays with np.asarray"
            )
        if not shape or shape[:1] != rows or shape[0] % parts:
            raise DataError(
                f"{name} must have the same number of rows in every array, a multiple of devices "
                f"* accumulate_steps = {parts}, got shape {tuple(shape)} at {where}; fill up the "
                "rows with some of weight 0, or use fewer devices, as runner=SingleRunner()"
            )


def _kind(value: Any) -> str:
    """Type of a value, with its article, for messages."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
