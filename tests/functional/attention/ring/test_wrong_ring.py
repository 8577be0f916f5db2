"""Wrong calls of ring attention and of the order of its sequences."""

import jax
import numpy as np
import pytest

from jaxformer.functional import Prefix, RingLayout, Segments
from jaxformer.functional.masks.base import ArrayMask
from tests.functional.wrong_calls import OBJECTS, assert_refused, described, ints, ones, rows_of

RING = {"query": ones(2, 6, 4, 8), "key": ones(2, 6, 2, 8), "value": ones(2, 6, 2, 7)}
WHOLE = {"query": ones(2, 8, 4, 8), "key": ones(2, 8, 2, 8), "value": ones(2, 8, 2, 7)}
THREE_KEY_HEADS = {"query": ones(2, 8, 6, 8), "key": ones(2, 8, 3, 8), "value": ones(2, 8, 3, 7)}
MESH = jax.sharding.Mesh(np.array(jax.devices()[:2]).reshape(2, 1), ("sequence", "data"))


def layout(**changes):
    return {"layout": RingLayout(**{"mesh": MESH, **changes})}


# A right call of each function, which the wrong ones differ from in a few arguments.
RIGHT = {
    "from_ring_order": {"x": ints(2, 8), "num_devices": 2},
    "ring_attention": {**RING, "axis_name": "sequence"},
    "ring_positions": {"num_tokens": 4, "axis_name": "sequence"},
    "sharded_ring_attention": {**WHOLE, "layout": RingLayout(mesh=MESH)},
    "to_ring_order": {"x": ints(2, 8), "num_devices": 2},
}

ORDER = [
    ({"x": None}, "x"),
    ({"x": OBJECTS}, "x"),
    ({"x": ints(2, 6)}, "x"),
    ({"num_devices": 0}, "num_devices"),
    ({"num_devices": 2.0}, "num_devices"),
    ({"axis": 2}, "axis"),
    ({"axis": 1.0}, "axis"),
]

CALLS = {
    "to_ring_order": ORDER,
    "from_ring_order": ORDER,
    "ring_positions": [
        ({"num_tokens": 3}, "num_tokens"),
        ({"num_tokens": "4"}, "num_tokens"),
        ({"axis_name": "tokens"}, "axis_name"),
        ({"axis_name": None}, "axis_name"),
    ],
    "ring_attention": [
        ({"query": OBJECTS}, "query"),
        ({"key": ones(2, 6, 3, 8), "value": ones(2, 6, 3, 7)}, "query"),
        ({"value": ones(2, 5, 2, 7)}, "value"),
        ({name: array[:, :3] for name, array in RING.items()}, "T", "same even T"),
        ({"query": ones(2, 4, 4, 8)}, "T", "same even T"),
        ({"axis_name": ["sequence"]}, "axis_name"),
        ({"axis_name": "x"}, "axis_name", "ConfigError", "must name a mapped axis", "'x'"),
        ({"bias": ones(6, 6)}, "bias", "ConfigError", "takes no array as bias"),
        ({"mask": ones(6, 6, dtype=bool)}, "mask", "ConfigError", "takes no array as mask"),
        ({"mask": ~ArrayMask(ones(6, 6, dtype=bool))}, "mask", "ConfigError", "takes no array"),
        ({"mask": Segments(ints(2, 12))}, "query_ids"),
        ({"mask": Prefix(13)}, "lengths of Prefix", "must be in 0 .. 12, got 13"),
        ({"query_offset": 0}, "query_offset", "ConfigError", "takes no query_offset, got 0"),
        ({"is_causal": 1}, "is_causal"),
        ({"scale": "1"}, "scale"),
        ({"softcap": -1.0}, "softcap"),
        ({"local_window_size": -1}, "local_window_size"),
        ({"query_segment_ids": ints(2, 6)}, "key_value_segment_id"),
        ({"query_seq_lengths": [13, 1]}, "query_seq_length"),
        ({"key_value_seq_lengths": 13}, "key_value_seq_length", "must be in 0 .. 12, got 13"),
        ({"key_value_seq_lengths": ones(2)}, "key_value_seq_length"),
        ({"dropout_rate": 1.0}, "dropout_rate"),
        ({"dropout_rate": 0.5}, "dropout_rng", "ConfigError", "needs a dropout_rng"),
        ({"dropout_rng": 3}, "dropout_rng"),
        ({"implementation": "fast"}, "implementation"),
        ({"implementation": ["dense"]}, "implementation", "must be 'auto'"),
        ({"implementation": "cudnn"}, "implementation", "'cudnn' cannot serve ring attention"),
        ({"implementation": "splash"}, "implementation", "'splash' cannot serve ring attention"),
        ({"implementation": "splash", "value": None}, "implementation", "cannot serve ring"),
    ],
    "sharded_ring_attention": [
        ({"query": ones(8, 4, 8)}, "query"),
        ({"key": ones(2, 6, 2, 8)}, "key"),
        ({"value": None}, "value"),
        (RING, "T"),
        ({"bias": ones(8, 8)}, "bias"),
        ({"mask": ones(8, 8, dtype=bool)}, "mask"),
        ({"query_offset": 0}, "query_offset"),
        ({"layout": MESH}, "layout"),
        (layout(mesh="data"), "mesh"),
        (layout(sequence_axis="tokens"), "sequence_axis"),
        (layout(batch_axes="sequence"), "batch_axes"),
        (layout(head_axes=["data"]), "head_axes"),
        (layout(in_ring_order=1), "in_ring_order"),
        ({**layout(head_axes="sequence", sequence_axis="data"), **THREE_KEY_HEADS}, "K"),
        (
            {"query_segment_ids": ints(2, 7), "key_value_segment_ids": ints(2, 8)},
            "query_segment_id",
        ),
        ({"query_seq_lengths": [9, 1]}, "query_seq_length"),
        ({"dropout_rate": 0.5}, "dropout_rng"),
        ({"implementation": "cudnn", "value": None}, "implementation", "cannot serve ring"),
    ],
}


@pytest.mark.parametrize("row", rows_of(CALLS), ids=described)
def test_a_wrong_call_is_refused_by_name(row):
    assert_refused(RIGHT, row)
