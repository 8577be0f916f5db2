"""Return types of methods of tasks and text models: data and log-likelihoods."""

from typing import Any, NamedTuple

from jaxformer import text


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
