"""Assertions for tests of attention functions, models, packing and decoding.

Each takes plain functions of arrays, written with any library. On failure it raises an
AssertionError with the claim, the location, the actual and expected values, and the likely cause.
pytest is not required; under pytest, a failure shows only the test's own line and this message.
"""

from jaxformer.testing.attention import AttentionSizes, assert_scaled_dot_product
from jaxformer.testing.contract import ATTENTION_CLAIMS, assert_attention_contract
from jaxformer.testing.equivalence import (
    assert_cached_decoding_equals_full,
    assert_scanned_equals_looped,
)
from jaxformer.testing.masking import assert_causal, assert_fully_masked_rows_are_zero
from jaxformer.testing.models import assert_model_is_causal, assert_padding_invariant
from jaxformer.testing.packing import assert_packing_invariant

__all__ = [
    "ATTENTION_CLAIMS",
    "AttentionSizes",
    "assert_attention_contract",
    "assert_cached_decoding_equals_full",
    "assert_causal",
    "assert_fully_masked_rows_are_zero",
    "assert_model_is_causal",
    "assert_packing_invariant",
    "assert_padding_invariant",
    "assert_scaled_dot_product",
    "assert_scanned_equals_looped",
]
