"""Decoding: sampling, generation with a cache, beam search, translation."""

from jaxformer.inference.beam_search import beam_search
from jaxformer.inference.beams import Beams
from jaxformer.inference.generate import generate, generate_stream
from jaxformer.inference.ngrams import repeated_ngrams
from jaxformer.inference.sampling import (
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalize_repetition,
    sample,
)
from jaxformer.inference.token_ids import check_prompts, check_sources
from jaxformer.inference.token_rules import TokenOptions
from jaxformer.inference.translate import Hypothesis, translate, translate_stream

__all__ = [
    "Beams",
    "Hypothesis",
    "TokenOptions",
    "beam_search",
    "check_prompts",
    "check_sources",
    "generate",
    "generate_stream",
    "keep_min_p",
    "keep_top_k",
    "keep_top_p",
    "penalize_repetition",
    "repeated_ngrams",
    "sample",
    "translate",
    "translate_stream",
]
