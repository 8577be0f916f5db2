"""Token streams of documents from any random-access source, in memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.sources.token_files import checked_chunks, document_starts, require_token_ids
from jaxformer.text.store.arrays import JoinedArray, TokenStream, item_starts, token_dtype
from jaxformer.text.tokenizers.tokenizer import Tokenizer


def build_stream(source: Any, tokenizer: Tokenizer | None = None) -> TokenStream:
    """Makes one stream of tokens from documents.

    Texts get the tokenizer's surrounding tokens. If there are several documents and the tokenizer
    has an end of text, it is appended to each document that does not end with it yet. The source is
    read through `len` and one index at a time.

    Args:
        source: any of

            - texts: a list, or anything indexed that returns texts, such as a column;
            - token ids of documents: integers [tokens] each, arrays or lists;
            - all tokens in one array: integers [tokens], not copied, so they may be memory-mapped.
              A document begins after each end of text of the tokenizer. Nothing is added.
        tokenizer: tokenizer that encodes the texts, or that made the tokens. Tokens need none; then
            they are not checked against a vocabulary.

    Returns:
        The stream. Its tokens are uint16 if the vocabulary is at most 65,536, else int32. Tokens in
        one array keep their type.

    Raises:
        DataError: there are fewer than 2 tokens, an element is none of these, a token is not in the
            vocabulary, or the tokenizer cannot encode a text.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> stream = build_stream(["ab", "c"], byte_tokenizer())
        >>> stream.tokens.tolist(), stream.offsets.tolist()
        ([97, 98, 256, 99, 256], [0, 3])
        >>> build_stream([[97, 98], [99]], byte_tokenizer()).tokens.tolist()
        [97, 98, 256, 99, 256]
        >>> build_stream(stream.tokens, byte_tokenizer()).offsets.tolist()
        [0, 3]
    """
    end = None if tokenizer is None else tokenizer.end_of_text
    vocab_size = None if tokenizer is None else tokenizer.vocab_size
    is_array = isinstance(source, np.ndarray) and source.ndim == 1 and source.dtype.kind in "iu"
    if is_array or isinstance(source, JoinedArray):
        chunks = checked_chunks(source, vocab_size, "the tokens")
        ends = [np.flatnonzero(chunk == end) + begin for begin, chunk in chunks]
        starts = document_starts(np.concatenate([np.zeros(0, np.int64), *ends]), source.size)
        return TokenStream(source, starts)
    if isinstance(source, str):
        raise DataError(f"a source must be a list of texts, got {source[:20]!r}; pass [text]")
    documents = [source[index] for index in range(len(source))]
    if any(isinstance(document, str) for document in documents):
        encoded = _encoded(documents, tokenizer)
    else:
        encoded = [_token_ids(ids, index) for index, ids in enumerate(documents)]
        for index, ids in enumerate(encoded):
            require_token_ids(ids, vocab_size, f"element {index}")
    if len(encoded) > 1 and end is not None:
        encoded = [ids if ids.size and ids[-1] == end else np.append(ids, end) for ids in encoded]
    dtype = token_dtype(2**31 if vocab_size is None else vocab_size)
    tokens = np.concatenate([np.zeros(0, dtype), *encoded], dtype=dtype, casting="unsafe")
    return TokenStream(tokens, item_starts(ids.size for ids in encoded))


def _encoded(texts: Sequence[str], tokenizer: Tokenizer | None) -> list[np.ndarray]:
    """Tokens of texts, with those around each: int32 [tokens] each."""
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise _odd_element(text, index)
    if tokenizer is None:
        raise DataError(f"texts need a tokenizer, got none for {texts[0][:20]!r}; pass tokenizer=")
    return list(map(tokenizer.surrounding_tokens.around, tokenizer.encode_documents(texts)))


def _token_ids(element: Any, index: int) -> np.ndarray:
    """An element of a source as integers [tokens]."""
    ids = np.asarray(element)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise _odd_element(element, index)
    return ids


def _odd_element(element: object, index: int) -> DataError:
    return DataError(
        "elements of a source must all be texts, or all integers [tokens], got "
        f"{element!r:.40} as element {index}; pass a list or a column of these"
    )
