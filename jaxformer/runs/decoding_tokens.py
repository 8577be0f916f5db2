"""Tokens that a model is decoded with, where they are not those of models made here."""

import dataclasses
from collections.abc import Mapping
from typing import Any

__all__ = ["DecodingTokens"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingTokens:
    """Tokens that a model was trained to decode with; the defaults are those of models made here.

    Args:
        start: the first token that a decoder of targets reads; the end of text when None.
        stop: tokens that end what is generated; the end of text when empty.
        forbidden: tokens that are never generated.
        renormalize: whether a search counts the probabilities of the other tokens to 1.
        forced_first: token that every target begins with, such as its language.
        forced_last: token that ends a target of the greatest length.
        bos: token that begins a text, and
        pad: token that fills up a batch; neither is used here, but programs that the model is
            written for may need them.
        max_new_tokens: length of the longest continuation or target, where a call does not say; as
            many as fit the context when None.
        unsupported: settings of generation of the folder of Hugging Face that the model comes from,
            by their names there, that there is no option for. A run that has some neither
            continues, answers nor translates, unless they are ignored; samples and scores of a
            training follow its own config.
    """

    start: int | None = None
    stop: tuple[int, ...] = ()
    forbidden: tuple[int, ...] = ()
    renormalize: bool = False
    forced_first: int | None = None
    forced_last: int | None = None
    bos: int | None = None
    pad: int | None = None
    max_new_tokens: int | None = None
    unsupported: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
