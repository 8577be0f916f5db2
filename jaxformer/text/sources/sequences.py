"""Data in memory: what can be read by index."""

from collections.abc import Mapping
from typing import Any

from jaxformer.errors import DataError


def require_sequence(source: Any) -> None:
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
