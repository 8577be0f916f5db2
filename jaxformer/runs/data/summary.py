"""Summary of the training data, stored in a run folder."""

import dataclasses
import pathlib
from typing import Any

from jaxformer.storage import read_json, write_json

_DATA = "data.json"


@dataclasses.dataclass(frozen=True)
class DataSummary:
    """Summary of the data of a run; a run is not resumed with another one."""

    fingerprint: str = ""  # SHA-256 of the texts
    documents: int = 0  # for training; or rows, such as pairs
    train_tokens: int = 0  # for pairs, of the targets
    validation_tokens: int = 0
    # (rows, length) of the batches, if sequences differ in length; it depends on the devices.
    shapes: tuple[tuple[int, int], ...] = ()


def save_summary(folder: pathlib.Path, summary: DataSummary) -> None:
    """Writes the summary into a run folder."""
    write_json(folder / _DATA, dataclasses.asdict(summary))


def load_summary(folder: pathlib.Path) -> DataSummary:
    """Reads the summary of a run; CheckpointError if it is missing or damaged."""

    def summary(values: Any) -> DataSummary:
        return DataSummary(**{**values, "shapes": tuple(map(tuple, values["shapes"]))})

    return read_json(folder / _DATA, summary)
