"""Both sides of a table, as a corpus of rows has them."""

from jaxformer.text import RowCorpus


def split(table, fraction):
    """Training rows, validation rows, and the counts of all."""
    corpus = RowCorpus.of(table, fraction)
    (piece,) = corpus.pieces(2**20)
    assert piece.rows == corpus.sample
    return piece.rows, corpus.validation, corpus.counts.with_drops_of(piece.counts)
