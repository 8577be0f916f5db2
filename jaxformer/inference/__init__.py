"""Generation from trained models: sampling, prefill and cached decoding."""

from jaxformer.inference.generate import check_prompts, generate, generate_stream
from jaxformer.inference.sampling import (
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalize_repetition,
    sample,
)

__all__ = [
    "check_prompts",
    "generate",
    "generate_stream",
    "keep_min_p",
    "keep_top_k",
    "keep_top_p",
    "penalize_repetition",
    "sample",
]
