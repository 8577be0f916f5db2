"""Decoding: sampling, generation with a cache, beam search, translation."""

from jaxformer.inference.beam_search import beam_search
from jaxformer.inference.beams import Beams
from jaxformer.inference.generate import generate, generate_stream
from jaxformer.inference.sampling import sample
from jaxformer.inference.token_rules import TokenOptions
from jaxformer.inference.translate import Hypothesis, translate, translate_stream

__all__ = [
    "Beams",
    "Hypothesis",
    "TokenOptions",
    "beam_search",
    "generate",
    "generate_stream",
    "sample",
    "translate",
    "translate_stream",
]
