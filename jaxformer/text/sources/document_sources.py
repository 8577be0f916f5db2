"""Documents from any random-access source: texts, tokens, or dicts with one of them."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeGuard

import numpy as np

from jaxformer.errors import DataError
from jaxformer.text.store.sharded_tokens import ShardedTokens

__all__ = ["DocumentSource", "is_token_array", "read_documents_of"]


class DocumentSource(Protocol):
    """Anything with a length and indexing, whose elements are texts, token ids or dicts.

    Example:
        >>> source: DocumentSource = ["a text", "another"]
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def is_token_array(source: DocumentSource) -> TypeGuard[np.ndarray | ShardedTokens]:
    """Whether a source is one array of integers, that is, already a token stream.

    Example:
        >>> is_token_array(np.array([5, 3])), is_token_array(["a"]), is_token_array(np.eye(2))
        (True, False, False)
    """
    if isinstance(source, ShardedTokens):
        return True
    return isinstance(source, np.ndarray) and source.ndim == 1 and source.dtype.kind in "iu"


def read_documents_of(source: DocumentSource, field: str) -> Iterator[str | np.ndarray]:
    """Yields the documents of a source, each a text or integers [tokens].

    Dicts have one of them under `field`. The source is read through `len` and one index at a time.

    Raises:
        DataError: an element is none of these; the message has its index.

    Example:
        >>> list(read_documents_of([{"text": "one"}, {"text": "two"}], "text"))
        ['one', 'two']
    """
    _require_source(source)
    for index in range(len(source)):
        element = source[index]
        if isinstance(element, Mapping):
            if field not in element:
                keys = ", ".join(map(repr, element))
                raise DataError(
                    f"element {index} of a source must have {field!r}, got a dict with {keys}; "
                    "pass its key as field="
                )
            element = element[field]
        yield element if isinstance(element, str) else _token_ids(element, index)


def _require_source(source: Any) -> None:
    """Raises DataError if a source cannot be indexed."""
    if isinstance(source, (str, bytes)):
        raise DataError(f"documents must be a list of texts, got {source[:20]!r}; pass [text]")
    if isinstance(source, Mapping):
        keys = ", ".join(map(repr, source))
        raise DataError(
            f"a source must have elements by index, got a dict with {keys}; take one, such as "
            f"source[{next(iter(source), 'train')!r}]"
        )
    has_elements = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    if not has_elements or getattr(source, "ndim", 1) == 0:
        kind = type(source).__name__
        raise DataError(
            f"a source must have a length and elements by index, got {kind}; make a list of it"
        )


def _token_ids(element: Any, index: int) -> np.ndarray:
    """Integers [tokens] of an element."""
    if isinstance(element, bytes):
        remedy = "decode it, as grain.MapDataset.source(source).map(bytes.decode) does"
        raise DataError(f"element {index} of a source must be a text, got bytes; {remedy}")
    if isinstance(element, (int, np.integer)):
        raise DataError(
            f"element {index} of a source must be a text or integers [tokens], got the number "
            f"{element}; pass np.array(tokens) for one stream, or [tokens] for one document"
        )
    try:
        ids = np.asarray(element)
    except ValueError:  # lists of several lengths
        ids = np.array(None)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        got = type(element).__name__
        if ids.ndim and ids.dtype != object:
            got += f" of {ids.dtype} and shape {ids.shape}"
        raise DataError(
            f"element {index} of a source must be a text or integers [tokens], or a dict with one "
            f"of them, got {got}; change it, as grain.MapDataset.source(source).map(function) does"
        )
    return ids
