"""Decoders of bytes and windows of Python's documentation, which several claims train."""

from typing import Any, Protocol

from jaxformer import text
from jaxformer.config import ModelConfig
from jaxformer.models import Decoder

__all__ = ["VOCABULARY", "byte_decoder", "seeded_batches", "validation_split"]

VOCABULARY = 257  # bytes, and the end of a text


class Size(Protocol):
    """The part of the sizes of a claim that its batches need; rows have `length` bytes."""

    @property
    def length(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def seeds(self) -> int: ...


def byte_decoder(**fields: Any) -> Decoder:
    """A decoder of bytes with these fields of its config."""
    return Decoder(ModelConfig(vocab_size=VOCABULARY, **fields))


def seeded_batches(size: Size) -> tuple[text.TokenStream, dict[int, text.Batches]]:
    """All bytes, and the batches of their windows by seed."""
    stream = text.build_stream(text.python_documents(), text.byte_tokenizer())
    windows = text.Windows(stream, size.length)
    seeds = range(size.seeds)
    return stream, {seed: text.Batches(windows, size.batch_size, seed=seed) for seed in seeds}


def validation_split(size: Size) -> tuple[dict[int, text.Batches], Any]:
    """Training batches by seed, and one large batch of the documents held out (5 %)."""
    corpus = text.Corpus.of(text.Documents.of(text.python_documents()), 0.05)
    train, validation = text.prepare_documents(corpus, text.byte_tokenizer(), None)
    assert validation is not None
    windows, held_out = (text.Windows(stream, size.length) for stream in (train, validation))
    seeds = range(size.seeds)
    batches = {seed: text.Batches(windows, size.batch_size, seed=seed) for seed in seeds}
    return batches, text.Batches(held_out, 8 * size.batch_size, seed=0)[0]
