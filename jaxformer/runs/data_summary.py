"""What a run folder remembers of the data that the run was trained on."""

import dataclasses
import pathlib
from typing import Any

from jaxformer.runs.json_files import read_json, write_json

__all__ = ["DataSummary", "load_summary", "save_summary"]

_DATA = "data.json"


@dataclasses.dataclass(frozen=True)
class DataSummary:
    """What a run was trained on.

    Args:
        fingerprint: SHA-256 of the texts, so that a run is not continued on others.
        documents: how many the training text has; pairs or labelled texts, where it is of these.
        train_tokens: how many the training text has; of pairs, the targets.
        validation_tokens: how many the validation text has, likewise.
        shapes: (rows, length) of the batches of sequences of unequal length, else empty. They
            depend on the number of devices, and the order of the batches on them.
    """

    fingerprint: str = ""
    documents: int = 0
    train_tokens: int = 0
    validation_tokens: int = 0
    shapes: tuple[tuple[int, int], ...] = ()


def save_summary(folder: pathlib.Path, summary: DataSummary) -> None:
    """Writes what a run is trained on; StorageError where it cannot be written."""
    write_json(folder / _DATA, dataclasses.asdict(summary))


def load_summary(folder: pathlib.Path) -> DataSummary:
    """Reads what a run was trained on.

    Raises:
        CheckpointError: the file is missing or damaged.
    """

    def summary(values: Any) -> DataSummary:
        return DataSummary(**{**values, "shapes": tuple(map(tuple, values["shapes"]))})

    return read_json(folder / _DATA, summary)
