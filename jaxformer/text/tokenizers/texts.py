"""Preparing text for the `tokenizers` library: groups of one call, and checks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from jaxformer.errors import DataError

Item = TypeVar("Item")


def groups_of_size(
    items: Iterable[Item], size_of: Callable[[Item], int], size: int
) -> Iterator[list[Item]]:
    """Groups consecutive items; a group ends as soon as it has `size` (the last may be smaller)."""
    group: list[Item] = []
    total = 0
    for item in items:
        group.append(item)
        total += size_of(item)
        if total >= size:
            yield group
            group, total = [], 0
    if group:
        yield group


def require_texts(texts: Sequence[str]) -> None:
    """Raises DataError for a bare string, and for what is no text, or not valid Unicode."""
    if isinstance(texts, str):
        raise DataError(f"texts must be a list of strings, got {texts[:20]!r}; pass [text]")
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"texts must be strings, got {text!r:.40}; leave it out, or convert it")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                "text must be valid Unicode, got the lone surrogate "
                f"{text[error.start]!r} at index {error.start} of a text; read it again with "
                "errors='replace'"
            ) from error


def require_known(texts: Sequence[str], characters: frozenset[str] | None) -> None:
    """`require_texts`; also for the first character of a text that is not among the characters."""
    require_texts(texts)
    if characters is None:
        return
    for text in texts:
        if unknown := set(text) - characters:
            index = min(map(text.index, unknown))
            raise DataError(
                f"every character must be among the {len(characters)} of the vocabulary, got "
                f"{text[index]!r} (U+{ord(text[index]):04X}) at index {index} of a text; train the "
                "tokenizer on text that has it, or use a byte or BPE tokenizer"
            )
