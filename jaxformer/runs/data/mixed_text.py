"""Several sources of text: what they have in common, and reports on them."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jaxformer import text
from jaxformer.config import MixtureSourceConfig
from jaxformer.errors import DataError
from jaxformer.runs.data.text_sources import Sources
from jaxformer.storage import real_path

_SAMPLE = 2**25  # bytes of training text for training a tokenizer, as for a corpus
_PIECE = 2**17  # characters of a document that are sampled together


def train_texts(sources: Sources) -> list[str]:
    """The training texts, or samples of them, of all sources."""
    return [piece for source in sources.values() for piece in source.train_texts]


def validation_texts(sources: Sources) -> list[str]:
    """The validation texts, or samples of them, of all sources."""
    return [piece for source in sources.values() for piece in source.validation_texts]


def weighted_texts(sources: Sources, mixture: Sequence[MixtureSourceConfig]) -> list[str]:
    """Training texts for a tokenizer: of each source its weight's share of 32 MiB, or all."""
    total = sum(source.weight for source in mixture)
    return [
        piece
        for source in mixture
        for piece in _drawn(sources[source.name].train_texts, _SAMPLE * source.weight / total)
    ]


def require_apart(mixture: Sequence[MixtureSourceConfig]) -> None:
    """Raises DataError if two sources of a mixture share a file."""
    owners: dict[str, str] = {}
    for source in mixture:
        for file in text.text_files(source.paths):
            owner = owners.setdefault(real_path(file), source.name)
            if owner != source.name:
                raise DataError(
                    f"a file must be in one source of data.mixture, got '{file}' in {owner!r} and "
                    f"{source.name!r}; change the paths of one"
                )


def _drawn(texts: Sequence[str], size: float) -> Sequence[str]:
    """All texts, or a random sample of their pieces of about `size` bytes."""
    if sum(len(document.encode()) for document in texts) <= size:
        return texts
    pieces = [
        document[start : start + _PIECE]
        for document in texts
        for start in range(0, len(document), _PIECE)
    ]
    drawn = []
    for index in np.random.default_rng(0).permutation(len(pieces)):
        if size <= 0:
            break
        drawn.append(pieces[index])
        size -= len(pieces[index].encode())
    return drawn


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
