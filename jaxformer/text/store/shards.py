"""Token files of a prepared corpus: memory-mapped shards and their records."""

import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from jaxformer.errors import DataError
from jaxformer.storage import write_whole
from jaxformer.text.sources.corpus import Place
from jaxformer.text.store.array_files import map_array, write_array
from jaxformer.text.store.sharded_tokens import ShardedTokens

__all__ = [
    "ABANDONED",
    "PREPARE_AGAIN",
    "PartCounts",
    "ShardRecord",
    "TokenShards",
    "read_shard_records",
    "write_shard_record",
]

ABANDONED = 3600.0  # seconds; a younger draft may belong to another process

_PARTS = ("train", "validation")
_Record = TypeVar("_Record", bound=Any)  # has `end`, which is None in the last shard
PREPARE_AGAIN = "remove that folder, and the data is prepared again"


@dataclasses.dataclass(frozen=True)
class PartCounts:
    """Counts of one side of a shard: training or validation.

    Args:
        tokens: number of tokens, including those that end documents.
        documents: number of documents that begin in it.
        num_bytes: bytes of their text in UTF-8.
    """

    tokens: int = 0
    documents: int = 0
    num_bytes: int = 0

    def __add__(self, other: "PartCounts") -> "PartCounts":
        return PartCounts(
            self.tokens + other.tokens,
            self.documents + other.documents,
            self.num_bytes + other.num_bytes,
        )


class ShardRecord(NamedTuple):
    """Counts of a shard, and where in the corpus the next one begins.

    Args:
        train: counts of the training side.
        validation: counts of the validation side.
        end: the place after it; None for the last shard.
    """

    train: PartCounts
    validation: PartCounts
    end: Place | None


@dataclasses.dataclass(frozen=True)
class TokenShards:
    """The folder of a prepared corpus.

    Args:
        folder: folder of the files. Shard 7 has a record `00007.json` and, for each side, the
            tokens in `00007.train.npy` and the starts of documents in `00007.train.documents.npy`.
    """

    folder: pathlib.Path

    def records(self) -> list[ShardRecord]:
        """The records of the shards up to the first that is missing."""

        def unpack(values: dict[str, Any]) -> ShardRecord:
            train, validation = (PartCounts(**values[part]) for part in _PARTS)
            end = values["end"]
            return ShardRecord(train, validation, None if end is None else Place(*end))

        return read_shard_records(self.folder, unpack)

    def write(
        self, index: int, record: ShardRecord, arrays: dict[str, tuple[np.ndarray, np.ndarray]]
    ) -> None:
        """Writes a shard, completely or not at all: the record comes last.

        `arrays` has the tokens and the starts of documents of each side.

        Raises:
            StorageError: a file cannot be written.
        """
        for part in _PARTS:
            for path, array in zip(self._paths(index, part), arrays[part], strict=True):
                write_array(path, array)
        values = {
            part: vars(counts)
            for part, counts in zip(_PARTS, (record.train, record.validation), strict=True)
        }
        end = None if record.end is None else list(record.end)
        write_shard_record(self.folder, index, {**values, "end": end})

    def part(self, name: str, records: list[ShardRecord]) -> tuple[ShardedTokens, np.ndarray]:
        """Maps the tokens of one side, and reads where its documents begin: int64 [documents].

        Raises:
            DataError: a file is missing, damaged, or has another size.
        """
        tokens, documents, start = [], [np.zeros(0, np.int64)], 0
        for index, record in enumerate(records):
            counts: PartCounts = getattr(record, name)
            paths = self._paths(index, name)
            found = [map_array(path, remedy=PREPARE_AGAIN) for path in paths]
            sizes = counts.tokens, counts.documents
            for path, array, size in zip(paths, found, sizes, strict=True):
                if array.shape != (size,):
                    raise DataError(
                        f"'{path}' must have {size:,} numbers, got {array.shape}; {PREPARE_AGAIN}"
                    )
            tokens.append(found[0])
            documents.append(found[1] + start)
            start += counts.tokens
        return ShardedTokens(tokens), np.concatenate(documents)

    def _paths(self, index: int, part: str) -> tuple[pathlib.Path, pathlib.Path]:
        stem = self.folder / f"{index:05}.{part}"
        return stem.with_name(f"{stem.name}.npy"), stem.with_name(f"{stem.name}.documents.npy")


def write_shard_record(folder: pathlib.Path, index: int, values: dict[str, Any]) -> None:
    """Writes the record of a shard, which makes the shard complete.

    The name of the folder, a hash of the content, is stored in the record.

    Raises:
        StorageError: it cannot be written.
    """
    write_whole(folder / f"{index:05}.json", json.dumps({**values, "folder": folder.name}))


def read_shard_records(
    folder: pathlib.Path, unpack: Callable[[dict[str, Any]], _Record]
) -> list[_Record]:
    """Reads the records of the shards up to the last, or to the first that is missing.

    Args:
        folder: folder of the shards.
        unpack: makes a record from the values that were written.

    Raises:
        DataError: one is damaged, or it belongs to another folder, that is, to other text or
            tokens.
    """
    found: list[_Record] = []
    while not found or found[-1].end is not None:
        path = folder / f"{len(found):05}.json"
        try:
            values = json.loads(path.read_bytes())
            owner = values.pop("folder")
            record = unpack(values)
        except FileNotFoundError:
            break
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"'{path}' is damaged: {error}; {PREPARE_AGAIN}") from None
        if owner != folder.name:
            raise DataError(
                f"'{path}' belongs to other text or another tokenizer: it was written into a "
                f"folder {owner!r}; {PREPARE_AGAIN}"
            )
        found.append(record)
    return found
