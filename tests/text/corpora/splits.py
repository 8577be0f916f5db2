"""Both sides of a table, as a corpus has them."""

from jaxformer.text import Corpus


def split(table, fraction):
    """Training rows, validation rows, and the counts of all."""
    corpus = Corpus.of(table, fraction)
    return corpus.train, corpus.validation, corpus.counts
