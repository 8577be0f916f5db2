"""Return types of methods of tasks and text models: data, its summary, log-likelihoods."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

from jaxformer import text
from jaxformer.storage import read_json, write_json

_DATA = "data.json"


class Split(NamedTuple):
    """Result of `Task.read`: the data before encoding.

    Args:
        train: for a `TableTask`, a `text.Corpus`; for a `StreamTask`, sources of text by name.
        validation: validation rows, a `text.Table`; None for a `StreamTask`.
        validation_counts: counts of the validation rows read and dropped, if some were.
    """

    train: Any
    validation: Any = None
    validation_counts: text.Counts | None = None


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


class LogLikelihood(NamedTuple):
    """Log-likelihood of a text under a model.

    Args:
        log_likelihood: natural logarithm of the text's probability, in nats.
        num_tokens: number of tokens summed over.
    """

    log_likelihood: float
    num_tokens: int


def counted(count: int, plural: str) -> str:
    """A number and its noun, such as 1 text, 2 texts, 1 line of 40 characters."""
    noun, of, rest = plural.partition(" of ")
    return f"{count:,} {noun.removesuffix('s') if count == 1 else noun}{of}{rest}"
