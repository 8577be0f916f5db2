"""Attention weights together with their query and key tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy.typing as npt

__all__ = ["AttentionMap"]


class AttentionMap(NamedTuple):
    """Attention weights of one text, with its query tokens and key tokens.

    Args:
        name: name of the attention, such as "cross-attention".
        weights: float `[L, N, T, S]` of L layers and N heads; those of a query sum to 1, or to 0
            where it attends to no key.
        query_tokens: the T tokens that attend.
        key_tokens: the S tokens that are attended to.
        next_tokens: of a decoder, the T tokens that come next after each query token, which it
            predicts from there; None where nothing is predicted.
    """

    name: str
    weights: npt.ArrayLike
    query_tokens: Sequence[str]
    key_tokens: Sequence[str]
    next_tokens: Sequence[str] | None = None
