"""The files of a run folder besides its checkpoints: written whole, checked when read."""

import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxformer import text
from jaxformer.config import ExperimentConfig, config_differences, config_to_toml, load_config
from jaxformer.errors import CheckpointError

__all__ = [
    "CHECKPOINTS",
    "DataSummary",
    "ValidationTokens",
    "check_same_run",
    "is_run",
    "load_summary",
    "load_tokenizer",
    "load_rows",
    "read_run_config",
    "require_free",
    "save_rows",
    "save_tokenizer",
    "start_folder",
    "update_config",
]

CHECKPOINTS = "checkpoints"
_CONFIG = "config.toml"
_TOKENIZER = "tokenizer.json"
_SOURCE_TOKENIZER = "source_tokenizer.json"
_VALIDATION = "validation.npz"
_VALIDATION_ROWS = "validation.json"
_DATA = "data.json"

# What may change when a run goes on: how far, how often, where; never what is computed.
_MAY_CHANGE = ("training.steps", "training.log_every", "training.eval_every",
               "training.checkpoint_every", "training.keep_checkpoints", "training.runner",
               "training.devices", "training.cpu_devices", "samples.", "out")  # fmt: skip


class ValidationTokens(NamedTuple):
    """The validation tokens, kept in the run folder so that it needs no other file.

    Args:
        stream: the tokens.
        num_bytes: UTF-8 bytes of the text that the model predicts.
    """

    stream: text.TokenStream
    num_bytes: int

    def save(self, folder: pathlib.Path) -> None:
        """Writes them into a run folder."""
        np.savez(
            folder / _VALIDATION,
            tokens=self.stream.tokens,
            offsets=self.stream.offsets,
            num_bytes=np.int64(self.num_bytes),
        )

    @classmethod
    def load(cls, folder: pathlib.Path) -> "ValidationTokens":
        """Reads them from a run folder.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        path = folder / _VALIDATION
        try:
            # Opened here, because np.load leaves a damaged file open.
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                stream = text.TokenStream(file["tokens"], file["offsets"])
                return cls(stream, int(file["num_bytes"]))
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise _damaged(path, error) from None


@dataclasses.dataclass(frozen=True)
class DataSummary:
    """What a run was trained on.

    Args:
        fingerprint: SHA-256 of the texts, so that a run is not continued on others.
        documents: how many the training text has; pairs or labelled texts, where it is of these.
        train_tokens: how many the training text has; of pairs, the targets.
        validation_tokens: how many the validation text has, likewise.
        classes: names of the labels, in the order of their numbers; empty without labels.
        shapes: (rows, length) of the batches of sequences of unequal length, else empty. They
            depend on the number of devices, and the order of the batches on them.
    """

    fingerprint: str
    documents: int
    train_tokens: int
    validation_tokens: int
    classes: tuple[str, ...] = ()
    shapes: tuple[tuple[int, int], ...] = ()


def is_run(folder: pathlib.Path) -> bool:
    """Tells whether a folder is a run folder: whether it has a config."""
    return (folder / _CONFIG).is_file()


def require_free(folder: pathlib.Path) -> None:
    """Checks that a run can be made at a path: nothing is there, or an empty folder.

    Raises:
        CheckpointError: something is there, or the folder above cannot be made.
    """
    try:
        if folder.is_symlink() or folder.exists():
            others = sorted(path.name for path in folder.iterdir())
            if others:
                raise CheckpointError(
                    f"out={folder} is not a run folder, and is not empty: it has {others[0]}; "
                    "choose another out"
                )
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"out={folder} cannot be a run folder: {error.strerror}; choose another out"
        ) from None


def start_folder(
    folder: pathlib.Path,
    config: ExperimentConfig,
    summary: DataSummary,
    write: Callable[[pathlib.Path], None],
) -> None:
    """Makes a run folder, whole or not at all.

    Args:
        folder: where; free, as `require_free` checks.
        config: of the run.
        summary: of the training text.
        write: writes what else there is into the folder: tokenizers and validation data.
    """
    above = folder.absolute().parent
    draft = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=above))
    try:
        draft.chmod(0o755)
        write(draft)
        summary_text = json.dumps(dataclasses.asdict(summary), indent=2) + "\n"
        (draft / _DATA).write_text(summary_text, encoding="utf-8")
        (draft / _CONFIG).write_text(config_to_toml(config), encoding="utf-8")
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def update_config(folder: pathlib.Path, config: ExperimentConfig) -> None:
    """Replaces the config of a run that goes on, whole or not at all."""
    draft = folder / f".{_CONFIG}.tmp"
    draft.write_text(config_to_toml(config), encoding="utf-8")
    os.replace(draft, folder / _CONFIG)


def read_run_config(folder: pathlib.Path) -> ExperimentConfig:
    """Reads the config of a run folder.

    Raises:
        CheckpointError: the path is no run folder.
    """
    if not is_run(folder):
        reason = "it has no config.toml" if folder.is_dir() else "there is no such folder"
        raise CheckpointError(
            f"{folder} is not a run folder: {reason}; jaxformer train CONFIG.toml makes one"
        )
    return load_config(folder / _CONFIG)


def save_tokenizer(
    folder: pathlib.Path, tokenizer: text.Tokenizer, source_tokenizer: text.Tokenizer | None = None
) -> None:
    """Writes the tokenizer of a run folder, and that of the sources where it is another."""
    tokenizer.save(folder / _TOKENIZER)
    if source_tokenizer is not None:
        source_tokenizer.save(folder / _SOURCE_TOKENIZER)


def load_tokenizer(folder: pathlib.Path, *, of_sources: bool = False) -> text.Tokenizer:
    """Reads the tokenizer of a run folder, or that of its sources."""
    return text.Tokenizer.load(folder / (_SOURCE_TOKENIZER if of_sources else _TOKENIZER))


def save_rows(folder: pathlib.Path, *columns: Sequence[str]) -> None:
    """Writes validation rows, such as pairs of sentences, into a run folder."""
    rows = [list(row) for row in zip(*columns, strict=True)]
    (folder / _VALIDATION_ROWS).write_text(
        json.dumps(rows, ensure_ascii=False, indent=0) + "\n", encoding="utf-8"
    )


def load_rows(folder: pathlib.Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Reads the two columns of validation rows.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    path = folder / _VALIDATION_ROWS
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return tuple(str(first) for first, _ in rows), tuple(str(second) for _, second in rows)
    except (OSError, TypeError, ValueError) as error:
        raise _damaged(path, error) from None


def load_summary(folder: pathlib.Path) -> DataSummary:
    """Reads what a run was trained on.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    path = folder / _DATA
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        values["classes"] = tuple(values["classes"])
        values["shapes"] = tuple(map(tuple, values["shapes"]))
        return DataSummary(**values)
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise _damaged(path, error) from None


def check_same_run(folder: pathlib.Path, config: ExperimentConfig, summary: DataSummary) -> None:
    """Refuses to go on with a run of another config or text.

    Args:
        folder: of the run.
        config: as asked for, its model.vocab_size filled in.
        summary: of the data that the config gives now.

    Raises:
        CheckpointError: with what differs.
    """
    forbidden = [
        f"{key}: {before!r} there, {after!r} now"
        for key, (before, after) in config_differences(read_run_config(folder), config).items()
        if not key.startswith(_MAY_CHANGE)
    ]
    if forbidden:
        raise CheckpointError(
            f"{folder} belongs to another config ({'; '.join(forbidden)}); choose another out, or "
            "undo the change"
        )
    before = load_summary(folder)
    if before.fingerprint != summary.fingerprint:
        raise CheckpointError(
            f"{folder} was trained on another text than data now gives; choose another out, or "
            "restore the text"
        )
    if before.shapes != summary.shapes:
        raise CheckpointError(
            f"{folder} has batches of (rows, length) {before.shapes}, got {summary.shapes} with "
            "this number of devices; go on with as many as before, or choose another out"
        )


def _damaged(path: pathlib.Path, error: Exception) -> CheckpointError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CheckpointError(
        f"{path} is missing or damaged ({reason}); restore the run folder, or train it anew"
    )
