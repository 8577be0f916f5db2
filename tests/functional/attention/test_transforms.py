"""Attention under JAX's transforms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jaxformer.functional import dot_product_attention
from tests.functional import oracle
from tests.functional.attention import attention_cases as cases

BATCH = (
    {**cases.inputs_of(cases.DEVICES), "bias": cases.normal(8, 6, 5, 7)},
    {
        "mask": cases.bits(8, 1, 5, 7),
        "query_offset": np.array([2, 0, 3, -1, 1, 6, 2, 4]),
        "query_seq_lengths": np.array([5, 4, 5, 3, 5, 5, 2, 5]),
        "key_value_seq_lengths": np.array([7, 6, 5, 7, 4, 3, 7, 2]),
    },
    cases.cotangent_of(cases.DEVICES),
)


@pytest.fixture(params=cases.IMPLEMENTATIONS, scope="module")
def implementation(request):
    return request.param


@functools.cache
def causal_by(implementation):
    """Output and gradients of causal attention, as a function of a batch."""
    return functools.partial(cases.evaluate, is_causal=True, implementation=implementation)


def scanned(causal):
    def rows(*batch):
        return jax.lax.scan(lambda carry, row: (carry, causal(*row)), None, batch)[1]

    return jax.jit(rows)


def sharded(causal):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    specs = PartitionSpec("data")
    return jax.jit(jax.shard_map(causal, mesh=mesh, in_specs=specs, out_specs=specs))


TRANSFORMS = {
    "vmap": lambda causal: jax.jit(jax.vmap(causal)),
    "scan": scanned,
    "remat": lambda causal: jax.jit(functools.partial(causal, wrap=jax.checkpoint)),
    "pmap": jax.pmap,
    "shard_map": sharded,
}


@pytest.fixture(scope="module")
def batched(implementation):
    inputs, options, _ = BATCH
    output, gradients = jax.jit(causal_by(implementation))(*BATCH)
    cases.assert_close(output, oracle.attention(**inputs, **options, is_causal=True), 1e-6)
    return output, gradients


@pytest.mark.essential
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_attention_and_its_gradient_are_the_same_under(transform, implementation, batched):
    got = transform(causal_by(implementation))(*BATCH)
    jax.tree.map(functools.partial(cases.assert_close, tolerance=1e-6), got, batched)


def test_attention_derivative_is_the_same_forward_as_backward(implementation, batched):
    inputs, options, cotangent = BATCH
    directions = cases.directions_of(inputs)

    @jax.jit
    def push(inputs, directions, options):
        def attend(inputs):
            return dot_product_attention(
                **inputs, **options, is_causal=True, implementation=implementation
            )

        return jax.jvp(attend, (inputs,), (directions,))[1]

    forward = np.sum(np.asarray(push(inputs, directions, options), np.float64) * cotangent)
    backward = sum(np.sum(np.asarray(batched[1][n], np.float64) * directions[n]) for n in inputs)
    assert forward == pytest.approx(backward, rel=1e-5)


def test_attention_called_eagerly_takes_numpy_and_python_numbers(implementation):
    lengths = {"query_seq_lengths": np.array([4, 5]), "key_value_seq_lengths": 6}
    options = {"query_offset": np.array([2, -1]), **lengths, "is_causal": True}
    inputs = cases.inputs_of(cases.GROUPED)
    output = dot_product_attention(**inputs, **options, implementation=implementation)
    cases.assert_close(output, oracle.attention(**inputs, **options), 1e-6)


@pytest.mark.essential
def test_attention_has_a_second_derivative(implementation):
    with jax.enable_x64(True):
        inputs, options = (
            cases.inputs_of(cases.GROUPED, np.float64),
            {"query_offset": np.array([2, -1])},
        )
        directions = cases.directions_of(inputs)

        def slope(distance):
            moved = {n: a + distance * directions[n] for n, a in inputs.items()}
            function = functools.partial(
                dot_product_attention, **options, is_causal=True, implementation=implementation
            )
            loss, pull = jax.vjp(lambda inputs: jnp.sin(function(**inputs)).sum(), moved)
            gradients = pull(jnp.ones_like(loss))[0]
            return sum(jnp.vdot(gradients[n], directions[n]) for n in inputs)

        slope_and_curvature = jax.jit(
            lambda distance: jax.jvp(slope, (distance,), (1.0,)), compiler_options=cases.QUICK
        )
        step = 1e-5
        expected = (slope_and_curvature(step)[0] - slope_and_curvature(-step)[0]) / (2 * step)
        assert slope_and_curvature(0.0)[1] == pytest.approx(float(expected), rel=1e-6)


def test_attention_scanned_over_queries_is_causal_attention(implementation):
    inputs = cases.inputs_of(cases.SQUARE)

    @jax.jit
    def decode(query, key, value):
        def step(position, row):
            output = dot_product_attention(
                row[:, None],
                key,
                value,
                is_causal=True,
                query_offset=position,
                implementation=implementation,
            )
            return position + 1, output[:, 0]

        return jnp.moveaxis(jax.lax.scan(step, 0, jnp.moveaxis(query, 1, 0))[1], 0, 1)

    cases.assert_close(decode(**inputs), oracle.attention(**inputs, is_causal=True), 1e-6)
