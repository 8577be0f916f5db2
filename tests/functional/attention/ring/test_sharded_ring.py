"""Ring attention of global arrays on a mesh, alone and in a model."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from jaxformer.config import ModelConfig, RotaryConfig
from jaxformer.functional import (
    AlibiBias,
    Prefix,
    RelativeBias,
    RingLayout,
    Rule,
    Segments,
    Window,
    alibi_slopes,
    cross_entropy,
    dot_product_attention,
    from_ring_order,
    ring_attention,
    sharded_ring_attention,
    to_ring_order,
)
from jaxformer.models import Decoder
from tests.functional.attention.attention_cases import QUICK, assert_close, normal

B, T = 4, 24


@pytest.fixture(scope="module")
def mesh():
    devices = np.array(jax.devices()).reshape(2, 2, 2)
    return jax.sharding.Mesh(devices, ("data", "sequence", "tensor"))


IDS = np.sort(np.random.default_rng(0).integers(0, 3, (B, T), np.int32))
KEYWORDS = {
    "is_causal": True, "query_seq_lengths": 22,
    "key_value_seq_lengths": np.array([T, 20, 0, 7], np.int32),
    "query_segment_ids": IDS, "key_value_segment_ids": IDS,
}  # fmt: skip
FIRST = np.array([3, 0, 9, 20], np.int32)[:, None, None, None]
RULE = Rule(lambda query, key, first, few: key * few[1] >= first, (FIRST, np.array([0, 1])))
CASES = {
    "keywords": (KEYWORDS, None),
    "prefix": ({"mask": Prefix(np.array([5, 0, T, 13]))}, None),
    "rules, alibi": (
        {"mask": (RULE | Segments(IDS)) & ~Window(8, 3, FIRST.ravel())}, AlibiBias(alibi_slopes(4))
    ),
    "relative": ({"is_causal": True}, RelativeBias(normal(8, 4, seed=9), max_distance=16)),
}  # fmt: skip


@pytest.mark.essential
@pytest.mark.parametrize("case", CASES)
def test_sharded_ring_and_its_gradient_equal_one_device(mesh, case):
    (options, bias), in_ring_order = CASES[case], case != "rules, alibi"
    shapes = (B, T, 4, 3), (B, T, 2, 3), (B, T, 2, 5), (B, T, 4, 5)
    arrays = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]

    def evaluate(attend, arrays, bias, options):
        *inputs, cotangent = arrays
        static = {k: v for k, v in KEYWORDS.items() if isinstance(v, int) and k in options}
        output, pull = jax.vjp(lambda *inputs: attend(*inputs, **options | static), *inputs, bias)
        return output, *pull(cotangent)

    layout = RingLayout(
        mesh=mesh, batch_axes="data", head_axes=("tensor",), in_ring_order=in_ring_order
    )
    ring = functools.partial(sharded_ring_attention, layout=layout)

    def ordered(x, order=to_ring_order):
        return order(x, 2) if in_ring_order and np.shape(x)[:2] == (B, T) else x

    evaluate_on = functools.partial(jax.jit, compiler_options=QUICK, static_argnums=0)
    got = evaluate_on(evaluate)(ring, *jax.tree.map(ordered, (arrays, bias, options)))
    expected = evaluate_on(evaluate)(dot_product_attention, arrays, bias, options)
    assert got[0].sharding.spec[:3] == ("data", "sequence", "tensor")
    leaves = zip(*map(jax.tree.leaves, (got, expected)), strict=True)
    for i, (result, value) in enumerate(leaves):
        assert_close(ordered(np.asarray(result), from_ring_order), value, 1e-5 if i else 1e-6)


def test_sharded_ring_drops_other_weights_on_each_device(mesh):
    ones = np.ones((B, T, 2, 3), np.float32)
    layout = RingLayout(mesh=mesh, batch_axes="data", head_axes="tensor")
    attend = functools.partial(sharded_ring_attention, layout=layout, dropout_rate=0.5)
    attend = jax.jit(attend, compiler_options=QUICK)
    output = attend(ones, ones, ones, dropout_rng=jax.random.key(0))
    rows = {np.asarray(shard.data).tobytes() for shard in output.addressable_shards}
    assert len(rows) == 8


def test_ring_takes_lengths_and_keys_of_dropout_that_differ_over_other_axes(mesh):
    x = [normal(2, T, 2, 3, seed=seed) for seed in range(3)]
    lengths = np.array([[T, 7], [9, T]], np.int32)  # of the two devices of "data", 2 rows each

    def attend(query, key, value, lengths, rate):
        index = jax.lax.axis_index("data")
        output = ring_attention(
            query, key, value, axis_name="sequence", key_value_seq_lengths=lengths[0],
            dropout_rate=rate, dropout_rng=jax.random.fold_in(jax.random.key(0), index),
        )  # fmt: skip
        return output[None]

    split, results = PartitionSpec(None, "sequence"), []
    for rate in (0.0, 0.5):
        mapped = jax.shard_map(
            functools.partial(attend, rate=rate), mesh=mesh,
            in_specs=(split, split, split, PartitionSpec("data")),
            out_specs=PartitionSpec("data", None, "sequence"),
        )  # fmt: skip
        ordered = [to_ring_order(array, 2) for array in x]
        results.append(np.asarray(jax.jit(mapped, compiler_options=QUICK)(*ordered, lengths)))
    for result, of_data in zip(results[0], lengths, strict=True):
        expected = dot_product_attention(*x, key_value_seq_lengths=of_data)
        assert_close(from_ring_order(result, 2), expected, 1e-6)
    assert not np.allclose(results[1][0], results[1][1])


@pytest.mark.slow
def test_a_model_with_its_sequence_on_a_ring_has_the_loss_and_gradient_of_one_device(mesh):
    config = ModelConfig(
        vocab_size=11, max_len=T, num_layers=1, d_model=8, num_heads=4, num_kv_heads=2,
        positions=RotaryConfig(), local_window_size=9, dropout_rate=0.0,
    )  # fmt: skip
    tokens = np.random.default_rng(1).integers(0, 11, (B, T + 1), np.int32)
    batch = {
        "tokens": tokens[:, :-1],
        "labels": tokens[:, 1:],
        "positions": np.broadcast_to(np.arange(T, dtype=np.int32), (B, T)),
        "segment_ids": np.sort(np.random.default_rng(2).integers(0, 3, (B, T), np.int32)),
    }

    def loss_of(model):
        def loss(params, batch):
            labels = batch["labels"]
            inputs = {name: array for name, array in batch.items() if name != "labels"}
            logits = model.apply({"params": params}, **inputs).logits
            return cross_entropy(logits, labels)[0]

        return jax.jit(jax.value_and_grad(loss), compiler_options=QUICK)

    plain = Decoder(config)
    params = plain.init_params(jax.random.key(0))
    layout = RingLayout(mesh=mesh, batch_axes="data")
    attend = functools.partial(sharded_ring_attention, layout=layout)
    split = NamedSharding(mesh, PartitionSpec("data", "sequence"))
    on_ring = jax.device_put(jax.tree.map(lambda x: to_ring_order(x, 2), batch), split)
    replicated = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
    got = loss_of(Decoder(config, attention_fn=attend))(replicated, on_ring)
    expected = loss_of(plain)(params, batch)
    assert float(got[0]) == pytest.approx(float(expected[0]), rel=1e-6)
    for gradient, value in zip(*map(jax.tree.leaves, (got[1], expected[1])), strict=True):
        np.testing.assert_allclose(gradient, value, rtol=1e-4, atol=1e-5 * jnp.abs(value).max())
