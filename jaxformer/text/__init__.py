"""Text to NumPy arrays of tokens: tokenizers, corpora, pairs, labels, batches; and back: scores."""

from jaxformer.text.batches import Batches, Host, Source, evaluation_batches
from jaxformer.text.buckets import BucketedBatches, bucketed_evaluation_batches
from jaxformer.text.corpora import (
    python_documents,
    read_documents,
    split_documents,
    text_files,
)
from jaxformer.text.corpus import Corpus, CorpusPart, scan_corpus
from jaxformer.text.corpus_records import recorded_corpus
from jaxformer.text.corruption import MaskedBatches, mask_tokens, masked_evaluation_batches
from jaxformer.text.document_sources import DocumentSource
from jaxformer.text.files import read_lines
from jaxformer.text.labelled import Labelled, encode_labelled
from jaxformer.text.packing import (
    IGNORE,
    PackedDocuments,
    TokenStream,
    Windows,
    build_stream,
)
from jaxformer.text.pairs import Pairs, encode_pairs, encode_source
from jaxformer.text.phrasebook import Phrase, Phrasebook, load_phrasebook
from jaxformer.text.preparing import PreparedCorpus, prepare_corpus
from jaxformer.text.row_counts import RowCounts
from jaxformer.text.stream_cache import cached_stream, default_cache_dir
from jaxformer.text.stream_decoder import StreamDecoder
from jaxformer.text.synthetic import synthetic_pairs
from jaxformer.text.tables import Table, count_shared
from jaxformer.text.token_files import TokenFiles, map_token_files
from jaxformer.text.token_records import CheckedTokens, check_token_files
from jaxformer.text.tokenizers import Tokenizer
from jaxformer.text.translation_scores import TranslationScores, exact_matches, translation_scores
from jaxformer.text.vocabularies import (
    byte_tokenizer,
    train_bpe,
    train_character,
    train_word,
    with_end_of_text,
    with_mask,
)
from jaxformer.text.word_vectors import WordVectors, read_word_vectors
from jaxformer.text.words import split_words

__all__ = [
    "IGNORE",
    "Batches",
    "BucketedBatches",
    "CheckedTokens",
    "DocumentSource",
    "Host",
    "MaskedBatches",
    "Labelled",
    "PackedDocuments",
    "Pairs",
    "RowCounts",
    "Phrase",
    "Phrasebook",
    "Source",
    "StreamDecoder",
    "Table",
    "TokenFiles",
    "TokenStream",
    "Tokenizer",
    "TranslationScores",
    "Windows",
    "bucketed_evaluation_batches",
    "WordVectors",
    "build_stream",
    "byte_tokenizer",
    "cached_stream",
    "check_token_files",
    "count_shared",
    "default_cache_dir",
    "encode_labelled",
    "encode_pairs",
    "encode_source",
    "evaluation_batches",
    "exact_matches",
    "mask_tokens",
    "masked_evaluation_batches",
    "load_phrasebook",
    "map_token_files",
    "python_documents",
    "read_documents",
    "read_lines",
    "read_word_vectors",
    "split_documents",
    "split_words",
    "synthetic_pairs",
    "train_bpe",
    "train_character",
    "train_word",
    "translation_scores",
    "Corpus",
    "CorpusPart",
    "PreparedCorpus",
    "prepare_corpus",
    "recorded_corpus",
    "scan_corpus",
    "text_files",
    "with_end_of_text",
    "with_mask",
]
