"""Token streams of texts, in memory."""

from collections.abc import Iterable

import numpy as np

from jaxformer.text.store.arrays import TokenStream, item_starts, token_dtype
from jaxformer.text.tokenizers.texts import require_texts
from jaxformer.text.tokenizers.tokenizer import Tokenizer


def build_stream(texts: Iterable[str], tokenizer: Tokenizer) -> TokenStream:
    """Makes one stream of the tokens of texts.

    Texts get the tokenizer's surrounding tokens. If there are several and the tokenizer has an end
    of text, it is appended to each text that does not end with it yet. Of tokens that you have
    already, make a `TokenStream`.

    Args:
        texts: a list, or anything else that yields texts, such as a column of a data set.
        tokenizer: tokenizer that encodes the texts.

    Returns:
        The stream. Its tokens are uint16 if the vocabulary is at most 65,536, else int32.

    Raises:
        DataError: there are fewer than 2 tokens, an element is not a text, or the tokenizer cannot
            encode it.

    Example:
        >>> from jaxformer.text import byte_tokenizer
        >>> stream = build_stream(["ab", "c"], byte_tokenizer())
        >>> stream.tokens.tolist(), stream.offsets.tolist()
        ([97, 98, 256, 99, 256], [0, 3])
    """
    documents = texts if isinstance(texts, str) else list(texts)
    require_texts(documents)
    encoded = map(tokenizer.surrounding_tokens.around, tokenizer.encode_documents(documents))
    end = tokenizer.end_of_text if len(documents) > 1 else None
    parts = [
        ids if end is None or (ids.size and ids[-1] == end) else np.append(ids, end)
        for ids in encoded
    ]
    dtype = token_dtype(tokenizer.vocab_size)
    tokens = np.concatenate([np.zeros(0, dtype), *parts], dtype=dtype, casting="unsafe")
    return TokenStream(tokens, item_starts(ids.size for ids in parts))
