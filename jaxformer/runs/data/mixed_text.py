"""Mixtures of texts: reading their sources, and reporting on them."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from jaxformer import text
from jaxformer.config import DataConfig, MixtureSourceConfig
from jaxformer.errors import DataError
from jaxformer.runs.data.text_parts import TextPart, TokenPart
from jaxformer.runs.data.values import Split
from jaxformer.storage import real_path

_SAMPLE = 2**25  # bytes of training text for training a tokenizer, as for a corpus
_PIECE = 2**17  # characters of a document that are sampled together


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
    """Reads the sources of a mixture: parts by name of the source.

    In the texts for the tokenizer, each source has its weight's share of 32 MiB, or all of its
    text if that is less.
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
        texts = train[source.name].texts
        size = _SAMPLE * source.weight / total
        sample += texts if characters else _drawn(texts, size)
    report = tuple(f"{name}: {line}" for name, one in splits.items() for line in one.report)
    texts = sample, all_texts(validation)
    return Split(train, validation, report=report, tokenizer_texts=texts)


def all_texts(parts: Mapping[str, TextPart | TokenPart]) -> Sequence[str]:
    """The texts, or samples of them, of all parts."""
    return [one for part in parts.values() for one in part.texts]


def _require_apart(sources: Sequence[MixtureSourceConfig]) -> None:
    """Raises DataError if two sources share a file."""
    owners: dict[str, str] = {}
    for source in sources:
        with naming_source(source.name):
            files = text.text_files(source.paths)
        for file in files:
            owner = owners.setdefault(real_path(file), source.name)
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


def shared_documents(
    train: Mapping[str, TextPart | TokenPart], validation: Mapping[str, TextPart | TokenPart]
) -> Iterator[str]:
    """Report lines on validation texts that are in the training data of another source.

    Covers only sources whose texts are not samples.
    """
    trained = {name: set(one.texts) for name, one in train.items() if not one.is_sampled}
    for name, part in validation.items():
        for other, texts in trained.items():
            shared = 0 if other == name else len(texts.intersection(part.texts))
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
