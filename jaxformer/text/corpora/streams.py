"""Token streams of documents from any random-access source, in memory."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.sources.checked_tokens import document_starts, require_token_ids, scan_tokens
from jaxformer.text.store.arrays import JoinedArray
from jaxformer.text.store.ragged import TokenStream, item_starts, token_dtype
from jaxformer.text.tokenizers.tokenizer import Tokenizer


def is_token_array(source: Any) -> TypeGuard[np.ndarray | JoinedArray]:
    """Whether a source is one array of integers, that is, already a token stream."""
    if isinstance(source, JoinedArray):
        return True
    return isinstance(source, np.ndarray) and source.ndim == 1 and source.dtype.kind in "iu"


def _documents(source: Any, field: str) -> Iterator[str | np.ndarray]:
    """Yields the documents of a source: texts or integers [tokens]; of dicts, their `field`."""
    if isinstance(source, (str, bytes, Mapping)) or not hasattr(source, "__getitem__"):
        raise DataError(
            "a source must have documents by index, such as a list of texts, got "
            f"{type(source).__name__}; make a list of it"
        )
    for index in range(len(source)):
        element = source[index]
        if isinstance(element, Mapping):
            element = element.get(field)
        if isinstance(element, str):
            yield element
            continue
        ids = np.asarray(element)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise DataError(
                f"element {index} of a source must be a text or integers [tokens], or a dict with "
                f"one of them under {field!r}, got {source[index]!r:.40}; change it, or pass field="
            )
        yield ids


def build_stream(
    source: Any, tokenizer: Tokenizer | None = None, *, field: str = "text"
) -> TokenStream:
    """Makes one stream of tokens from documents.

    Each document has the tokenizer's surrounding tokens. If there are several and the tokenizer has
    an end of text, it is appended to each document that does not end with it yet. The source is
    read through `len` and one index at a time.

    Args:
        source: any of

            - texts: a list, or anything indexed that returns a text;
            - token ids of documents: integers [tokens] each, arrays or lists;
            - dicts with a text or token ids under `field`, such as a `datasets.Dataset`;
            - all tokens in one array: integers [tokens], not copied, so they may be memory-mapped.
              A document begins after each end of text of the tokenizer. Nothing is added.
        tokenizer: tokenizer that encodes the texts, or that made the tokens. Tokens need none; then
            they are not checked against a vocabulary.
        field: key of the dicts.

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
        >>> rows = [{"input_ids": [97, 98]}, {"input_ids": [99]}]
        >>> build_stream(rows, byte_tokenizer(), field="input_ids").tokens.tolist()
        [97, 98, 256, 99, 256]
        >>> build_stream(stream.tokens, byte_tokenizer()).offsets.tolist()
        [0, 3]
    """
    end = None if tokenizer is None else tokenizer.end_of_text
    vocab_size = None if tokenizer is None else tokenizer.vocab_size
    if is_token_array(source):
        ends = scan_tokens(source, vocab_size=vocab_size, end_of_text=end, name="the tokens")
        return TokenStream(source, document_starts(ends, source.size))
    documents = list(_documents(source, field))
    texts = [document for document in documents if isinstance(document, str)]
    if texts and tokenizer is None:
        raise DataError(f"texts need a tokenizer, got none for {texts[0][:20]!r}; pass tokenizer=")
    ids_of_texts = iter([] if tokenizer is None else tokenizer.encode_documents(texts))
    encoded = [
        next(ids_of_texts) if isinstance(document, str) else document for document in documents
    ]
    for index, ids in enumerate(encoded):
        require_token_ids(ids, vocab_size, f"element {index}")
    if tokenizer is not None:
        special = tokenizer.surrounding_tokens
        encoded = [ids if special.are_around(ids) else special.around(ids) for ids in encoded]
    if len(encoded) > 1 and end is not None:
        encoded = [ids if ids.size and ids[-1] == end else np.append(ids, end) for ids in encoded]
    dtype = token_dtype(2**31 if vocab_size is None else vocab_size)
    tokens = np.concatenate([np.zeros(0, dtype), *encoded], dtype=dtype, casting="unsafe")
    return TokenStream(tokens, item_starts(ids.size for ids in encoded))
