"""Summary of the training data, stored in a run folder."""

import dataclasses
import pathlib
from typing import Any

from jaxformer.storage import read_json, write_json

_DATA = "data.json"


@dataclasses.dataclass(frozen=True)
class DataSummary:
    """Summary of the data of a run.

    Args:
        fingerprint: SHA-256 of the texts, so that a run is not resumed on other texts.
        documents: number of training documents, or of training rows, such as pairs.
        train_tokens: number of training tokens; for pairs, of the targets.
        validation_tokens: number of validation tokens; for pairs, of the targets.
        shapes: (rows, length) of the batches, if sequences differ in length; else empty. They
            depend on the number of devices, and determine the order of the batches.
    """

    fingerprint: str = ""
    documents: int = 0
    train_tokens: int = 0
    validation_tokens: int = 0
    shapes: tuple[tuple[int, int], ...] = ()


def save_summary(folder: pathlib.Path, summary: DataSummary) -> None:
    """Writes the summary into a run folder."""
    write_json(folder / _DATA, dataclasses.asdict(summary))


def load_summary(folder: pathlib.Path) -> DataSummary:
    """Reads the summary of a run; CheckpointError if it is missing or damaged."""

    def summary(values: Any) -> DataSummary:
        return DataSummary(**{**values, "shapes": tuple(map(tuple, values["shapes"]))})

    return read_json(folder / _DATA, summary)
