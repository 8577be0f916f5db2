"""What a run trains on: batches by step, checked one by one before they reach a device."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxformer.errors import DataError

__all__ = ["BatchSource", "HostBatch", "TrainingData", "batch_at", "check_data"]

HostBatch = dict[str, Any]
"""Arrays by name, or any other pytree of arrays that the loss takes."""


class BatchSource(Protocol):
    """Batches by step: a list of them, or anything with `__getitem__`."""

    def __getitem__(self, step: int, /) -> Any: ...


class TrainingData(NamedTuple):
    """What a run trains on, and what it is validated on.

    Args:
        batches: `batches[step]` is this host's rows of the batch of any step, the same each time:
            a pytree of arrays `[rows, ...]`. A list of all batches will do.
        validation: returns the validation batches of this host, each time from the first; None to
            train without validation.
        validation_bytes: UTF-8 bytes of the text that the validation batches predict; None where
            that is no measure.
        unit: what is predicted, such as a "token", a "masked token" or a "text".
        scores: (params on one device) to figures by name, such as BLEU, taken at every
            evaluation beside the validation loss; None for none.

    Example:
        >>> import numpy as np
        >>> x = np.arange(8.0).reshape(4, 2)
        >>> data = TrainingData([{"x": x}] * 10, validation=lambda: [{"x": x + 1}], unit="row")
        >>> data.batches[3]["x"].shape
        (4, 2)
    """

    batches: BatchSource
    validation: Callable[[], Iterable[Any]] | None = None
    validation_bytes: int | None = None
    unit: str = "token"
    scores: Callable[[Any], dict[str, float]] | None = None


def check_data(data: TrainingData, steps: int) -> None:
    """Raises DataError where a run of so many steps cannot be trained on this data."""
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
    """Takes the batch of a step, which must have rows for every device and micro-batch.

    Args:
        batches: by step.
        step: from 0.
        parts: what the rows are cut into, evenly.

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
    """Raises DataError where a batch is no pytree of arrays whose rows divide evenly."""
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
    """Names the type of a value, with its article."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
