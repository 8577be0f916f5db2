"""Text before encoding: documents, part of a corpus, or a mixture of these."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxformer import text
from jaxformer.config import DataConfig, MixtureSourceConfig
from jaxformer.errors import DataError
from jaxformer.runs.data.prepare import fingerprint
from jaxformer.runs.data.stream_text import StreamText
from jaxformer.runs.data.values import Split

__all__ = [
    "MixedText",
    "TextPart",
    "all_texts",
    "corpus_report",
    "has_corpus",
    "mixture_report",
    "named_parts",
    "naming_source",
    "read_mixture",
    "shared_documents",
    "split_fingerprint",
    "tokenizer_texts",
]

_SAMPLE = 2**25  # bytes of training text for training a tokenizer, as for a corpus
_PIECE = 2**17  # characters of a document that are sampled together

TextPart = Sequence[str] | text.CorpusPart | text.TokenFiles
"""Documents in memory, one side (training or validation) of a corpus, or token files."""


class MixedText(NamedTuple):
    """Text of the sources of a mixture, for training or for validation.

    Args:
        parts: documents in memory, or one side of a corpus, by name of the source.
        sample: texts of all sources: for training, to train a tokenizer; for validation, to take
            prompts from.
    """

    parts: dict[str, TextPart]
    sample: tuple[str, ...]


@contextlib.contextmanager
def naming_source(name: str) -> Iterator[None]:
    """Adds the name of the mixture's source, if it has one, to errors on its data."""
    try:
        yield
    except DataError as error:
        if not name:
            raise
        raise DataError(f"source {name!r} of data.mixture: {error}") from None


def read_mixture(
    config: DataConfig, read: Callable[[DataConfig], Split], *, characters: bool
) -> Split:
    """Reads the sources of a mixture.

    Returns:
        A split of two `MixedText`s. In the sample for the tokenizer, each source has its weight's
        share of 32 MiB, or all of its text if that is less.

    Raises:
        DataError: a source cannot be read or split, or a file is in two of them.
    """
    _require_apart(config.mixture)
    splits = {}
    for source in config.mixture:
        with naming_source(source.name):
            splits[source.name] = read(
                dataclasses.replace(config, mixture=(), paths=source.paths, field=source.field)
            )
    train = {name: split.train for name, split in splits.items()}
    validation = {name: split.validation for name, split in splits.items()}
    total = sum(source.weight for source in config.mixture)
    sample: list[str] = []
    for source in config.mixture:
        texts = all_texts(train[source.name])
        size = _SAMPLE * source.weight / total
        sample += texts if characters else _drawn(texts, size)
    held_out = tuple(one for part in validation.values() for one in all_texts(part))
    report = tuple(f"{name}: {line}" for name, one in splits.items() for line in one.report)
    return Split(MixedText(train, tuple(sample)), MixedText(validation, held_out), report=report)


def named_parts(part: TextPart | MixedText) -> Mapping[str, TextPart]:
    """The parts of a mixture by the name of their source; a text alone has the name ""."""
    return part.parts if isinstance(part, MixedText) else {"": part}


def tokenizer_texts(part: TextPart | MixedText) -> Sequence[str]:
    """Texts for training a tokenizer."""
    return part.sample if isinstance(part, MixedText) else all_texts(part)


def all_texts(part: TextPart | MixedText) -> Sequence[str]:
    """All documents, or the sample of a corpus; none for token files."""
    found: list[str] = []
    for one in named_parts(part).values():
        if not isinstance(one, text.TokenFiles):
            found += one.sample if isinstance(one, text.CorpusPart) else one
    return found


def has_corpus(part: TextPart | MixedText) -> bool:
    """Whether some of the text is larger than memory."""
    return any(isinstance(one, text.CorpusPart) for one in named_parts(part).values())


def split_fingerprint(
    data: Split, train: Mapping[str, StreamText], validation: Mapping[str, StreamText]
) -> str:
    """SHA-256 of the text of a split, or of its tokens if there is no text.

    For a mixture, also of the names of its sources.
    """
    if isinstance(data.train, text.TokenFiles):
        return fingerprint(*((str(one[""].fingerprint),) for one in (train, validation)))
    others = named_parts(data.validation)
    found = {
        name: fingerprint(_content(part), _content(others[name]))
        for name, part in named_parts(data.train).items()
    }
    return found[""] if "" in found else fingerprint(*found.items())


def _content(part: Any) -> Sequence[str]:
    """Documents, or a hash of them for a corpus."""
    return (part.corpus.fingerprint,) if isinstance(part, text.CorpusPart) else part


def _require_apart(sources: Sequence[MixtureSourceConfig]) -> None:
    """Raises DataError if two sources share a file."""
    owners: dict[str, str] = {}
    for source in sources:
        with naming_source(source.name):
            files = text.text_files(source.paths)
        for file in files:
            owner = owners.setdefault(os.path.realpath(file), source.name)
            if owner != source.name:
                raise DataError(
                    f"a file must be in one source of data.mixture, got '{file}' in {owner!r} and "
                    f"{source.name!r}; change the paths of one"
                )


def _drawn(texts: Sequence[str], size: float) -> Sequence[str]:
    """All texts, or a random sample of their pieces of about `size` bytes."""
    if sum(len(one.encode()) for one in texts) <= size:
        return texts
    pieces = [one[start : start + _PIECE] for one in texts for start in range(0, len(one), _PIECE)]
    drawn = []
    for index in np.random.default_rng(0).permutation(len(pieces)):
        if size <= 0:
            break
        drawn.append(pieces[index])
        size -= len(pieces[index].encode())
    return drawn


def shared_documents(train: MixedText, validation: MixedText) -> Iterator[str]:
    """Report lines on validation documents that are in the training data of another source.

    Covers only sources in memory. In larger ones, a hash of the text decides between training and
    validation, so equal documents get the same side in every source.
    """
    documents = {n: set(all_texts(one)) for n, one in train.parts.items() if not has_corpus(one)}
    for name, part in validation.parts.items():
        texts = () if has_corpus(part) else all_texts(part)
        for other, trained in documents.items():
            shared = 0 if other == name else len(trained.intersection(texts))
            if shared:
                of = f"{'document' if shared == 1 else 'documents'} of {name!r}"
                are = "is" if shared == 1 else "are"
                yield f"{shared:,} validation {of} {are} also in the training data of {other!r}"


def mixture_report(
    mixture: text.Mixture, streams: Mapping[str, text.TokenStream], *, steps: int, batch_size: int
) -> Iterator[str]:
    """A report line for each source: its share, its size, and its epochs in a run."""
    epochs = mixture.epochs(steps * batch_size)
    for name, stream in streams.items():
        count = stream.offsets.size
        yield (
            f"{name}: {100 * mixture.shares[name]:.3g}% of the sequences; {count:,} "
            f"{'document' if count == 1 else 'documents'}, {stream.tokens.size:,} tokens, "
            f"{epochs[name]:.3g} epochs in {steps:,} steps (training.steps)"
        )


def corpus_report(data: Split, train: Mapping[str, StreamText]) -> Iterator[str]:
    """One report line on each corpus."""
    for name, part in named_parts(data.train).items():
        if isinstance(part, text.CorpusPart):
            of = f"{name}: " if name else ""
            unit = "document" if part.corpus.num_documents == 1 else "documents"
            size = f"{part.corpus.num_documents:,} {unit}, {part.corpus.num_bytes:,} bytes"
            yield f"{of}{size}; tokens in {train[name].folder}"
