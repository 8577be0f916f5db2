"""Text in, NumPy arrays of tokens out: tokenizers, corpora, packing and batches."""

from jaxformer.text.batches import Batches, Source, evaluation_batches
from jaxformer.text.corpora import python_documents, read_documents, split_documents
from jaxformer.text.packing import (
    IGNORE,
    PackedDocuments,
    TokenStream,
    Windows,
    build_stream,
    cached_stream,
    default_cache_dir,
)
from jaxformer.text.tokenizers import StreamDecoder, Tokenizer
from jaxformer.text.vocabularies import byte_tokenizer, train_bpe, train_character, train_word

__all__ = [
    "IGNORE",
    "Batches",
    "PackedDocuments",
    "Source",
    "StreamDecoder",
    "TokenStream",
    "Tokenizer",
    "Windows",
    "build_stream",
    "byte_tokenizer",
    "cached_stream",
    "default_cache_dir",
    "evaluation_batches",
    "python_documents",
    "read_documents",
    "split_documents",
    "train_bpe",
    "train_character",
    "train_word",
]
