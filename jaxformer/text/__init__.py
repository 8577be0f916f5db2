"""Text to token arrays in NumPy: tokenizers, corpora, pairs, labels, batches, scores."""

from jaxformer.text.batches.batches import Batches, Host
from jaxformer.text.batches.buckets import BucketedBatches
from jaxformer.text.batches.corruption import MaskedBatches
from jaxformer.text.batches.mixture import Mixture, Rows
from jaxformer.text.batches.packed_examples import PackedExamples
from jaxformer.text.batches.windows import PackedDocuments, Windows
from jaxformer.text.corpora.corpus import Corpus, scan_corpus
from jaxformer.text.corpora.encoding import fitting_rows, prepare_documents
from jaxformer.text.corpora.streams import build_stream
from jaxformer.text.phrasebook import Phrase, load_phrasebook
from jaxformer.text.sources.files import read_lines, text_files
from jaxformer.text.sources.records import Counts
from jaxformer.text.sources.token_files import map_token_files
from jaxformer.text.store.arrays import IGNORE, TokenStream
from jaxformer.text.tables.conversations import Conversations, check_messages, encode_conversations
from jaxformer.text.tables.documents import Documents, python_documents
from jaxformer.text.tables.labelled import Labelled, encode_labelled
from jaxformer.text.tables.pairs import Pairs, encode_pairs
from jaxformer.text.tables.table import Table
from jaxformer.text.tokenizers.chat_templates import ChatTemplate, Message
from jaxformer.text.tokenizers.surrounding_tokens import SurroundingTokens
from jaxformer.text.tokenizers.tokenizer import Tokenizer
from jaxformer.text.tokenizers.vocabularies import (
    byte_tokenizer,
    train_bpe,
    train_character,
    train_word,
    with_special_tokens,
)
from jaxformer.text.tokenizers.vocabulary import TokenRoles

__all__ = [
    "IGNORE",
    "Batches",
    "BucketedBatches",
    "ChatTemplate",
    "Conversations",
    "Corpus",
    "Counts",
    "Documents",
    "Host",
    "Labelled",
    "MaskedBatches",
    "Message",
    "Mixture",
    "PackedDocuments",
    "PackedExamples",
    "Pairs",
    "Phrase",
    "Rows",
    "SurroundingTokens",
    "Table",
    "TokenRoles",
    "TokenStream",
    "Tokenizer",
    "Windows",
    "build_stream",
    "byte_tokenizer",
    "check_messages",
    "encode_conversations",
    "encode_labelled",
    "encode_pairs",
    "fitting_rows",
    "load_phrasebook",
    "map_token_files",
    "prepare_documents",
    "python_documents",
    "read_lines",
    "scan_corpus",
    "text_files",
    "train_bpe",
    "train_character",
    "train_word",
    "with_special_tokens",
]
