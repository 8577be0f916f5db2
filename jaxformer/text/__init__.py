"""Text to token arrays in NumPy: tokenizers, corpora, pairs, labels, batches, scores."""

from jaxformer.text.batches import Batches, Host, evaluation_batches
from jaxformer.text.buckets import BucketedBatches, bucketed_evaluation_batches
from jaxformer.text.chat_templates import ChatTemplate, Message
from jaxformer.text.conversations import Conversations, check_messages, encode_conversations
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
from jaxformer.text.example_arrays import ExampleArrays
from jaxformer.text.files import read_lines
from jaxformer.text.labelled import Labelled, encode_labelled
from jaxformer.text.mixture import Mixture
from jaxformer.text.packed_examples import PackedExamples
from jaxformer.text.packing import (
    IGNORE,
    PackedDocuments,
    TokenStream,
    Windows,
    build_stream,
)
from jaxformer.text.pairs import Pairs, encode_pairs, encode_source
from jaxformer.text.phrasebook import Phrase, Phrasebook, load_phrasebook
from jaxformer.text.prepared_rows import PreparedRows, prepare_rows
from jaxformer.text.preparing import PreparedCorpus, prepare_corpus
from jaxformer.text.row_corpus import RowCorpus
from jaxformer.text.row_counts import RowCounts
from jaxformer.text.row_scans import scan_rows
from jaxformer.text.sources import GatheringSource, Source
from jaxformer.text.stream_cache import cached_stream, default_cache_dir
from jaxformer.text.stream_decoder import StreamDecoder
from jaxformer.text.surrounding_tokens import SurroundingTokens
from jaxformer.text.synthetic import synthetic_pairs
from jaxformer.text.tables import Table, count_shared
from jaxformer.text.token_files import TokenFiles, map_token_files
from jaxformer.text.token_records import CheckedTokens, check_token_files
from jaxformer.text.token_roles import TokenRoles
from jaxformer.text.tokenizers import Tokenizer
from jaxformer.text.translation_scores import TranslationScores, exact_matches, translation_scores
from jaxformer.text.vocabularies import (
    byte_tokenizer,
    train_bpe,
    train_character,
    train_word,
    with_end_of_text,
    with_mask,
    with_special_tokens,
)
from jaxformer.text.word_vectors import WordVectors, read_word_vectors
from jaxformer.text.words import split_words

__all__ = [
    "IGNORE",
    "Batches",
    "BucketedBatches",
    "ChatTemplate",
    "CheckedTokens",
    "Conversations",
    "Corpus",
    "CorpusPart",
    "DocumentSource",
    "ExampleArrays",
    "GatheringSource",
    "Host",
    "Labelled",
    "MaskedBatches",
    "Message",
    "Mixture",
    "PackedDocuments",
    "PackedExamples",
    "Pairs",
    "Phrase",
    "Phrasebook",
    "PreparedCorpus",
    "PreparedRows",
    "RowCorpus",
    "RowCounts",
    "Source",
    "StreamDecoder",
    "SurroundingTokens",
    "Table",
    "TokenFiles",
    "TokenRoles",
    "TokenStream",
    "Tokenizer",
    "TranslationScores",
    "Windows",
    "WordVectors",
    "bucketed_evaluation_batches",
    "build_stream",
    "byte_tokenizer",
    "cached_stream",
    "check_messages",
    "check_token_files",
    "count_shared",
    "default_cache_dir",
    "encode_conversations",
    "encode_labelled",
    "encode_pairs",
    "encode_source",
    "evaluation_batches",
    "exact_matches",
    "load_phrasebook",
    "map_token_files",
    "mask_tokens",
    "masked_evaluation_batches",
    "prepare_corpus",
    "prepare_rows",
    "python_documents",
    "read_documents",
    "read_lines",
    "read_word_vectors",
    "recorded_corpus",
    "scan_corpus",
    "scan_rows",
    "split_documents",
    "split_words",
    "synthetic_pairs",
    "text_files",
    "train_bpe",
    "train_character",
    "train_word",
    "translation_scores",
    "with_end_of_text",
    "with_mask",
    "with_special_tokens",
]
