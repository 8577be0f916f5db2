"""Attention weights with their query and key tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy.typing as npt


class AttentionMap(NamedTuple):
    """Attention weights of one text, with its query tokens and key tokens.

    Args:
        name: name of the attention, such as "cross-attention".
        weights: float `[L, N, T, S]` of L layers and N heads; the weights of a query sum to 1, or
            to 0 if it attends to no key.
        query_tokens: the T tokens that attend.
        key_tokens: the S tokens that are attended to.
        next_tokens: the T tokens that a decoder predicts, one after each query token; None for
            other models.
    """

    name: str
    weights: npt.ArrayLike
    query_tokens: Sequence[str]
    key_tokens: Sequence[str]
    next_tokens: Sequence[str] | None = None
