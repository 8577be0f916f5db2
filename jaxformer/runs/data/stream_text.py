"""Token streams of documents, corpora and token files, and their files in a run folder."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxformer import text
from jaxformer.config import DataConfig
from jaxformer.errors import CheckpointError, ConfigError, DataError
from jaxformer.runs.data.byte_progress import ByteProgress
from jaxformer.runs.data.prepare import cache_dir
from jaxformer.runs.data.values import Split
from jaxformer.storage import read_json, write_json
from jaxformer.text.store.arrays import map_array, write_array

__all__ = [
    "StreamText",
    "encode_text",
    "first_documents",
    "load_text",
    "read_files",
    "read_token_files",
    "require_other_files",
    "save_text",
]

_VALIDATION = "validation"  # stem of the files; a mixture's first source has "validation_0"
_FIRST = 2**12  # tokens from which prompts are taken


class StreamText(NamedTuple):
    """A text and its token stream.

    Args:
        stream: the tokens.
        num_bytes: size of the text in bytes of UTF-8; None if only tokens are known.
        documents: the text, if it is in memory.
        folder: folder of the tokens of a corpus.
        fingerprint: SHA-256 of the tokens, for token files.
    """

    stream: text.TokenStream
    num_bytes: int | None
    documents: Sequence[str] | None = None
    folder: pathlib.Path | None = None
    fingerprint: str | None = None

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.stream)


def read_files(
    config: DataConfig,
    paths: Sequence[str],
    validation_fraction: float,
    *,
    characters: bool = False,
) -> text.Corpus:
    """Scans files, or loads the record of an earlier scan.

    Args:
        config: settings for reading.
        paths: files and patterns.
        validation_fraction: share of the text for validation.
        characters: whether the sample of a corpus must contain every character.
    """
    files = text.text_files(paths)
    sizes = [file.stat().st_size for file in files if file.is_file()]
    with ByteProgress("reading", sum(sizes)) as progress:
        return text.recorded_corpus(
            files, cache_dir(config), validation_fraction=validation_fraction, field=config.field,
            errors=config.errors, characters=characters, on_progress=progress.update,
        )  # fmt: skip


def require_other_files(paths: Sequence[str], validation_paths: Sequence[str]) -> None:
    """Raises DataError, which names the file, if one is both for training and validation."""
    both = (text.text_files(names) for names in (paths, validation_paths))
    files, others = ({os.path.realpath(file) for file in part} for part in both)
    if shared := files & others:
        raise DataError(
            "data.validation_paths must be other files than data.paths, got one in both: "
            f"'{min(shared)}'; remove it from one"
        )


def read_token_files(config: DataConfig) -> Split:
    """Maps the token files of a config for training and validation.

    Raises:
        ConfigError: the config names no files.
        DataError: a file cannot be used, or is named for both.
    """
    if not config.paths:
        raise ConfigError(
            "data.source 'tokens' needs data.paths: .bin or .npy files of token ids; for example "
            "--data.paths train.bin --data.validation-paths val.bin"
        )
    files = text.text_files(config.paths)
    if not config.validation_paths:
        return Split(*text.map_token_files(files).split(config.validation_fraction))
    others = text.text_files(config.validation_paths)
    require_other_files(config.paths, config.validation_paths)
    return Split(text.map_token_files(files), text.map_token_files(others))


def encode_text(
    part: Sequence[str] | text.CorpusPart | text.TokenFiles,
    tokenizer: text.Tokenizer,
    config: DataConfig,
) -> StreamText:
    """Encodes text, or finds its tokens in the cache; checks the tokens of token files.

    Args:
        part: documents, a part of a corpus, or token files.
        tokenizer: tokenizer that encodes the text, or that the token files were made with.
        config: settings of the data, which include the folder of the cache.

    Raises:
        ConfigError: there is no folder for the tokens of a corpus; or data.packing is "documents"
            for token files, but the tokenizer has no end of text.
        DataError: the text is too short or cannot be encoded, or tokens do not fit the tokenizer.
        StorageError: the cache cannot be written.
    """
    folder = cache_dir(config)
    if isinstance(part, text.TokenFiles):
        if config.packing == "documents" and tokenizer.end_of_text is None:
            raise ConfigError(
                "data.packing 'documents' of token files needs the token that ends each document, "
                "got a tokenizer without an end of text; set tokenizer.end_of_text, or "
                "data.packing to 'windows'"
            )
        size = sum(one.tokens.nbytes for one in part.ranges)
        with ByteProgress("checking tokens", size) as progress:
            checked = text.check_token_files(part, tokenizer, folder, on_progress=progress.update)
        stream, num_bytes, fingerprint = checked
        return StreamText(stream, num_bytes, fingerprint=fingerprint)
    if not isinstance(part, text.CorpusPart):
        stream = text.cached_stream(part, tokenizer, folder)
        num_bytes = sum(len(document.encode()) for document in part)
        return StreamText(stream, num_bytes, part)
    if folder is None:
        raise ConfigError(
            f"the tokens of {part.corpus.num_bytes:,} bytes of text need a cache folder, but there "
            "is no home folder; set data.cache"
        )
    with ByteProgress("tokenizing", part.corpus.num_bytes) as progress:
        found = text.prepare_corpus(part.corpus, tokenizer, folder, on_progress=progress.update)
    stream, counts = found.train, found.train_counts
    if part.is_validation:
        assert found.validation is not None  # there was a sample of it
        stream, counts = found.validation, found.validation_counts
    return StreamText(stream, counts.num_bytes, None, found.folder)


def first_documents(stream: text.TokenStream, tokenizer: text.Tokenizer) -> list[str]:
    """Texts of the first documents of a stream, a few thousand tokens in all."""
    end = min(stream.tokens.size, _FIRST)
    starts = stream.offsets[: np.searchsorted(stream.offsets, end)]
    pieces = zip(starts, [*starts[1:], end], strict=True)
    texts = (tokenizer.decode(stream.tokens[int(begin) : int(end)]) for begin, end in pieces)
    return [one.strip("\ufffd") for one in texts]  # incomplete characters


def save_text(folder: pathlib.Path, validation: StreamText | Mapping[str, StreamText]) -> None:
    """Writes validation text into a new run folder: documents if in memory, else tokens."""
    if isinstance(validation, StreamText):
        return _save_stream(folder / _VALIDATION, validation)
    write_json(_with_end(folder / _VALIDATION, ".json"), {"sources": list(validation)})
    for index, one in enumerate(validation.values()):
        _save_stream(folder / f"{_VALIDATION}_{index}", one)


def _save_stream(stem: pathlib.Path, validation: StreamText) -> None:
    """Writes one stream, or its documents, into files with this stem."""
    if validation.documents is not None:
        write_json(_with_end(stem, ".json"), validation.documents)
        return
    write_array(_with_end(stem, "_tokens.npy"), validation.stream.tokens)
    write_array(_with_end(stem, "_documents.npy"), validation.stream.offsets)
    write_json(_with_end(stem, ".json"), {"num_bytes": validation.num_bytes})


def _with_end(stem: pathlib.Path, end: str) -> pathlib.Path:
    return stem.with_name(stem.name + end)


def load_text(
    folder: pathlib.Path, tokenizer: text.Tokenizer
) -> StreamText | dict[str, StreamText]:
    """Reads the files of `save_text`, and encodes documents.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    found = _read_record(folder / _VALIDATION)
    if not isinstance(found, tuple):
        return _load_stream(folder / _VALIDATION, found, tokenizer)
    stems = [folder / f"{_VALIDATION}_{index}" for index in range(len(found))]
    return {
        name: _load_stream(stem, _read_record(stem), tokenizer)
        for name, stem in zip(found, stems, strict=True)
    }


def _read_record(stem: pathlib.Path) -> list[str] | int | None | tuple[str, ...]:
    """Reads documents, the number of bytes of a text, or the names of a mixture's sources."""

    def checked(value: Any) -> list[str] | int | None | tuple[str, ...]:
        if isinstance(value, dict) and "sources" in value:
            return tuple(map(str, value["sources"]))
        if isinstance(value, dict):
            return None if value["num_bytes"] is None else int(value["num_bytes"])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise TypeError("it must be a list of texts")
        return value

    return read_json(_with_end(stem, ".json"), checked)


def _load_stream(stem: pathlib.Path, record: Any, tokenizer: text.Tokenizer) -> StreamText:
    """Encodes documents, or maps stored tokens; the record is their number of bytes."""
    if isinstance(record, list):
        stream = text.build_stream(record, tokenizer)
        num_bytes = sum(len(one.encode()) for one in record)
        return StreamText(stream, num_bytes, record)
    remedy = "restore the run folder, or train again"
    paths = [_with_end(stem, end) for end in ("_tokens.npy", "_documents.npy")]
    try:
        tokens, starts = (map_array(path, remedy=remedy) for path in paths)
    except DataError as error:
        raise CheckpointError(f"{stem.parent} is damaged: {error}") from None
    return StreamText(text.TokenStream(tokens, starts), record)
