import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

from jaxformer.errors import ConfigError
from jaxformer.testing import assert_shapes

X = jax.ShapeDtypeStruct((2, 3, 5), "float32")
MODULE = nn.Sequential([nn.Dense(7), nn.Dense(11, dtype=jnp.bfloat16)])
SHAPES = {
    "params/layers_0/kernel": (5, 7),
    "params/layers_1/kernel": (7, 11),
    "params/*/bias": (None,),
}


def init(rng, x):
    """Parameters in any tree: here a dict with a list."""
    return {"kernels": [jnp.zeros((x.shape[-1], 7)), jnp.zeros((7, 11))]}


def apply(params, x):
    first, second = params["kernels"]
    return {"hidden": x @ first, "output": x @ first @ second}


def test_linen_module_has_its_shapes():
    output = jax.ShapeDtypeStruct((2, 3, 11), jnp.bfloat16)
    assert_shapes(MODULE.init, MODULE.apply, X, params=SHAPES, output=output)
    assert_shapes(MODULE.init, MODULE.apply, X, output=(2, ..., 11))


def test_plain_functions_have_their_shapes():
    assert_shapes(
        init,
        apply,
        X,
        params={"kernels/0": (5, 7), "kernels/1": (7, 11)},
        output={"hidden": (2, 3, 7), "output": (2, 3, 11)},
    )


def test_shape_check_lists_every_difference():
    wrong = {"params/layers_0/kernel": (7, 5), "params/layers_1/*": (..., 11), "params/scale": (5,)}
    with pytest.raises(AssertionError) as caught:
        assert_shapes(MODULE.init, MODULE.apply, X, params=wrong)
    message = str(caught.value)
    assert "the parameters must have" in message and "3 of 5 paths" in message
    for line in (
        "params/layers_0/kernel: float32 (5, 7)",
        "params/layers_0/kernel: (7, 5)",
        "params/layers_0/bias: none, no path names it",
        "params/scale: none",
        "params/scale: (5,)",
    ):
        assert line in message
    assert "layers_1" not in message


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ((2, 3, 7), r"output: bfloat16 \(2, 3, 11\)\n.*output: \(2, 3, 7\)"),
        (jax.ShapeDtypeStruct((2, 3, 11), "float32"), r"expected: +output: float32 \(2, 3, 11\)"),
        ({"logits": (2, 3, 11)}, "logits: none"),
    ],
)
def test_shape_check_catches_a_wrong_output(output, message):
    with pytest.raises(AssertionError, match=message):
        assert_shapes(MODULE.init, MODULE.apply, X, output=output)


def test_shape_check_refuses_to_check_nothing():
    with pytest.raises(ConfigError, match="params or output must be given"):
        assert_shapes(init, apply, X)
