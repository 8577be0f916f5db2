"""Reading the files of a config: scanned once, with progress."""

from collections.abc import Sequence
from typing import Any

from jaxformer import text
from jaxformer.config import DataConfig
from jaxformer.errors import DataError
from jaxformer.runs.data.byte_progress import ByteProgress, total_size
from jaxformer.runs.data.prepare import cache_dir
from jaxformer.storage import real_path


def scan_files(
    table: type[text.Table],
    config: DataConfig,
    paths: Sequence[str],
    fraction: float = 0,
    *,
    characters: bool = False,
    **options: Any,
) -> text.Corpus:
    """Scans files, or loads an earlier scan; `characters` asks for a sample with all of them."""
    files = [path for group in table.groups(paths) for path in group]
    with ByteProgress("reading", total_size(files)) as progress:
        return text.scan_corpus(
            table, paths, validation_fraction=fraction, errors=config.errors,
            characters=characters, cache_dir=cache_dir(config), on_progress=progress.update,
            **options,
        )  # fmt: skip


def left_out(corpus: text.Corpus) -> tuple[str, ...]:
    """Report line on unreadable records, if any."""
    if not corpus.skipped:
        return ()
    unit = "record" if corpus.skipped == 1 else "records"
    shown = "; ".join(corpus.skipped_shown)
    return (f"left out {corpus.skipped:,} {unit} that cannot be read: {shown}",)


def require_other_files(paths: Sequence[str], validation_paths: Sequence[str]) -> None:
    """Raises DataError, which names the file, if one is both for training and validation."""
    train, validation = (
        {real_path(file) for file in text.text_files(names)} for names in (paths, validation_paths)
    )
    if shared := train & validation:
        raise DataError(
            "data.validation_paths must be other files than data.paths, got one in both: "
            f"'{min(shared)}'; remove it from one"
        )
