"""Wrong calls of every public function, written from the docstrings: each names its argument."""

import inspect
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import errors
from jaxformer import functional as F

HUGE = 10**12  # elements that no machine has memory for
OBJECTS = np.array([None, "a", 3.0], object)
FLOAT8 = jnp.float8_e4m3fn


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def ints(*shape):
    return np.ones(shape, np.int32)


class Traced:
    """An argument whose value is not known, as under jit."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"Traced({self.value!r})"


MHA = F.MultiHeadParams(ones(8, 8), ones(8, 8), ones(8, 8), ones(8, 8))
FEED_FORWARD = F.FeedForwardParams(ones(5, 7), ones(7, 5), ones(7), ones(5))
GATED = F.GatedFeedForwardParams(ones(5, 7), ones(5, 7), ones(7, 5), ones(7), ones(7), ones(5))
CACHE = F.KVCache.init(2, 6, num_kv_heads=2, head_dim=4)
WINDOW = F.WindowCache.init(2, 3, num_kv_heads=2, head_dim=4)
NEW = {"key": ones(2, 3, 2, 4), "value": ones(2, 3, 2, 4)}
TABLES = (ones(3, 2), ones(3, 2))
ATTENTION = {"query": ones(2, 3, 4, 8), "key": ones(2, 5, 2, 8), "value": ones(2, 5, 2, 7)}
SCORED = {name: ATTENTION[name] for name in ("query", "key")}
EMPTY = {"num_kv_heads": 2, "head_dim": 4}

# A right call of each function, which the wrong ones differ from in a few arguments.
RIGHT = {
    "KVCache.append": NEW,
    "KVCache.init": {"batch_size": 2, "capacity": 3, **EMPTY},
    "WindowCache.append": NEW,
    "WindowCache.init": {"batch_size": 2, "window": 3, **EMPTY},
    "alibi_bias": {"num_heads": 2, "num_queries": 3, "num_keys": 5},
    "alibi_slopes": {"num_heads": 2},
    "apply_rotary": {"x": ones(2, 3, 2, 4), "tables": TABLES, "layout": "half"},
    "attention_implementation": ATTENTION,
    "attention_mask": {**SCORED, "mask": ones(3, 5, dtype=bool)},
    "attention_weights": SCORED,
    "causal": {"num_queries": 3, "num_keys": 5},
    "chunked_cross_entropy": {"hidden": ones(3, 5), "table": ones(7, 5), "labels": ints(3)},
    "combine": {"masks": (ones(3, 5, dtype=bool), ones(2, 1, 3, 5, dtype=bool))},
    "cross_entropy": {"logits": ones(3, 7), "labels": ints(3)},
    "dot_product_attention": ATTENTION,
    "embed": {"table": ones(7, 5), "tokens": ints(2, 3)},
    "feed_forward": {"params": FEED_FORWARD, "x": ones(3, 5)},
    "gated_feed_forward": {"params": GATED, "x": ones(3, 5)},
    "layer_norm": {"x": ones(3, 5), "scale": ones(5), "bias": ones(5)},
    "linear": {"x": ones(3, 5), "kernel": ones(5, 7), "bias": ones(7)},
    "multi_head_attention": {"params": MHA, "query_inputs": ones(2, 3, 8), "num_heads": 2},
    "padding": {"lengths": np.array([1, 3]), "num_keys": 3},
    "project_memory": {"params": MHA, "key_value_inputs": ones(2, 3, 8), "num_heads": 2},
    "relative_position_buckets": {"num_queries": 3, "num_keys": 5},
    "rms_norm": {"x": ones(3, 5), "scale": ones(5)},
    "rotary_tables": {"positions": 3, "head_dim": 4},
    "segments": {"query_ids": ints(2, 3), "key_value_ids": ints(2, 5)},
    "sinusoidal_positions": {"positions": 3, "d_model": 4},
    "unembed": {"table": ones(7, 5), "x": ones(3, 5)},
    "window": {"num_queries": 3, "num_keys": 5, "size": 2},
}
BOUND = {"KVCache.append": CACHE, "WindowCache.append": WINDOW}

CALLS = {
    "alibi_slopes": [
        ({"num_heads": value}, "num_heads")
        for value in (0, -1, True, 2.0, "2", None, math.nan, HUGE, [2], Traced(2), 2j)
    ],
    "alibi_bias": [
        ({"num_heads": 2.5}, "num_heads"),
        ({"num_queries": -1}, "num_queries"),
        ({"num_queries": HUGE}, "num_queries"),
        ({"num_keys": "5"}, "num_keys"),
        ({"num_keys": None}, "num_keys"),
        ({"query_offset": 0.5}, "query_offset"),
        ({"query_offset": True}, "query_offset"),
        ({"query_offset": 2**31}, "query_offset"),
    ],
    "causal": [
        ({"num_queries": Traced(3)}, "num_queries"),
        ({"num_queries": True}, "num_queries"),
        ({"num_keys": HUGE}, "num_keys"),
        ({"num_keys": math.inf}, "num_keys"),
        ({"num_keys": [5]}, "num_keys"),
        ({"query_offset": None}, "query_offset"),
        ({"query_offset": "0"}, "query_offset"),
        ({"query_offset": 1j}, "query_offset"),
        ({"query_offset": [[1], [2, 3]]}, "query_offset"),
        ({"query_offset": OBJECTS}, "query_offset"),
    ],
    "window": [
        ({"size": value}, "size")
        for value in (-1, 1.5, True, "2", (1, 2, 3), (1, -1), [1, 2], HUGE, Traced(2), math.nan)
    ]
    + [({"num_keys": -3}, "num_keys"), ({"query_offset": ones(2)}, "query_offset")],
    "padding": [
        ({"lengths": None}, "lengths"),
        ({"lengths": -1}, "lengths"),
        ({"lengths": [2, -3]}, "lengths"),
        ({"lengths": [2, 4]}, "lengths"),
        ({"lengths": HUGE}, "lengths"),
        ({"lengths": ones(2)}, "lengths"),
        ({"lengths": ones(2, dtype=bool)}, "lengths"),
        ({"lengths": "12"}, "lengths"),
        ({"num_keys": HUGE}, "num_keys"),
        ({"num_keys": 3.0}, "num_keys"),
    ],
    "segments": [
        ({"query_ids": ones(2, 3)}, "query_ids"),
        ({"query_ids": np.int32(3)}, "query_ids"),
        ({"query_ids": None}, "query_ids"),
        ({"key_value_ids": ints(3, 5)}, "key_value_ids"),
        ({"key_value_ids": ints(5)}, "key_value_ids"),
        ({"key_value_ids": ones(2, 5, dtype=bool)}, "key_value_ids"),
        ({"key_value_ids": np.full((2, 5), HUGE)}, "key_value_ids"),
        ({"key_value_ids": OBJECTS}, "key_value_ids"),
    ],
    "combine": [
        ({"masks": ("causal",)}, "mask"),
        ({"masks": (ones(3, 5),)}, "mask"),
        ({"masks": (ones(5, dtype=bool),)}, "mask"),
        ({"masks": (True,)}, "mask"),
        ({"masks": (ones(3, 5, dtype=bool), ones(3, 4, dtype=bool))}, "mask"),
        ({"masks": (ones(2, 3, 5, dtype=bool), ones(1, 2, 3, 5, dtype=bool))}, "mask"),
        ({"masks": (OBJECTS,)}, "mask"),
        ({"masks": ([[True], [True, False]],)}, "mask"),
    ],
    "relative_position_buckets": [
        ({"num_queries": 3.0}, "num_queries"),
        ({"num_keys": HUGE}, "num_keys"),
        ({"query_offset": 0.5}, "query_offset"),
        ({"num_buckets": 7}, "num_buckets"),
        ({"num_buckets": 0}, "num_buckets"),
        ({"num_buckets": 32.0}, "num_buckets"),
        ({"num_buckets": True}, "num_buckets"),
        ({"num_buckets": HUGE}, "num_buckets"),
        ({"num_buckets": 10**6, "max_distance": 10**7}, "num_buckets"),
        ({"max_distance": 3}, "max_distance"),
        ({"max_distance": math.inf}, "max_distance"),
        ({"max_distance": HUGE}, "max_distance"),
        ({"bidirectional": "no"}, "bidirectional"),
        ({"bidirectional": None}, "bidirectional"),
        ({"bidirectional": Traced(True)}, "bidirectional"),
        ({"bidirectional": 2}, "bidirectional"),
    ],
    "sinusoidal_positions": [
        ({"positions": -1}, "positions"),
        ({"positions": HUGE}, "positions"),
        ({"positions": 3.0}, "positions"),
        ({"positions": True}, "positions"),
        ({"positions": "3"}, "positions"),
        ({"positions": None}, "positions"),
        ({"positions": np.array([-(2**63)])}, "positions"),
        ({"positions": np.array([2**40])}, "positions"),
        ({"positions": [0.5]}, "positions"),
        ({"d_model": 0}, "d_model"),
        ({"d_model": 4.0}, "d_model"),
        ({"d_model": HUGE}, "d_model"),
        ({"base": 0}, "base"),
        ({"base": "10000"}, "base"),
        ({"base": math.nan}, "base"),
        ({"base": None}, "base"),
        ({"base": True}, "base"),
        ({"base": Traced(1e4)}, "base"),
        ({"base": ones(2)}, "base"),
        ({"layout": "halves"}, "layout"),
        ({"layout": None}, "layout"),
        ({"layout": ["half"]}, "layout"),
        ({"layout": np.array(["half", "half"])}, "layout"),
    ],
    "rotary_tables": [
        ({"positions": HUGE}, "positions"),
        ({"positions": np.array([0.0])}, "positions"),
        ({"positions": OBJECTS}, "positions"),
        ({"head_dim": 3}, "head_dim"),
        ({"head_dim": 0}, "head_dim"),
        ({"head_dim": None}, "head_dim"),
        ({"head_dim": Traced(4)}, "head_dim"),
        ({"base": -1.0}, "base"),
        ({"base": 1j}, "base"),
        ({"base": 10**400}, "base"),
        ({"scaling": 2.0}, "scaling"),
        ({"scaling": "linear"}, "scaling"),
        ({"scaling": {"factor": 2.0}}, "scaling"),
        ({"scaling": F.LinearScaling(0.5)}, "factor"),
        ({"scaling": F.LinearScaling("2")}, "factor"),
        ({"scaling": F.LinearScaling(math.nan)}, "factor"),
        ({"scaling": F.LinearScaling(10**400)}, "factor"),
        ({"scaling": F.LinearScaling(np.complex64(2))}, "factor"),
        ({"scaling": F.LinearScaling(Traced(2.0))}, "factor"),
        ({"scaling": F.Llama3Scaling(8.0, 4.0, 1.0, 64)}, "low_freq_factor"),
        ({"scaling": F.Llama3Scaling(8.0, 1.0, 4.0, 64.5)}, "original_max_len"),
        ({"scaling": F.YarnScaling(4.0, 64, beta_fast=True)}, "beta_fast"),
        ({"scaling": F.YarnScaling(4.0, 64, attention_factor=1.0, mscale=1.0)}, "mscale"),
        ({"scaling": F.YarnScaling(4.0, 64, truncate="yes")}, "truncate"),
        ({"scaling": F.YarnScaling(4.0, 64), "base": 1.0}, "base"),
    ],
    "apply_rotary": [
        ({"x": [[[1.0]]]}, "x"),
        ({"x": None}, "x"),
        ({"x": ints(2, 3, 2, 4)}, "x"),
        ({"x": ones(2, 3, 2, 4).astype(FLOAT8)}, "x"),
        ({"x": ones(3, 4)}, "x"),
        ({"x": ones(2, 3, 2, 5)}, "x"),
        ({"tables": None}, "tables"),
        ({"tables": 3}, "tables"),
        ({"tables": "ab"}, "tables"),
        ({"tables": (*TABLES, ones(3, 2))}, "tables"),
        ({"tables": (ones(3, 2), None)}, "tables"),
        ({"tables": (ones(4, 2), ones(4, 2))}, "tables"),
        ({"tables": (ones(5, 3, 2), ones(5, 3, 2))}, "tables"),
        ({"tables": (ints(3, 2), ints(3, 2))}, "tables"),
        ({"tables": (ones(3, 2, dtype=np.complex64),) * 2}, "tables"),
        ({"layout": "HALF"}, "layout"),
        ({"layout": 0}, "layout"),
    ],
    "linear": [
        ({"x": None}, "x"),
        ({"x": [1.0, 2.0]}, "x"),
        ({"x": "x"}, "x"),
        ({"x": np.float32(1)}, "x"),
        ({"x": ints(3, 5)}, "x"),
        ({"x": ones(3, 5, dtype=np.complex64)}, "x"),
        ({"x": ones(3, 5).astype(FLOAT8)}, "x"),
        ({"kernel": None}, "kernel"),
        ({"kernel": ones(7, 5)}, "kernel"),
        ({"kernel": ones(5)}, "kernel"),
        ({"kernel": ints(5, 7)}, "kernel"),
        ({"kernel": ones(5, 7, dtype=np.complex64)}, "kernel"),
        ({"kernel": [[1.0]]}, "kernel"),
        ({"bias": ones(5)}, "bias"),
        ({"bias": ints(7)}, "bias"),
        ({"bias": 0.0}, "bias"),
        ({"bias": True}, "bias"),
        ({"name": 3}, "name"),
    ],
    "feed_forward": [
        ({"params": None}, "params"),
        ({"params": GATED}, "params"),
        ({"params": tuple(FEED_FORWARD)}, "params"),
        ({"params": FEED_FORWARD._asdict()}, "params"),
        ({"params": FEED_FORWARD._replace(up_kernel=None)}, "up_kernel"),
        ({"params": FEED_FORWARD._replace(up_bias=ones(5))}, "up_bias"),
        ({"params": FEED_FORWARD._replace(down_kernel=ones(5, 7))}, "down_kernel"),
        ({"params": FEED_FORWARD._replace(down_kernel=ones(7, 6), down_bias=None)}, "down_kernel"),
        ({"params": FEED_FORWARD._replace(down_bias=[0.0] * 5)}, "down_bias"),
        ({"x": ones(3, 6)}, "up_kernel"),
        ({"x": ones(3, 5, dtype=bool)}, "x"),
        ({"x": OBJECTS}, "x"),
        ({"activation": "swish"}, "activation"),
        ({"activation": None}, "activation"),
        ({"activation": ["relu"]}, "activation"),
        ({"activation": jax.nn.relu}, "activation"),
    ],
    "gated_feed_forward": [
        ({"params": FEED_FORWARD}, "params"),
        ({"params": 5}, "params"),
        ({"params": GATED._replace(gate_kernel=ones(5, 6), gate_bias=None)}, "gate_kernel"),
        ({"params": GATED._replace(gate_bias=ones(1))}, "gate_bias"),
        ({"params": GATED._replace(up_kernel=ints(5, 7))}, "up_kernel"),
        ({"params": GATED._replace(down_kernel=ones(7, 3), down_bias=None)}, "down_kernel"),
        ({"params": GATED._replace(down_bias=ones(7))}, "down_bias"),
        ({"x": "x"}, "x"),
        ({"x": ones(3, 6)}, "gate_kernel"),
        ({"activation": "SiLU"}, "activation"),
        ({"activation": 1}, "activation"),
    ],
    "layer_norm": [
        ({"x": None}, "x"),
        ({"x": [1.0, 3.0]}, "x"),
        ({"x": ints(3, 5)}, "x"),
        ({"x": ones(3, 5).astype(FLOAT8)}, "x"),
        ({"x": np.float32(1)}, "axis"),
        ({"scale": ones(3)}, "scale"),
        ({"scale": ones(1, 5)}, "scale"),
        ({"scale": 1.0}, "scale"),
        ({"scale": ints(5)}, "scale"),
        ({"bias": [0.0] * 5}, "bias"),
        ({"bias": ones(5, dtype=np.complex64)}, "bias"),
        ({"eps": -1e-5}, "eps"),
        ({"eps": np.float32(-1)}, "eps"),
        ({"eps": math.nan}, "eps"),
        ({"eps": math.inf}, "eps"),
        ({"eps": "1e-5"}, "eps"),
        ({"eps": None}, "eps"),
        ({"eps": True}, "eps"),
        ({"eps": ones(5)}, "eps"),
        ({"eps": Traced(1)}, "eps"),
        ({"axis": 0}, "axis"),
        ({"axis": True}, "axis"),
        ({"axis": 1.0}, "axis"),
        ({"axis": None}, "axis"),
        ({"axis": "last"}, "axis"),
        ({"axis": ()}, "axis"),
        ({"axis": (-1, -1)}, "axis"),
        ({"axis": HUGE}, "axis"),
    ],
    "rms_norm": [
        ({"x": "x"}, "x"),
        ({"x": ones(3, 5, dtype=bool)}, "x"),
        ({"scale": ones(6)}, "scale"),
        ({"scale": "ones"}, "scale"),
        ({"eps": -1.0}, "eps"),
        ({"eps": 1j}, "eps"),
        ({"eps": 10**400}, "eps"),
        ({"axis": 3}, "axis"),
        ({"axis": [-1.0]}, "axis"),
        ({"axis": Traced(-1)}, "axis"),
    ],
    "embed": [
        ({"table": None}, "table"),
        ({"table": ones(5)}, "table"),
        ({"table": ints(7, 5)}, "table"),
        ({"table": ones(7, 5, dtype=np.complex64)}, "table"),
        ({"table": "table"}, "table"),
        ({"table": ones(0, 5)}, "tokens"),
        ({"tokens": [1, 2]}, "tokens"),
        ({"tokens": 3}, "tokens"),
        ({"tokens": ones(3)}, "tokens"),
        ({"tokens": ones(3, dtype=bool)}, "tokens"),
        ({"tokens": np.array([1, 7])}, "tokens"),
        ({"tokens": np.array([-1])}, "tokens"),
        ({"tokens": np.array([HUGE])}, "tokens"),
        ({"tokens": np.array(["a"])}, "tokens"),
    ],
    "unembed": [
        ({"table": [[1.0]]}, "table"),
        ({"table": ones(7, 5, 1)}, "table"),
        ({"table": ints(7, 5)}, "table"),
        ({"x": None}, "x"),
        ({"x": ones(3, 7)}, "x"),
        ({"x": ints(3, 5)}, "x"),
        ({"x": ones(3, 5).astype(FLOAT8)}, "x"),
        ({"softcap": 0}, "softcap"),
        ({"softcap": -30.0}, "softcap"),
        ({"softcap": "30"}, "softcap"),
        ({"softcap": math.nan}, "softcap"),
        ({"softcap": True}, "softcap"),
        ({"softcap": Traced(30.0)}, "softcap"),
        ({"softcap": ones(7)}, "softcap"),
    ],
    "cross_entropy": [
        ({"logits": None}, "logits"),
        ({"logits": ints(3, 7)}, "logits"),
        ({"logits": np.float32(1)}, "logits"),
        ({"logits": ones(3, 0)}, "logits"),
        ({"logits": ones(3, 0), "labels": jnp.zeros(3, int)}, "logits"),
        ({"logits": ones(3, 7).astype(FLOAT8)}, "logits"),
        ({"labels": None}, "labels"),
        ({"labels": ones(3)}, "labels"),
        ({"labels": ints(3, 7)}, "labels"),
        ({"labels": ints(2)}, "labels"),
        ({"labels": np.array([0, 1, 7])}, "labels"),
        ({"labels": [0, 1, -2]}, "labels"),
        ({"labels": [0, 1, HUGE]}, "labels"),
        ({"labels": ["a", "b", "c"]}, "labels"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"label_smoothing": -0.1}, "label_smoothing"),
        ({"label_smoothing": "0.1"}, "label_smoothing"),
        ({"label_smoothing": math.nan}, "label_smoothing"),
        ({"label_smoothing": Traced(0.1)}, "label_smoothing"),
        ({"ignore_label": -1.0}, "ignore_label"),
        ({"ignore_label": True}, "ignore_label"),
        ({"ignore_label": HUGE}, "ignore_label"),
        ({"z_loss": -1e-4}, "z_loss"),
        ({"z_loss": None}, "z_loss"),
        ({"z_loss": math.inf}, "z_loss"),
    ],
    "chunked_cross_entropy": [
        ({"hidden": None}, "hidden"),
        ({"hidden": ones(3, 6)}, "hidden"),
        ({"hidden": ints(3, 5)}, "hidden"),
        ({"hidden": np.float32(1)}, "hidden"),
        ({"table": ones(7)}, "table"),
        ({"table": ones(0, 5)}, "table"),
        ({"table": ones(7, 0)}, "table"),
        ({"table": ones(7, 5, dtype=bool)}, "table"),
        ({"labels": ints(4)}, "labels"),
        ({"labels": [0, 1, 7]}, "labels"),
        ({"labels": OBJECTS}, "labels"),
        ({"label_smoothing": True}, "label_smoothing"),
        ({"ignore_label": "-1"}, "ignore_label"),
        ({"z_loss": 10**400}, "z_loss"),
        ({"softcap": 0.0}, "softcap"),
        ({"softcap": [1.0]}, "softcap"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"chunk_size": 2.0}, "chunk_size"),
        ({"chunk_size": True}, "chunk_size"),
        ({"chunk_size": Traced(2)}, "chunk_size"),
    ],
    "dot_product_attention": [
        ({"query": ones(2, 3, 4, 8).astype(FLOAT8)}, "query"),
        ({"query": ones(2, 3, 4, 8, dtype=np.complex64)}, "query"),
        ({"query": OBJECTS}, "query"),
        ({"key": ones(2, 5, 0, 8), "value": ones(2, 5, 0, 7)}, "key"),
        ({"scale": 10**400}, "scale"),
        ({"scale": 1j}, "scale"),
        ({"softcap": True}, "softcap"),
        ({"is_causal": None, "query_offset": 0}, "is_causal"),
        ({"query_seq_lengths": 1.0}, "query_seq_lengths"),
        ({"local_window_size": [1, 2], "query_offset": 0}, "local_window_size"),
        ({"dropout_rng": "key"}, "dropout_rng"),
        ({"dropout_rng": jax.random.split(jax.random.key(0))}, "dropout_rng"),
        ({"dropout_rate": None}, "dropout_rate"),
        ({"implementation": 3}, "implementation"),
        ({"implementation": "Dense"}, "implementation"),
    ],
    "attention_weights": [
        ({"stage": None}, "stage"),
        ({"stage": ["softmax"]}, "stage"),
        ({"stage": np.array(["softmax", "masked"])}, "stage"),
        ({"query": None}, "query"),
        ({"key": ones(5, 2, 8)}, "key"),
        ({"bias": ints(3, 5)}, "bias"),
        ({"mask": "causal"}, "mask"),
        ({"scale": math.inf}, "scale"),
    ],
    "attention_mask": [
        ({"query": "query"}, "query"),
        ({"key": ints(2, 5, 2, 8)}, "key"),
        ({"mask": ones(3, 5)}, "mask"),
        ({"mask": ones(5, 3, dtype=bool)}, "mask"),
        ({"bias": ones(2, 3, 5)}, "bias"),
        ({"is_causal": 1, "query_offset": 0}, "is_causal"),
        ({"is_causal": True}, "query_offset"),
        ({"key_value_seq_lengths": 6}, "key_value_seq_lengths"),
        ({"query_segment_ids": ints(2, 3)}, "key_value_segment_ids"),
    ],
    "attention_implementation": [
        ({"query": None}, "query"),
        ({"query": "query"}, "query"),
        ({"query": ones(3)}, "query"),
        ({"key": OBJECTS}, "key"),
        ({"value": jax.ShapeDtypeStruct((2, 5, 2, 7), np.int32)}, "value"),
        ({"mask": "causal"}, "mask"),
        ({"bias": 3}, "bias"),
        ({"platform": "gpu"}, "platform"),
        ({"platform": ["cpu"]}, "platform"),
        ({"platform": np.array(["cpu", "tpu"])}, "platform"),
        ({"scale": "1"}, "scale"),
        ({"dropout_rate": 2.0}, "dropout_rate"),
    ],
    "multi_head_attention": [
        ({"params": None}, "params"),
        ({"params": MHA._asdict()}, "params"),
        ({"params": tuple(MHA)}, "params"),
        ({"params": MHA._replace(query_kernel=None)}, "query_kernel"),
        ({"params": MHA._replace(key_kernel=ones(7, 8))}, "key_kernel"),
        ({"params": MHA._replace(value_kernel=ints(8, 8))}, "value_kernel"),
        ({"params": MHA._replace(value_bias=ones(7))}, "value_bias"),
        ({"params": MHA._replace(output_kernel=ones(6, 8))}, "output_kernel"),
        ({"params": MHA._replace(query_norm_scale=ones(8))}, "query_norm_scale"),
        ({"params": MHA._replace(key_norm_scale=[1.0] * 4)}, "key_norm_scale"),
        ({"query_inputs": None}, "query_inputs"),
        ({"query_inputs": [[1.0] * 8]}, "query_inputs"),
        ({"query_inputs": ints(2, 3, 8)}, "query_inputs"),
        ({"query_inputs": ones(8)}, "query_inputs"),
        ({"key_value_inputs": ints(2, 3, 8)}, "key_value_inputs"),
        ({"key_value_inputs": "memory"}, "key_value_inputs"),
        ({"bias": ones(2, 2, 4, 3)}, "bias"),
        ({"mask": ones(3, 3)}, "mask"),
        ({"mask": "causal"}, "mask"),
        ({"num_heads": 0}, "num_heads"),
        ({"num_heads": 3}, "query_kernel"),
        ({"num_heads": 2.0}, "num_heads"),
        ({"num_heads": HUGE}, "num_heads"),
        ({"num_kv_heads": True}, "num_kv_heads"),
        ({"num_kv_heads": 3}, "key_kernel"),
        ({"norm_eps": -1.0}, "norm_eps"),
        ({"norm_eps": "1e-6"}, "norm_eps"),
        ({"rotary": "half"}, "rotary"),
        ({"rotary": 3}, "rotary"),
        ({"rotary": (ones(3, 2),)}, "rotary"),
        ({"rotary": (ones(4, 2), ones(4, 2))}, "rotary"),
        ({"rotary": lambda query, key: query}, "rotary"),
        ({"rotary_layout": "quarter"}, "rotary_layout"),
        ({"rotary_layout": None}, "rotary_layout"),
        ({"cache": {"key": 1}, "is_causal": True}, "cache"),
        ({"cache": CACHE}, "is_causal"),
        ({"cache": WINDOW, "is_causal": True}, "local_window_size"),
        ({"cache": CACHE, "is_causal": True, "num_tokens": ints(3)}, "num_tokens"),
        ({"cache": CACHE, "is_causal": True, "num_tokens": [4, 4]}, "num_tokens"),
        ({"num_tokens": ints(2)}, "num_tokens"),
        ({"cross_cache": (1, 2, 3)}, "cross_cache"),
        ({"cross_cache": CACHE, "key_value_inputs": ones(2, 3, 8)}, "cross_cache"),
        ({"return_weights": "yes"}, "return_weights"),
        ({"return_weights": Traced(True)}, "return_weights"),
        ({"attention_fn": "flash"}, "attention_fn"),
        ({"attention_fn": None}, "attention_fn"),
        ({"attention_fn": lambda query, key: query}, "attention_fn"),
        ({"softcap": -1.0}, "softcap"),
    ],
    "project_memory": [
        ({"params": FEED_FORWARD}, "params"),
        ({"params": MHA._replace(value_kernel=ones(8))}, "value_kernel"),
        ({"key_value_inputs": ones(3, 8)}, "key_value_inputs"),
        ({"key_value_inputs": None}, "key_value_inputs"),
        ({"key_value_inputs": ints(2, 3, 8)}, "key_value_inputs"),
        ({"lengths": [1, 2]}, "lengths"),
        ({"lengths": ones(2)}, "lengths"),
        ({"lengths": ints(3)}, "lengths"),
        ({"lengths": np.array([1, 4])}, "lengths"),
        ({"lengths": np.array([1, -1])}, "lengths"),
        ({"num_heads": None}, "num_heads"),
        ({"num_kv_heads": 0}, "num_kv_heads"),
        ({"norm_eps": math.nan}, "norm_eps"),
    ],
    "KVCache.init": [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"capacity": HUGE}, "capacity"),
        ({"capacity": 3.0}, "capacity"),
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
        ({"window": 0}, "window"),
        ({"window": HUGE}, "window"),
        ({"window": (2, 0)}, "window"),
        ({"window": None}, "window"),
        ({"batch_size": -1}, "batch_size"),
        ({"dtype": bool}, "dtype"),
    ],
    "KVCache.append": [
        ({"key": ones(2, 3, 2, 5)}, "key"),
        ({"key": None}, "key"),
        ({"key": np.ones((2, 3, 2, 4), np.complex64)}, "key"),
        ({"value": ones(2, 4, 2, 4)}, "value"),
        ({"value": [1.0]}, "value"),
        ({"value": ints(2, 3, 2, 4)}, "value"),
        ({"key": ones(2, 7, 2, 4), "value": ones(2, 7, 2, 4)}, "cache"),
        ({"num_tokens": 3}, "num_tokens"),
        ({"num_tokens": np.array([4, 0])}, "num_tokens"),
        ({"num_tokens": np.array([1, -1])}, "num_tokens"),
        ({"num_tokens": ones(2)}, "num_tokens"),
        ({"num_tokens": "12"}, "num_tokens"),
    ],
    "WindowCache.append": [
        ({"key": ones(3, 3, 2, 4)}, "key"),
        ({"key": "key"}, "key"),
        ({"value": ones(2, 3, 3, 4)}, "value"),
        ({"num_tokens": np.array([4, 0])}, "num_tokens"),
        ({"num_tokens": ints(1)}, "num_tokens"),
    ],
}
WRONG = [(name, wrong, argument) for name in CALLS for wrong, argument in CALLS[name]]


def function(name):
    owner, _, method = name.rpartition(".")
    found = getattr(F, owner or method)
    if owner:
        found = getattr(BOUND.get(name, found), method)
    return found


def call(name, arguments):
    """Calls a function; under jax.jit where an argument is traced."""
    traced = {}

    def run(values):
        given = {n: _filled(a, iter(values)) for n, a in arguments.items()}
        masks = given.pop("masks", ())
        return function(name)(*masks, **given)

    traced = [_traced_value(a) for a in arguments.values() if _traced_value(a) is not None]
    return jax.jit(run)(traced) if traced else run([])


def _traced_value(argument):
    if isinstance(argument, Traced):
        return argument.value
    if isinstance(argument, F.LinearScaling) and isinstance(argument.factor, Traced):
        return argument.factor.value
    return None


def _filled(argument, values):
    """The argument, with a tracer in place of what is traced."""
    if isinstance(argument, Traced):
        return next(values)
    if isinstance(argument, F.LinearScaling) and isinstance(argument.factor, Traced):
        return argument._replace(factor=next(values))
    return argument


def short(value):
    """A value in the name of a test."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return re.sub(r"\s+|0x\w+", " ", getattr(value, "__name__", repr(value)))[:50]


def described(row):
    name, wrong, _ = row
    return f"{name}-" + "-".join(f"{n}={short(value)}" for n, value in wrong.items())


@pytest.mark.parametrize("row", WRONG, ids=described)
def test_a_wrong_call_is_refused_by_name(row):
    """By an error of the library's own, before JAX can raise one from somewhere inside."""
    name, wrong, argument = row
    with pytest.raises(ValueError) as raised:
        call(name, {**RIGHT[name], **wrong})
    assert type(raised.value).__module__ == errors.__name__, repr(raised.value)
    message = str(raised.value)
    assert re.search(rf"(?<![a-z]){argument}s?(?![a-z])", message), message
    assert len(message) < 1000


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_call_is_taken(name):
    """Or its wrong ones could be refused for another reason. Traced, so that nothing compiles."""

    def run():
        call(name, RIGHT[name])

    jax.eval_shape(run)


@pytest.mark.parametrize("name", RIGHT)
def test_arguments_that_are_missing_or_misspelt_are_named(name):
    if name == "combine":  # takes any number of masks
        with pytest.raises(TypeError, match="maskz"):
            F.combine(maskz=None)
        return
    first = next(n for n in RIGHT[name])
    with pytest.raises(TypeError, match=rf"'{first}'"):
        call(name, {n: value for n, value in RIGHT[name].items() if n != first})
    with pytest.raises(TypeError, match="'spelling'"):
        call(name, {**RIGHT[name], "spelling": 1})


def test_every_public_function_is_called_wrongly():
    public = {name for name in F.__all__ if inspect.isfunction(getattr(F, name))}
    assert public <= CALLS.keys() == RIGHT.keys()
    assert len({described(row) for row in WRONG}) >= 150


def test_a_size_of_numpy_is_a_length_as_one_of_python_is():
    for function in (F.sinusoidal_positions, F.rotary_tables):
        lengths = [jax.eval_shape(lambda n=n, f=function: f(n, 4)) for n in (5, np.int64(5))]
        assert lengths[0] == lengths[1]
