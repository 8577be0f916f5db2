"""Documents: finding their files, and reading them into memory."""

import glob
import json
import pathlib
import re
from collections.abc import Iterator, Sequence

from jaxformer.errors import DataError
from jaxformer.storage import as_path, bucket_files, in_bucket, real_path
from jaxformer.text.sources.files import readable

# Shorter paragraphs and lines, such as headings, often repeat without leaking validation text.
LONG = 40
_BLANK_LINES = re.compile(r"(\n\s*\n)")


def python_documents() -> list[str]:
    """Returns the documentation that ships with Python, about 0.5 MB; downloads nothing.

    Returns:
        The topics of `help()`, one document each, sorted by name.

    Example:
        >>> documents = python_documents()
        >>> 400_000 < sum(map(len, documents)) < 800_000
        True
    """
    from pydoc_data.topics import topics

    return [topics[name] for name in sorted(topics)]


BUILT_IN = {"python": python_documents}
"""Documents that need no files, by `data.source`."""


def text_files(paths: Sequence[str]) -> list[pathlib.Path]:
    """Expands paths and glob patterns to files, each once.

    Args:
        paths: files or glob patterns, of this machine or in buckets, such as
            `gs://bucket/corpus/*.jsonl`; `**` matches folders of any depth. The files of a pattern
            are sorted by name, and a file that is named twice is listed once. A folder written by
            `save_to_disk` of a Hugging Face dataset stands for its files.

    Returns:
        The files, at least one.

    Raises:
        ConfigError: a URL has an unknown scheme, or needs a package that is missing.
        DataError: there is no path, a pattern matches no file, or a bucket cannot be listed.

    Example:
        >>> text_files(["a.txt", "./a.txt"])
        [PosixPath('a.txt')]
    """
    if isinstance(paths, str) or not paths:
        raise DataError(f"paths must be a list of text files or patterns, got {paths!r}; name one")
    files: dict[str, pathlib.Path] = {}
    for path in paths:
        with readable(path):
            matches = _matches(path)
        for file in matches:
            files.setdefault(real_path(file), file)
    return list(files.values())


def _matches(path: str) -> list[pathlib.Path]:
    """Lists the files of a path or pattern."""
    place = as_path(path)
    if place.is_dir() and (files := _dataset_files(place)):
        return files
    if not glob.has_magic(path) or place.exists():
        return [place]
    if in_bucket(place):
        files = bucket_files(place)
    else:
        matches = map(pathlib.Path, glob.iglob(path, recursive=True))
        files = sorted(match for match in matches if match.is_file())
    if files:
        return files
    raise DataError(
        f"a pattern must match at least one file, got {path!r}, which matches none in "
        f"{pathlib.Path.cwd()}; check its spelling"
    )


def _dataset_files(folder: pathlib.Path) -> list[pathlib.Path] | None:
    """Files of a Hugging Face dataset saved by `save_to_disk`, in order; None for other folders."""
    state = folder / "state.json"
    if not state.is_file():
        return None
    values = json.loads(state.read_bytes())
    if values.get("_indices_files"):
        raise DataError(
            f"'{folder}' is a selection of another dataset; save it after flatten_indices()"
        )
    return [folder / pathlib.PurePath(file["filename"]).name for file in values["_data_files"]]


def paragraphs(document: str) -> Iterator[str]:
    """Yields the paragraphs of at least 40 characters; shorter ones do not matter for a split."""
    for part in _BLANK_LINES.split(document)[::2]:
        if len(part.strip()) >= LONG:
            yield part.strip()


def without_repeats(documents: Sequence[str]) -> list[str]:
    """Keeps each paragraph of at least 40 characters once, where it is first; drops blank texts."""
    seen: set[str] = set()
    texts = []
    for document in documents:
        parts = _BLANK_LINES.split(document) + [""]
        pairs = zip(parts[::2], parts[1::2], strict=True)
        text = "".join(text + blank for text, blank in pairs if text.strip() not in seen)
        seen.update(paragraphs(document))
        if text.strip():
            texts.append(text)
    return texts


def long_lines(document: str) -> Iterator[str]:
    """Yields the lines of at least 40 characters, stripped."""
    for line in document.split("\n"):
        if len(line.strip()) >= LONG:
            yield line.strip()
