"""What methods of a task return: its data, the labels of its losses, how likely a text is."""

from typing import Any, NamedTuple

from jaxformer import text

__all__ = ["LogLikelihood", "LossLabels", "Split"]


class Split(NamedTuple):
    """What `Task.read` returns: the data before it is encoded.

    Args:
        train: documents, the text of a mixture, or a `text.Table`; or a `text.CorpusPart` or
            `text.RowCorpus`, which is larger than memory.
        validation: likewise.
        train_counts: of the rows that were read and dropped, where there are rows.
        validation_counts: likewise.
        report: lines on what was left out, printed before training.
    """

    train: Any
    validation: Any
    train_counts: text.RowCounts | None = None
    validation_counts: text.RowCounts | None = None
    report: tuple[str, ...] = ()


class LossLabels(NamedTuple):
    """What the losses of a run are, for who draws them.

    Args:
        unit: that the loss is the mean over: "token", "masked token" or "text".
        training: what to call the training loss, which has dropout and label smoothing in it where
            the run has them, as the validation loss never has.
    """

    unit: str
    training: str


class LogLikelihood(NamedTuple):
    """How likely a model finds a text.

    Args:
        log_likelihood: natural logarithm of the text's probability, in nats.
        num_tokens: how many tokens that is the sum over.
    """

    log_likelihood: float
    num_tokens: int
