"""Examples that fit into a model: neither empty nor too long."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxformer.errors import DataError
from jaxformer.text.store.ragged import Example, example_length
from jaxformer.text.tables.row_counts import RowCounts
from jaxformer.text.tables.table import Table, require_same_length


class FittingRows(NamedTuple):
    """Encoded rows of a table that fit into a model.

    Args:
        examples: the examples that were kept.
        indices: indices of their rows.
        counts: counts of the rows, including those that were dropped.
        shortest: length of the shortest example that was too long; None if none was.
    """

    examples: list[Example]
    indices: list[int]
    counts: RowCounts
    shortest: int | None


def fitting_rows(
    rows: Table, examples: Sequence[Example | None], max_len: int, counts: RowCounts
) -> FittingRows:
    """Drops rows without tokens, whose example is None, and examples that are too long.

    The length of an example is the size of its longest array.

    Args:
        rows: the rows that were encoded.
        examples: the example of each row: arrays with one axis or none.
        max_len: largest length that is kept.
        counts: counts of the rows so far.

    Returns:
        The examples that are left, perhaps none, and the rows that they are from.

    Raises:
        DataError: there are not as many examples as rows.

    Example:
        >>> import numpy as np
        >>> from jaxformer.text import Labelled
        >>> examples = [{"labels": np.arange(9)}, None, {"labels": np.arange(2)}]
        >>> rows, counts = Labelled(tuple("abc"), tuple("xyz")), RowCounts("texts", 3)
        >>> found = fitting_rows(rows, examples, 4, counts)
        >>> found.indices, found.shortest
        ([2], 9)
        >>> print(found.counts)
        3 texts read, 1 kept; 1 empty (line 2), 1 too long (line 1)
    """
    require_same_length(rows=rows.lines, examples=examples)
    kept: dict[int, Example] = {}
    empty: list[str] = []
    too_long: list[tuple[str, int]] = []
    for index, (line, example) in enumerate(zip(rows.lines, examples, strict=True)):
        if example is None:
            empty.append(line)
        elif (size := example_length(example)) > max_len:
            too_long.append((line, size))
        else:
            kept[index] = example
    counts = counts.drop("empty", empty).drop("too_long", [line for line, _ in too_long])
    shortest = min((size for _, size in too_long), default=None)
    return FittingRows(list(kept.values()), list(kept), counts, shortest)


def no_rows_error(counts: RowCounts, max_len: int, shortest: int | None) -> DataError:
    """The error that no row was kept; `shortest` is as in `FittingRows`."""
    remedy = "use another tokenizer"
    if counts.too_long:
        remedy = f"raise max_len to at least {shortest}" if shortest else "raise max_len"
    return DataError(
        f"at least one of the {counts.unit} must have 1 to max_len={max_len} tokens, got none: "
        f"{counts}; {remedy}"
    )
