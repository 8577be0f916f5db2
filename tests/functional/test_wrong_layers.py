"""Wrong calls of layers."""

import functools
import math
import re

import jax
import numpy as np
import pytest

from jaxformer import functional as F
from tests.functional.wrong_calls import (
    FLOAT8,
    Traced,
    assert_refused,
    described,
    ints,
    ones,
    rows_of,
)

FEED_FORWARD = F.FeedForwardParams(ones(5, 7), ones(7, 5), ones(7), ones(5))
GATED = F.GatedFeedForwardParams(ones(5, 7), ones(5, 7), ones(7, 5), ones(7), ones(7), ones(5))
EXPERTS = F.ExpertsParams(
    ones(5, 3), ones(3, 5, 7), ones(3, 7, 5), ones(3, 5, 7), ones(3), ones(3, 7), ones(3, 5),
    ones(3, 7),
)  # fmt: skip

LOW_RANK = functools.partial(
    F.LowRankKernel, base=ones(5, 7), down=ones(5, 3), up=ones(3, 7), scale=2.0
)

ACTIVATIONS = "'relu', 'relu2', 'gelu', 'gelu_tanh' or 'silu'"

# A right call of each function, which the wrong ones differ from in a few arguments.
RIGHT = {
    "embed": {"table": ones(7, 5), "tokens": ints(2, 3)},
    "feed_forward": {"params": FEED_FORWARD, "x": ones(3, 5)},
    "gated_feed_forward": {"params": GATED, "x": ones(3, 5)},
    "layer_norm": {"x": ones(3, 5), "scale": ones(5), "bias": ones(5)},
    "linear": {"x": ones(3, 5), "kernel": ones(5, 7), "bias": ones(7)},
    "mixture_of_experts": {"params": EXPERTS, "x": ones(2, 5), "num_experts_per_token": 2},
    "pool": {"hidden": ones(2, 3, 5), "lengths": ints(2)},
    "rms_norm": {"x": ones(3, 5), "scale": ones(5)},
    "unembed": {"table": ones(7, 5), "x": ones(3, 5)},
}

CALLS = {
    "linear": [
        ({"x": None}, "x"),
        ({"x": np.float32(1)}, "x", "x must be [..., D], got shape ()"),
        ({"x": ints(3, 5)}, "x", "x must be floating"),
        ({"x": ones(3, 5).astype(FLOAT8)}, "x"),
        ({"kernel": ones(7, 5)}, "kernel", "[D=5, F]", "(7, 5)", "D is x's last axis"),
        ({"kernel": ints(5, 7)}, "kernel"),
        ({"kernel": [[1.0]]}, "kernel"),
        ({"kernel": LOW_RANK(base=ones(2, 5, 7))}, "kernel"),
        ({"kernel": LOW_RANK(down=ones(7, 3))}, "kernel.down"),
        ({"kernel": LOW_RANK(up=ones(2, 7))}, "kernel.up"),
        ({"kernel": LOW_RANK(up=ints(3, 7))}, "kernel.up"),
        ({"kernel": LOW_RANK(scale="1")}, "kernel.scale"),
        ({"bias": ones(5)}, "bias", "[F=7]", "(5,)"),
        ({"bias": ints(7)}, "bias"),
    ],
    "feed_forward": [
        ({"params": GATED}, "params"),
        ({"params": FEED_FORWARD._replace(up_kernel=ones(7, 5))}, "up_kernel",
         "[D=5, F]", "(7, 5)"),
        ({"params": FEED_FORWARD._replace(up_bias=ones(5))}, "up_bias", "[F=7]", "(5,)"),
        ({"params": FEED_FORWARD._replace(down_kernel=ones(5, 7))}, "down_kernel",
         "[F=7, D=5]", "(5, 7)", "F is up_kernel's last axis"),
        ({"params": FEED_FORWARD._replace(down_bias=ones(7))}, "down_bias", "[D=5]", "(7,)"),
        ({"params": FEED_FORWARD._replace(down_kernel=ones(7, 6), down_bias=None)}, "down_kernel"),
        ({"x": ones(3, 5, dtype=bool)}, "x"),
        ({"activation": "swish"}, "activation", ACTIVATIONS, "got 'swish'"),
    ],
    "gated_feed_forward": [
        ({"params": FEED_FORWARD}, "params"),
        ({"params": GATED._replace(gate_kernel=ones(3, 7))}, "gate_kernel", "[D=5, F]", "(3, 7)"),
        ({"params": GATED._replace(up_kernel=ones(5, 3), up_bias=None)}, "up_kernel", "ShapeError"),
        ({"params": GATED._replace(up_bias=ones(5))}, "up_bias", "[F=7]", "(5,)"),
        ({"params": GATED._replace(gate_bias=ones(1))}, "gate_bias"),
        ({"params": GATED._replace(down_kernel=ones(7, 3), down_bias=None)}, "down_kernel"),
        ({"x": "x"}, "x"),
        ({"activation": "SiLU"}, "activation", "'silu' or 'clamped_silu', got 'SiLU'"),
    ],
    "mixture_of_experts": [
        ({"params": FEED_FORWARD}, "params"),
        ({"params": EXPERTS._replace(router_kernel=ones(7, 3))}, "router_kernel",
         "[D=5, E]", "(7, 3)"),
        ({"params": EXPERTS._replace(router_kernel=ints(5, 3))}, "router_kernel"),
        ({"params": EXPERTS._replace(router_bias=ones(5))}, "router_bias"),
        ({"params": EXPERTS._replace(gate_kernel=ones(3, 5, 6))}, "gate_kernel",
         "[E=3, D=5, F=7]", "(3, 5, 6)"),
        ({"params": EXPERTS._replace(gate_kernel=None)}, "gate_bias", "no gate_kernel"),
        ({"params": EXPERTS._replace(down_kernel=None)}, "down_kernel"),
        ({"params": EXPERTS._replace(down_bias=ones(3, 7))}, "down_bias", "[E=3, D=5]", "(3, 7)"),
        ({"x": ints(2, 5)}, "x"),
        ({"num_experts_per_token": 4}, "num_experts_per_token",
         "ConfigError", "must be an int in 1 .. 3, got 4"),
        ({"num_experts_per_token": 0}, "num_experts_per_token", "in 1 .. 3, got 0"),
        ({"num_experts_per_token": Traced(2)}, "num_experts_per_token"),
        ({"activation": "swish"}, "activation"),
        ({"params": EXPERTS._replace(selection_bias=ones(5))}, "selection_bias", "[E=3]", "(5,)"),
        ({"params": EXPERTS._replace(selection_bias=ones(3))}, "selection_bias",
         "for routing.scores 'sigmoid', got 'softmax'"),
        ({"routing": "softmax"}, "routing"),
        ({"routing": F.Routing(scores="tanh")}, "routing.scores"),
        ({"routing": F.Routing(normalize_weights=1)}, "routing.normalize_weights"),
        ({"routing": F.Routing(scale=0.0)}, "routing.scale", "must be positive"),
        ({"routing": F.Routing(scores="sigmoid", num_groups=2)}, "routing.num_groups",
         "an int that divides E=3, got num_groups=2"),
        ({"routing": F.Routing(scores="sigmoid", num_groups=3)}, "routing.num_groups_per_token",
         "whose groups have num_experts_per_token=2 experts"),
        ({"routing": F.Routing(scores="sigmoid", num_groups=3, num_groups_per_token=2)},
         "routing.num_groups", "must have two experts"),
        ({"routing": F.Routing(num_groups_per_token=2)}, "routing.num_groups_per_token"),
        ({"mask": ones(2)}, "mask"),
        ({"mask": ones(3, dtype=bool)}, "mask"),
    ],
    "layer_norm": [
        ({"x": ints(3, 5)}, "x", "x must be floating", "int32"),
        ({"x": np.float32(1)}, "x", "must be [..., D]", "shape ()"),
        ({"scale": ones(3)}, "scale", "must be [D=5]", "(3,)"),
        ({"bias": ones(1)}, "bias", "must be [D=5]", "(1,)"),
        ({"bias": [0.0] * 5}, "bias"),
        ({"eps": -1e-5}, "eps", "ConfigError", "at least 0, got -1e-05"),
        ({"eps": math.nan}, "eps"),
        ({"eps": ones(5)}, "eps"),
    ],
    "rms_norm": [
        ({"x": ints(3, 5)}, "x", "x must be floating", "int32"),
        ({"scale": ones(6)}, "scale", "must be [D=5]", "(6,)"),
        ({"eps": -1.0}, "eps", "ConfigError", "at least 0, got -1.0"),
    ],
    "embed": [
        ({"table": ones(2, 7, 5)}, "table", "[V, D]", "(2, 7, 5)"),
        ({"table": ones(0, 5)}, "tokens"),
        ({"tokens": [1, 2]}, "tokens"),
        ({"tokens": ones(3)}, "tokens", "must be integer", "float32"),
        ({"tokens": np.array([-1])}, "tokens"),
        ({"tokens": np.array(["a"])}, "tokens"),
    ],
    "unembed": [
        ({"table": ones(3)}, "table", "must be [V, D], got shape (3,)"),
        ({"x": ones(3, 7)}, "x", "D=5", "(3, 7)", "table's"),
        ({"x": ints(3, 5)}, "x", "must be floating, got dtype int32"),
        *(
            ({"softcap": softcap}, "softcap", "ConfigError", "must be positive and finite")
            for softcap in (0, -30.0, math.inf, math.nan)
        ),
        ({"softcap": Traced(30.0)}, "softcap"),
        ({"bias": ones(5)}, "bias", "must be [V=7], got shape (5,)"),
        ({"bias": ints(7)}, "bias"),
    ],
    "pool": [
        ({"hidden": ones(3, 5)}, "hidden"),
        ({"hidden": ints(2, 3, 5)}, "hidden"),
        ({"lengths": ones(2)}, "lengths"),
        ({"lengths": ints(3)}, "lengths", "must be [B=2], got shape (3,)"),
        ({"pooling": "max"}, "pooling", "must be 'mean', 'first' or 'last', got 'max'"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("row", rows_of(CALLS), ids=described)
def test_a_wrong_call_is_refused_by_name(row):
    assert_refused(RIGHT, row)


LAYERS = [
    row
    for row in rows_of({name: CALLS[name] for name in ("feed_forward", "gated_feed_forward")})
    if "params" in row[1]
]


@pytest.mark.parametrize("row", LAYERS, ids=described)
def test_a_feed_forward_layer_refuses_its_parameters_before_it_computes(row):
    name, wrong, *_ = row
    layer, options = getattr(F, name), RIGHT[name] | wrong
    with pytest.raises(ValueError) as refused:
        jax.eval_shape(functools.partial(layer, **options))
    x = jax.numpy.asarray(np.full((3, 5), np.nan, np.float32))
    # Under debug_nans whatever is computed from such inputs raises a FloatingPointError.
    with jax.debug_nans(True), pytest.raises(refused.type, match=re.escape(str(refused.value))):
        layer(options["params"], x)
