"""Wrong calls of multi-head attention and of its caches."""

import math

import numpy as np
import pytest

from jaxformer import functional as F
from tests.functional.test_wrong_layers import FEED_FORWARD
from tests.functional.wrong_calls import (
    CACHE,
    HUGE,
    WINDOW,
    assert_refused,
    described,
    ints,
    ones,
    rows_of,
)

MHA = F.MultiHeadParams(ones(8, 8), ones(8, 8), ones(8, 8), ones(8, 8))
NEW = {"key": ones(2, 3, 2, 4), "value": ones(2, 3, 2, 4)}
EMPTY = {"num_kv_heads": 2, "head_dim": 4}
TABLES = (ones(3, 2), ones(3, 2))
CACHED = {"cache": CACHE, "is_causal": True}

# A right call of each function, which the wrong ones differ from in a few arguments.
RIGHT = {
    "KVCache.extend": NEW,
    "KVCache.init": {"batch_size": 2, "capacity": 3, **EMPTY},
    "WindowCache.extend": NEW,
    "WindowCache.init": {"batch_size": 2, "window": 3, **EMPTY},
    "multi_head_attention": {"params": MHA, "query_inputs": ones(2, 3, 8), "num_heads": 2},
    "project_memory": {"params": MHA, "key_value_inputs": ones(2, 3, 8), "num_heads": 2},
}

CALLS = {
    "multi_head_attention": [
        ({"params": None}, "params"),
        ({"params": MHA._replace(query_kernel=None)}, "query_kernel"),
        ({"params": MHA._replace(key_kernel=ones(7, 8))}, "key_kernel"),
        ({"params": MHA._replace(key_kernel=ones(8, 7))}, "key_kernel", "2 heads", "(8, 7)"),
        ({"params": MHA._replace(value_kernel=ints(8, 8))}, "value_kernel"),
        ({"params": MHA._replace(value_bias=ones(7))}, "value_bias"),
        ({"params": MHA._replace(output_kernel=ones(6, 8))}, "output_kernel"),
        ({"params": MHA._replace(query_norm_scale=ones(6))}, "query_norm_scale",
         "must be [H=4]", "(6,)", "or heads * H, over all"),
        ({"params": MHA._replace(key_norm_scale=ones(3))}, "key_norm_scale", "[H=4]", "(3,)"),
        ({"params": MHA._replace(key_norm_scale=[1.0] * 4)}, "key_norm_scale"),
        ({"params": MHA._replace(sinks=ones(3))}, "sinks", "must be [N=2], got shape (3,)"),
        ({"params": MHA._replace(sinks=ints(2))}, "sinks"),
        ({"query_inputs": ones(2, 3, 5)}, "query_kernel", "[D=5, F]", "(8, 8)"),
        ({"key_value_inputs": ints(2, 3, 8)}, "key_value_inputs"),
        ({"bias": ones(2, 2, 4, 3)}, "bias"),
        ({"mask": ones(3, 3)}, "mask"),
        ({"num_heads": 0}, "num_heads"),
        ({"num_heads": 3}, "query_kernel", "multiple of 3 heads", "(8, 8)"),
        ({"num_heads": 2.0}, "num_heads", "must be a positive int, got 2.0"),
        ({"num_kv_heads": True}, "num_kv_heads"),
        ({"num_kv_heads": 3}, "key_kernel", "multiple of 3 heads", "(8, 8)"),
        ({"norm_eps": -1.0}, "norm_eps"),
        ({"rotary": "half"}, "rotary"),
        ({"rotary": 3}, "rotary"),
        ({"rotary": TABLES}, "rotary", "must be a function", "got tuple", "apply_rotary"),
        ({"rotary": lambda query, key: query}, "rotary"),
        ({"rotary": TABLES, "key_value_inputs": ones(2, 3, 8)}, "key_value_inputs",
         "rotary is for self-attention"),
        ({"rotary": TABLES, "cross_cache": CACHE}, "cross_cache",
         "rotary is for self-attention, got cross_cache as well"),
        ({"cache": {"key": 1}, "is_causal": True}, "cache"),
        ({"cache": CACHE}, "is_causal", "cache is for causal self-attention", "is_causal=False",
         "set is_causal=True"),
        ({**CACHED, "key_value_inputs": ones(2, 3, 8)}, "key_value_inputs",
         "cache is for self-attention"),
        ({**CACHED, "cross_cache": CACHE}, "cross_cache",
         "cache is for self-attention, got cross_cache as well"),
        ({**CACHED, "query_inputs": ones(3, 8)}, "query_inputs", "must be [B=2, T, D]", "(3, 8)"),
        ({**CACHED, "query_inputs": ones(3, 3, 8)}, "query_inputs", "[B=2, T, D]", "(3, 3, 8)"),
        ({**CACHED, "query_inputs": ones(2, 7, 8)}, "cache", "holds 6 tokens", "7 more"),
        ({**CACHED, "num_tokens": ints(3)}, "num_tokens"),
        *(
            ({**CACHED, name: ints(2)}, name, "must be left out with a cache", "num_tokens")
            for name in ("query_offset", "query_seq_lengths", "key_value_seq_lengths")
        ),
        ({"cache": WINDOW, "is_causal": True}, "local_window_size",
         "WindowCache needs local_window_size", "got None"),
        ({"cache": WINDOW, "is_causal": True, "local_window_size": (2, 0)}, "local_window_size",
         "WindowCache needs local_window_size with its own left side", "(2, 0)", "of 3 tokens"),
        ({"num_tokens": ints(2)}, "num_tokens", "goes with a cache"),
        ({"cross_cache": (1, 2, 3)}, "cross_cache"),
        ({"cross_cache": CACHE, "key_value_inputs": ones(2, 3, 8)}, "cross_cache",
         "replaces key_value_inputs, got both", "leave one out"),
        ({"cross_cache": CACHE, "key_value_seq_lengths": ints(2)}, "key_value_seq_lengths",
         "must be left out with a cross_cache, which has its own"),
        ({"cross_cache": CACHE, "query_inputs": ones(1, 3, 8)}, "cross_cache.key",
         "must be [B=1, K=2, S, H=4]", "(2, 2, 6, 4)"),
        ({"cross_cache": CACHE, "query_inputs": ones(3, 8)}, "query_inputs", "[B, T, D]", "(3, 8)"),
        ({"cross_cache": CACHE, "num_kv_heads": 1}, "cross_cache.key",
         "must be [B=2, K=1, S, H=4]"),
        ({"cross_cache": CACHE._replace(lengths=np.array([7, 2]))}, "lengths", "0 .. 6", "[7 2]"),
        ({"return_weights": "yes"}, "return_weights"),
        ({"attention_fn": "flash"}, "attention_fn"),
        ({"attention_fn": None}, "attention_fn"),
        ({"attention_fn": lambda query, key: query}, "attention_fn"),
        ({"softcap": -1.0}, "softcap"),
        ({"implementation": "fast"}, "implementation", "ConfigError"),
        ({"dropout_rate": 0.5}, "dropout_rng", "ConfigError"),
    ],
    "project_memory": [
        ({"params": FEED_FORWARD}, "params"),
        ({"params": MHA._replace(value_kernel=ones(8))}, "value_kernel"),
        ({"key_value_inputs": ones(3, 8)}, "key_value_inputs", "must be [B, S, D]", "(3, 8)"),
        ({"key_value_inputs": None}, "key_value_inputs"),
        ({"lengths": [1, 2]}, "lengths"),
        ({"lengths": ones(2)}, "lengths", "must be integer, got dtype float32"),
        ({"lengths": ints(3)}, "lengths", "must be [B=2], got shape (3,)"),
        ({"lengths": np.array([1, 4])}, "lengths"),
        ({"lengths": np.array([1, -1])}, "lengths"),
        ({"num_heads": None}, "num_heads"),
        ({"num_kv_heads": 3}, "key_kernel", "multiple of 3 heads", "(8, 8)"),
        ({"num_kv_heads": 0}, "num_kv_heads", "must be a positive int, got 0"),
        ({"num_kv_heads": 2.0}, "num_kv_heads", "must be a positive int, got 2.0"),
        ({"norm_eps": math.nan}, "norm_eps"),
    ],
    "KVCache.init": [
        ({"batch_size": 0}, "batch_size"),
        ({"capacity": HUGE}, "capacity"),
        ({"num_kv_heads": None}, "num_kv_heads"),
        ({"head_dim": "4"}, "head_dim"),
        ({"value_head_dim": -4}, "value_head_dim"),
        ({"dtype": None}, "dtype"),
        ({"dtype": np.int32}, "dtype"),
        ({"dtype": "abc"}, "dtype"),
        ({"dtype": 5}, "dtype"),
        ({"dtype": np.complex64}, "dtype"),
    ],
    "WindowCache.init": [
        ({"window": 0}, "window", "must be a positive int, got 0"),
        ({"window": 2.0}, "window", "must be a positive int, got 2.0"),
        ({"batch_size": -1}, "batch_size"),
        ({"dtype": bool}, "dtype"),
    ],
    "KVCache.extend": [
        ({"key": ones(1, 3, 2, 4)}, "key", "must be [B=2, T, K=2, H=4]", "(1, 3, 2, 4)"),
        ({"key": ones(2, 3, 1, 4)}, "key", "K=2", "(2, 3, 1, 4)"),
        ({"key": ones(3, 2, 4)}, "key", "must be [B=2, T, K=2, H=4]", "(3, 2, 4)"),
        ({"key": ones(2, 3, 2, 5)}, "key", "H=4", "(2, 3, 2, 5)"),
        ({"value": ones(2, 4, 2, 4)}, "value", "T=3", "(2, 4, 2, 4)"),
        ({"value": ones(2, 3, 2, 5)}, "value", "(2, 3, 2, 5)"),
        ({"key": ones(2, 7, 2, 4), "value": ones(2, 7, 2, 4)}, "cache"),
        ({"num_tokens": 3}, "num_tokens"),
        ({"num_tokens": ints(3)}, "num_tokens", "must be [B=2]", "(3,)"),
        ({"num_tokens": np.int32(1)}, "num_tokens", "must be [B=2]", "()"),
        ({"num_tokens": np.array([4, 0])}, "num_tokens"),
        ({"num_tokens": np.array([1, -1])}, "num_tokens"),
        ({"num_tokens": ones(2)}, "num_tokens", "must be integer", "float"),
        ({"num_tokens": "12"}, "num_tokens"),
    ],
    "WindowCache.extend": [
        ({"key": ones(3, 3, 2, 4)}, "key"),
        ({"key": ones(2, 3, 8)}, "key", "must be [B=2, T, K=2, H=4]", "(2, 3, 8)"),
        ({"value": ones(2, 3, 3, 4)}, "value"),
        ({"num_tokens": np.array([4, 0])}, "num_tokens", "in 0 .. T=3", "[4, 0]"),
        ({"num_tokens": ints(1)}, "num_tokens"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("row", rows_of(CALLS), ids=described)
def test_a_wrong_call_is_refused_by_name(row):
    assert_refused(RIGHT, row)
