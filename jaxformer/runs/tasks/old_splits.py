"""Data of runs whose split is of the first kind, by a random order; new runs split by hashes."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxformer import text
from jaxformer.config import DataConfig, ExperimentConfig
from jaxformer.runs.data.byte_progress import total_size
from jaxformer.runs.data.summary import load_summary
from jaxformer.runs.data.text_parts import CorpusPart, Documents, left_out, read_files
from jaxformer.runs.data.values import Split
from jaxformer.runs.tasks.streams import StreamTask
from jaxformer.runs.tasks.tables import TableTask
from jaxformer.runs.tasks.task import Task
from jaxformer.text.sources.corpus import Place
from jaxformer.text.sources.documents import BUILT_IN, paragraphs, without_paragraphs
from jaxformer.text.sources.holdout import Holdout

_MUCH = 2**26  # bytes; more was split by hashes already
_PACKED, _UNPACKED = (".gz", ".zst", ".parquet"), 5  # ratio of text to file size


def with_its_split(kind: type[Task], folder: pathlib.Path) -> type[Task]:
    """The task class of a run to resume, which splits its data as the run did at its start."""
    if load_summary(folder).split == "hash":
        return kind
    if issubclass(kind, StreamTask):
        methods: dict[str, Any] = {"read_text": _read_text, "read_built_in": _read_built_in}
    elif issubclass(kind, TableTask):
        methods = {"split_rows": lambda cls, config: _split_rows(kind, config, folder)}
    else:
        return kind
    return type(kind.__name__, (kind,), {k: classmethod(method) for k, method in methods.items()})


def _read_text(cls: type[StreamTask], data: DataConfig, *, characters: bool) -> Split:
    """`StreamTask.read_text` of such a run."""
    if data.validation_paths:
        corpus = read_files(data, data.paths, 0, characters=characters)
        others = read_files(data, data.validation_paths, 0, characters=characters)
        report = left_out(corpus) + left_out(others)
        return Split(_whole(corpus), _whole(others), report=report)
    corpus = read_files(data, data.paths, data.validation_fraction, characters=characters)
    if corpus.num_bytes <= _MUCH:
        train, validation = _split_documents(_documents(corpus), data.validation_fraction)
        return Split(Documents(train), Documents(validation), report=left_out(corpus))
    corpus = dataclasses.replace(corpus, holdout=Holdout(data.validation_fraction))
    return Split(CorpusPart(corpus, False), CorpusPart(corpus, True), report=left_out(corpus))


def _read_built_in(cls: type[StreamTask], data: DataConfig, *, characters: bool) -> Split:
    """`StreamTask.read_built_in` of such a run."""
    documents = BUILT_IN[data.source]()
    if not data.validation_paths:
        train, validation = _split_documents(documents, data.validation_fraction)
        return Split(Documents(train), Documents(validation))
    others = read_files(data, data.validation_paths, 0, characters=characters)
    return Split(Documents(documents), _whole(others), report=left_out(others))


def _whole(corpus: text.Corpus) -> Documents | CorpusPart:
    return Documents(_documents(corpus)) if corpus.num_bytes <= _MUCH else CorpusPart(corpus, False)


def _documents(corpus: text.Corpus) -> list[str]:
    """All documents of a corpus."""
    documents: list[list[str]] = []
    for piece, _ in corpus.pieces(Place()):
        if piece.is_start:
            documents.append([])
        documents[-1].append(piece.text)
    return list(map("".join, documents))


def _split_documents(documents: Sequence[str], fraction: float) -> tuple[list[str], list[str]]:
    """Splits documents: the end of a random order was for validation."""
    order = [documents[i] for i in np.random.default_rng(0).permutation(len(documents))]
    training, validation = _split_at(order, fraction)
    if len(documents) > 1:
        repeated = {one for document in validation for one in paragraphs(document)}
        training = [without_paragraphs(document, repeated) for document in training]
    return [document for document in training if document.strip()], validation


def _split_at(documents: list[str], fraction: float) -> tuple[list[str], list[str]]:
    """Splits documents where the last `fraction` of their characters begins, at a line break."""
    total = sum(map(len, documents))
    start, cut = 0, total - round(fraction * total)
    for i, document in enumerate(documents):
        end = start + len(document)
        if start <= cut < end:
            index = cut - start
            at = _nearest(document, index, is_first=start == 0, is_last=end == total)
            head, tail = [*documents[:i], document[:at]], [document[at:], *documents[i + 1 :]]
            return [one for one in head if one], [one for one in tail if one]
        start = end
    return documents, []


def _nearest(document: str, index: int, *, is_first: bool, is_last: bool) -> int:
    """The line start nearest to an index; with text before and after it at the ends of all text."""
    breaks = {document.rfind("\n", 0, index) + 1, document.find("\n", index) + 1 or len(document)}
    breaks -= {0} if is_first else set()
    breaks -= {len(document)} if is_last else set()
    return min(breaks, key=lambda at: abs(at - index), default=index)


def _split_rows(kind: type[TableTask], config: ExperimentConfig, folder: pathlib.Path) -> Split:
    """`TableTask.split_rows` of such a run."""
    data, options = config.data, kind.row_options(config)
    is_packed = any(path.lower().endswith(_PACKED) for path in data.paths)
    if total_size(data.paths) * (_UNPACKED if is_packed else 1) > _MUCH:
        return _split_corpus(kind.split_rows(config), data, kind.stored_rows(folder))
    rows, counts = kind.table.read(data.paths, **options)
    if data.validation_paths:
        validation, dropped = kind.table.read(data.validation_paths, **options)
        return Split(rows, validation, counts, dropped)
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    start = len(rows) - round(data.validation_fraction * len(rows))
    validation = rows.take(order[start:])
    repeated: set[int] = set()
    for name, known in zip(rows.inputs, validation.input_texts(), strict=True):
        repeated |= {i for i in order[:start] if getattr(rows, name)[i] in known}
    counts = counts.drop("repeated", [rows.lines[i] for i in order[:start] if i in repeated])
    return Split(rows.take(i for i in order[:start] if i not in repeated), validation, counts)


def _split_corpus(split: Split, data: DataConfig, validation: text.Table) -> Split:
    """The split of large files, whose validation rows are in the run folder."""
    if data.validation_paths:
        return split
    holdout = Holdout(data.validation_fraction)
    corpus = dataclasses.replace(split.train, holdout=holdout, validation=validation)
    return split._replace(train=corpus, validation=validation)
