"""JAX's Splash kernel, interpreted on the CPU, against the oracle; and when it is compiled."""

import functools
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jaxformer.config import ModelConfig
from jaxformer.functional import Causal, Lengths, Prefix, Rule, Window, dot_product_attention
from jaxformer.functional.attention.kernels import splash
from jaxformer.modules import AttentionContext, Stack
from tests.functional.attention import attention_cases as cases

ROOT = pathlib.Path(__file__).parents[3]
SPLASH = {"implementation": "splash"}
PADDED = cases.Sizes(
    (), 130, 150, 2, 1, 11, 13
)  # two blocks of queries and of keys, both partly padding
rng = np.random.default_rng(7)
SEGMENTS = {
    "query_segment_ids": rng.integers(0, 3, (2, 130)).astype(np.int8),
    "key_value_segment_ids": rng.integers(1, 5, (2, 150)).astype(np.int8),
    "query_seq_lengths": np.array([120, 7]),
    "key_value_seq_lengths": np.array([140, 0]),
}
CASES = {
    "causal, unlike widths": (cases.Sizes((), 160, 160, 2, 1, 16, 8), {}, {"is_causal": True}),
    "whole lanes": (cases.Sizes((), 128, 128, 2, 2, 128, 128), {}, {"is_causal": True}),
    "all keys": (cases.Sizes((), 128, 128, 1, 1, 16, 16), {}, {"scale": 0.3}),
    "window, cap and offset": (
        PADDED,
        {},
        {"local_window_size": (20, 10), "query_offset": 30, "softcap": 2.0},
    ),
    "first queries see nothing": (
        PADDED,
        {},
        {"is_causal": True, "query_offset": -30, "softcap": 1.5},
    ),
    "no query sees a key": (PADDED, {}, {"is_causal": True, "query_offset": -500}),
    "sides beyond 32 bits": (
        cases.Sizes((2, 1), 128, 128, 4, 2, 8, 8),
        {},
        {"local_window_size": (2**31 - 1, 2**31 - 1)},
    ),
    "segments and lengths": (PADDED._replace(leading=(2,)), SEGMENTS, {}),
}
RULES = {
    "prefix": Prefix(40, offset=20),
    "function": Rule(lambda query, key: (query - key) % 3 > 0) & Causal(20) & ~Lengths(keys=9),
    "sink and window, rows": (Window(20, 0, 15) | Lengths(keys=3)) & Causal(15) & Lengths(
        np.array([120, 7]), np.array([140, 2])
    ),
}  # fmt: skip


@pytest.fixture
def interpreted(monkeypatch):
    """Runs the kernel on the CPU, in blocks of 128."""
    monkeypatch.setattr(splash, "_INTERPRET", True)
    monkeypatch.setattr(splash, "_LARGEST_BLOCK", 128)
    splash._kernel.cache_clear()
    yield
    splash._kernel.cache_clear()


@pytest.mark.essential
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_splash_equals_the_reference(case):
    sizes, options, static = case
    cases.assert_equals_the_reference(sizes, options, static | SPLASH)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", RULES)
def test_splash_with_a_rule_equals_dense_with_its_array(name):
    sizes, rule = PADDED._replace(leading=(2,)), RULES[name]
    inputs, output, gradients = cases.run(sizes, {"mask": rule}, SPLASH)
    array = np.asarray(rule.array(sizes.T, sizes.S, sizes.leading))
    expected = cases.run(sizes, {"mask": array}, {"implementation": "dense"})[1:]
    cases.assert_close(output, expected[0], 1e-6)
    for name, gradient in expected[1].items():
        cases.assert_close(gradients[name], gradient, 1e-5)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", ["first queries see nothing", "segments and lengths"])
def test_splash_rows_without_keys_are_zero_and_unseen_nan_changes_nothing(name):
    sizes, options, static = CASES[name]
    rows, keys = cases.unattended(sizes, options, static)
    assert rows.any() and keys.any()

    def outcome(poison):
        inputs = cases.inputs_of(sizes)
        for name in ("key", "value"):
            inputs[name][keys] = poison
        return cases.run(sizes, options, static | SPLASH, inputs)[1:]

    output, gradients = outcome(0)
    assert (output[rows] == 0).all() and (output[~rows] != 0).all()
    assert (gradients["query"][rows] == 0).all()
    assert (gradients["key"][keys] == 0).all() and (gradients["value"][keys] == 0).all()
    cases.assert_same_bits(outcome(np.nan), (output, gradients))


@pytest.mark.usefixtures("interpreted")
def test_splash_in_bfloat16_is_close_to_float32():
    sizes = CASES["causal, unlike widths"][0]
    inputs = cases.inputs_of(sizes, jnp.bfloat16)
    exact = cases.run(
        sizes, {}, {"is_causal": True}, {n: a.astype(np.float32) for n, a in inputs.items()}
    )
    _, output, gradients = cases.run(sizes, {}, {"is_causal": True} | SPLASH, inputs)
    assert output.dtype == jnp.bfloat16
    cases.assert_close(output, exact[1], 2**-8)
    for name, gradient in gradients.items():
        cases.assert_close(gradient, exact[2][name], 2**-6)


@pytest.fixture
def no_traced_kernels():
    """The program of a stand-in stays in no cache, and no earlier program replaces it."""
    splash._attend.clear_cache()
    yield
    splash._attend.clear_cache()


@pytest.mark.usefixtures("no_traced_kernels")
def test_widths_that_do_not_fill_lanes_are_not_the_last_axis_of_a_kernel(monkeypatch):
    from jax.experimental.pallas.ops.tpu import splash_attention as kernels

    built = []
    monkeypatch.setattr(splash, "_kernel", splash._kernel.__wrapped__)
    monkeypatch.setattr(kernels, "BlockSizes", lambda **sizes: built.append(sizes))

    def of_zeros(*arguments, **options):
        return lambda query, key, value, *_: jnp.zeros((*query.shape[:-1], value.shape[-1]))

    monkeypatch.setattr(kernels, "make_splash_mha_single_device", of_zeros)
    for width, value_width in ((64, 128), (128, 192)):
        query, value = (jax.ShapeDtypeStruct((128, 3, n), "float32") for n in (width, value_width))
        attend = functools.partial(dot_product_attention, **SPLASH)
        assert jax.eval_shape(attend, query, query, value).shape == value.shape
    layouts = [[sizes[f"{name}_layout"] for name in "qkv"] for sizes in built]
    last, not_last = kernels.QKVLayout.HEAD_DIM_MINOR, kernels.QKVLayout.SEQ_MINOR
    assert layouts == [[not_last, not_last, last], [last, last, not_last]]


def test_functional_does_not_import_pallas():
    code = "import sys, jaxformer.functional; print('jax.experimental.pallas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(("remat", "kernels"), [("none", 3), ("dots", 3), ("full", 4)])
def test_backward_pass_of_remat_dots_does_not_attend_again(remat, kernels):
    stack = Stack(
        ModelConfig(
            max_len=128, num_layers=1, d_model=32, num_heads=2, positions="none", remat=remat,
            attention_implementation="splash",
        )
    )  # fmt: skip
    x, context = jnp.asarray(cases.normal(1, 128, 32)), AttentionContext()
    variables = jax.eval_shape(lambda: stack.init(jax.random.key(0), x, context))

    def loss(variables, x):
        return (stack.apply(variables, x, context).x ** 2).sum()

    exported = export.export(jax.jit(jax.grad(loss, (0, 1))), platforms=["tpu"])(variables, x)
    assert exported.mlir_module().count("tpu_custom_call") == kernels


PROGRAM = """
import functools, json, sys
import jax, jax.numpy as jnp
jax.config.update("jax_platforms", "cpu")
from jax.experimental import topologies
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxformer.functional import dot_product_attention, sharded_attention
name, shapes = json.loads(sys.argv[1])
devices = topologies.get_topology_desc(platform="tpu", topology_name=name).devices
sharding = jax.sharding.SingleDeviceSharding(devices[0])
options = dict(is_causal=True, implementation="splash")
def loss(*arrays):
    return dot_product_attention(*arrays, **options).astype(jnp.float32).sum()
programs = []
for shape in shapes:
    x = jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)
    program = jax.jit(jax.value_and_grad(loss, (0, 1, 2))).lower(x, x, x).compile()
    temporaries = program.memory_analysis().temp_size_in_bytes
    programs.append([program.as_text().count("tpu_custom_call"), temporaries])
axes = (AxisType.Auto,) * 2
mesh = jax.make_mesh((2, 2), ("data", "tensor"), axis_types=axes, devices=devices)
split = NamedSharding(mesh, PartitionSpec("data", None, "tensor"))
x = jax.ShapeDtypeStruct(shapes[0], jnp.bfloat16, sharding=split)
def split_loss(*arrays):
    options = dict(is_causal=True, implementation="splash", batch_axes="data", head_axes="tensor")
    return sharded_attention(*arrays, **options).astype(jnp.float32).sum()
with jax.set_mesh(mesh):
    text = jax.jit(jax.grad(split_loss, (0, 1, 2))).lower(x, x, x).compile().as_text()
print(json.dumps([programs, text.count("tpu_custom_call"), text.count("all-")]))
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
@pytest.mark.parametrize("name", ["v5e:2x2", "v5p:2x2x1", "v6e:2x2"])
def test_splash_is_compiled_for_tpus_in_memory_linear_in_the_length(name):
    # In a process of its own, since libtpu reads its environment when it is loaded.
    # At 4,096 tokens, much of it fits into the chip.
    many = [[8, 1024, 12, 64], [1, 4096, 8, 64], [8, 8192, 12, 64], [8, 32_768, 12, 64]]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([name, many])],
        capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": "", "TPU_SKIP_MDS_QUERY": "1",
             "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"},
    )  # fmt: skip
    figures, kernels_on_mesh, messages = json.loads(done.stdout.splitlines()[-1])
    *_, short, long = figures
    assert (kernels_on_mesh, messages) == (3, 0)  # nothing moves between devices
    assert all(kernels >= 3 for kernels, _ in figures)  # forward, queries, keys and values
    assert long[1] <= 4.5 * short[1]
