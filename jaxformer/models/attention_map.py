"""Attention weights with the tokens that they are of."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy.typing as npt

__all__ = ["AttentionMap"]


class AttentionMap(NamedTuple):
    """The weights of one kind of attention for one text, and the tokens that they are of.

    Args:
        name: of the attention, such as "cross-attention".
        weights: float `[L, N, T, S]` of L layers and N heads; every query's sum to 1, or to 0 where
            it attends to no key.
        query_tokens: the T tokens that attend.
        key_tokens: the S tokens that are attended to.
    """

    name: str
    weights: npt.ArrayLike
    query_tokens: Sequence[str]
    key_tokens: Sequence[str]
