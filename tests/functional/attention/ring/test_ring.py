"""Ring attention over 2 to 8 fake devices against attention on one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jaxformer.functional import (
    dot_product_attention,
    from_ring_order,
    ring_attention,
    to_ring_order,
)
from jaxformer.functional.attention.program import attention_program
from jaxformer.functional.attention.ring import rounds
from tests.functional import oracle
from tests.functional.attention.attention_cases import QUICK, assert_close, assert_same_bits, normal

T = 48
SPLIT = PartitionSpec(None, "sequence")


def inputs_of(dtype=np.float32):
    """Query, key, value and a cotangent: grouped heads, and values wider than keys."""
    shapes = (2, T, 4, 3), (2, T, 2, 3), (2, T, 2, 5), (2, T, 4, 5)
    return [normal(*shape, seed=i).astype(dtype) for i, shape in enumerate(shapes)]


LENGTHS = {
    "query_seq_lengths": np.array([T, 29], np.int32),
    "key_value_seq_lengths": np.array([41, 29], np.int32),
}
IDS = np.sort(np.random.default_rng(3).integers(0, 4, (2, T), np.int32))
SEGMENTS = {"query_segment_ids": IDS, "key_value_segment_ids": IDS}


def on_ring(n, function):
    """The function of arrays in order, computed on n devices in ring order."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:n]), ("sequence",))

    def spec(name):
        return PartitionSpec() if name.endswith(("lengths", "rng")) else SPLIT

    @functools.partial(jax.jit, compiler_options=QUICK)
    def mapped(arrays, options):
        specs = (SPLIT,) * len(arrays), {name: spec(name) for name in options}
        return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=SPLIT)(arrays, options)

    def call(arrays, options):
        options = {
            name: to_ring_order(array, n) if name.endswith("ids") else array
            for name, array in options.items()
        }
        results = mapped(tuple(to_ring_order(array, n) for array in arrays), options)
        return [from_ring_order(np.asarray(result), n) for result in jax.tree.leaves(results)]

    return call


def with_gradients(attend):
    """Output, and the gradients of its inner product with a cotangent, of (arrays, options)."""

    def evaluate(arrays, options):
        *inputs, cotangent = arrays
        output, pull = jax.vjp(lambda *inputs: attend(*inputs, **options), *inputs)
        return output, *pull(cotangent)

    return evaluate


def assert_equals_one_device(got, arrays, options, static, forward, backward):
    on_one_device = with_gradients(functools.partial(dot_product_attention, **static))
    expected = jax.jit(on_one_device, compiler_options=QUICK)(arrays, options)
    for name, on_one_device, value in zip("oqkv", got, expected, strict=True):
        assert on_one_device.dtype == value.dtype
        assert_close(on_one_device, value, forward if name == "o" else backward)


CASES = {
    "8 devices, causal": (8, {}, {"is_causal": True, "implementation": "chunked"}),
    "2 devices, window, soft cap, scale": (
        2, {}, {"local_window_size": (17, 5), "softcap": 2.0, "scale": 0.7}
    ),
    "float64": (8, LENGTHS | SEGMENTS, {"is_causal": True, "local_window_size": (9, None)}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_ring_and_its_gradient_equal_one_device(case):
    (n, options, static), dtype = CASES[case], np.float64 if case == "float64" else np.float32
    tolerances = (1e-14, 1e-13) if case == "float64" else (1e-6, 1e-5)
    with jax.enable_x64(case == "float64"):
        attend = functools.partial(ring_attention, axis_name="sequence", **static)
        got = on_ring(n, with_gradients(attend))(inputs_of(dtype), options)
        assert_equals_one_device(got, inputs_of(dtype), options, static, *tolerances)


def test_ring_in_half_precision_rounds_its_results_only():
    arrays = inputs_of(jnp.bfloat16)
    static = {"is_causal": True}
    attend = functools.partial(ring_attention, axis_name="sequence", **static)
    got = on_ring(2, with_gradients(attend))(arrays, {})
    exact = with_gradients(functools.partial(dot_product_attention, **static))
    expected = jax.jit(exact, compiler_options=QUICK)(
        [np.asarray(array, np.float32) for array in arrays], {}
    )
    for result, value in zip(got, expected, strict=True):
        assert result.dtype == jnp.bfloat16
        value = np.asarray(value)
        error = np.abs(result.astype(np.float32) - value)
        once = np.abs(np.asarray(jnp.asarray(value, jnp.bfloat16), np.float32) - value)
        assert (error <= once + 1e-5 * np.abs(value).max()).all()


@pytest.fixture(scope="module")
def padded():
    """Non-causal attention on 8 devices, of rows with lengths and segments."""
    attend = functools.partial(ring_attention, axis_name="sequence")
    return on_ring(8, with_gradients(attend))


def test_ring_of_padded_rows_and_its_gradient_equal_one_device(padded):
    options = LENGTHS | SEGMENTS
    got = padded(inputs_of(), options)
    assert_equals_one_device(got, inputs_of(), options, {}, 1e-6, 1e-5)


def test_ring_is_untouched_by_poison_in_padding(padded):
    beyond = np.arange(T) >= LENGTHS["key_value_seq_lengths"][:, None]

    def outcome(poison):
        arrays = inputs_of()
        for array in arrays[1:3]:
            array[beyond] = poison
        return padded(arrays, LENGTHS | SEGMENTS)

    clean = outcome(0)
    assert all(np.isfinite(result).all() for result in clean)
    assert (clean[2][beyond] == 0).all()
    assert_same_bits(outcome(np.nan), clean)


def test_ring_gives_zeros_where_nothing_is_visible(padded):
    arrays = inputs_of()
    none = {name: np.array([0, T], np.int32) for name in LENGTHS}
    results = padded(arrays, none | SEGMENTS)
    assert all((result[0] == 0).all() and (result[1] != 0).any() for result in results)
    hidden = SEGMENTS | {"key_value_segment_ids": IDS + np.array([[9], [0]], np.int32)}
    results = padded(arrays, {name: np.array([T, T], np.int32) for name in LENGTHS} | hidden)
    assert all((result[0] == 0).all() and (result[1] != 0).any() for result in results)


# Work and memory.


def test_hidden_blocks_are_not_computed(monkeypatch):
    computed = []

    def counted(*args):
        jax.debug.callback(lambda: computed.append(1))
        return attention_program(*args)

    monkeypatch.setattr(rounds, "attention_program", counted)
    attend = functools.partial(ring_attention, axis_name="sequence", is_causal=True)
    causal = on_ring(4, lambda arrays, options: attend(*arrays[:3], **options))

    def count(length, ids):
        computed.clear()
        causal(inputs_of(), {name: np.array([length, 1], np.int32) for name in LENGTHS} | {
            name: np.broadcast_to(ids, (2, T)) for name in SEGMENTS
        })  # fmt: skip
        jax.effects_barrier()
        return len(computed)

    same, chunk = np.zeros(T, np.int32), T // 8
    assert count(T, same) == 8 * 9 // 2
    assert count(3 * chunk, same) == 3 * 4 // 2
    assert count(T, np.arange(T, dtype=np.int32) // chunk) == 8


def gradient_memory(n, length):
    """Bytes of temporaries on each device in the gradient of causal attention."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:n]), ("sequence",))

    def gradients(query, key, value):
        attend = functools.partial(
            ring_attention, axis_name="sequence", is_causal=True, implementation="dense"
        )
        output, pull = jax.vjp(attend, query, key, value)
        return pull(output)

    mapped = jax.shard_map(gradients, mesh=mesh, in_specs=SPLIT, out_specs=SPLIT)
    shape = jax.ShapeDtypeStruct((1, length, 2, 64), np.float32)
    lowered = jax.jit(mapped, compiler_options=QUICK).lower(*[shape] * 3)
    return lowered.compile().memory_analysis().temp_size_in_bytes


def test_memory_of_a_device_falls_with_the_number_of_devices():
    # By more than 4. Differentiated through the loop, it falls by 2.6, and by 2 if that is remat.
    assert gradient_memory(8, 1024) < gradient_memory(2, 1024) / 3


def test_ring_runs_on_any_mapped_axis():
    query, key, value, _ = inputs_of()
    by_device = [
        to_ring_order(array, 2).reshape(2, 2, T // 2, *array.shape[2:]).swapaxes(0, 1)
        for array in (query, key, value)
    ]
    attend = functools.partial(ring_attention, axis_name="i", is_causal=True)
    mapped = jax.jit(jax.vmap(attend, axis_name="i"), compiler_options=QUICK)
    output = np.asarray(mapped(*by_device))
    output = from_ring_order(output.swapaxes(0, 1).reshape(2, T, 4, 5), 2)
    assert_close(output, oracle.attention(query, key, value, is_causal=True), 1e-6)


def test_ring_drops_the_same_weights_in_the_backward_pass():
    with jax.enable_x64(True):
        attend = functools.partial(ring_attention, axis_name="sequence", dropout_rate=0.5)
        evaluate = on_ring(2, with_gradients(attend))
        *inputs, cotangent = inputs_of(np.float64)
        options = {"dropout_rng": jax.random.key(3)}
        output, *gradients = evaluate([*inputs, cotangent], options)
        directions = [normal(*array.shape, seed=9).astype(np.float64) for array in inputs]

        def moved(step):
            near = [x + step * d for x, d in zip(inputs, directions, strict=True)]
            return np.sum(cotangent * evaluate([*near, cotangent], options)[0])

        slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
        assert slope == pytest.approx(
            sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True)), rel=1e-7
        )
        # Of equal weights, a row of the output is the mean of what its mask keeps, each 0 or 2.
        equal = [np.zeros_like(inputs[0]), inputs[1], np.ones_like(inputs[2]), cotangent]
        means = evaluate(equal, options)[0]
        assert means.mean() == pytest.approx(1, abs=0.03)
        assert means.std() == pytest.approx(T**-0.5, rel=0.2)  # each key is dropped by itself
        chunks = means.reshape(2, 4, T // 4, *means.shape[2:]).swapaxes(0, 1)
        assert all((chunks[i] != chunks[j]).any() for i in range(4) for j in range(i))
        assert (evaluate(equal, {"dropout_rng": jax.random.key(4)})[0] != means).any()
