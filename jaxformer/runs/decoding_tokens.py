"""Tokens for decoding models that were made elsewhere."""

import dataclasses
from collections.abc import Mapping
from typing import Any

__all__ = ["DecodingTokens"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingTokens:
    """Tokens for decoding a model; the defaults are those of models made here.

    Args:
        start: first token that the decoder of an encoder-decoder reads; None for the end of text.
        stop: tokens that end generation; empty for the end of text.
        forbidden: tokens that are never generated.
        renormalize: whether a search renormalizes the probabilities of the allowed tokens to 1.
        forced_first: token that every target begins with, such as its language.
        forced_last: token that ends a target of the greatest length.
        bos: token that begins a text; not used here, but kept for programs that load an export.
        pad: padding token; not used here either.
        max_new_tokens: default length limit of a continuation or target; None for what fits in the
            context.
        unsupported: generation settings, by their Hugging Face names, of the folder that the model
            comes from, which have no option here. A run with such settings refuses to generate,
            answer or translate, unless you ignore them. Samples and scores during training follow
            the run's own config.
        model_type: model type of that folder; an export writes it again if it can.
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
    model_type: str | None = None
