"""When JAX's Splash kernel is taken, and why not."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jaxformer.config import ModelConfig
from jaxformer.errors import ConfigError
from jaxformer.functional import attention_implementation, dot_product_attention, platforms
from jaxformer.functional.attention import program
from jaxformer.functional.sharding import is_one_device
from jaxformer.modules import MultiHeadAttention
from tests.functional import oracle
from tests.functional.attention import attention_cases as cases


def shapes(dtype=jnp.bfloat16, leading=(4,), num_tokens=1024):
    return [jax.ShapeDtypeStruct((*leading, num_tokens, 4, 16), dtype)] * 3


def on_a_tpu(monkeypatch, num_devices=1):
    monkeypatch.setattr(platforms, "default_platform", lambda: "tpu")
    monkeypatch.setattr(jax, "device_count", lambda: num_devices)


@pytest.mark.parametrize(
    ("num_tokens", "platform", "name", "reason"),
    [
        (1024, "tpu", "splash", None),
        (256, "tpu", "dense", "1,048,576 weights are no more than the 4,194,304"),
        (1024, "rocm", "dense", "needs a TPU, and the program is for rocm"),
        (1024, "cpu", "dense", "needs a TPU, and the program is for cpu"),
    ],
)
def test_auto_takes_splash_on_tpus(num_tokens, platform, name, reason, monkeypatch):
    arrays = shapes(num_tokens=num_tokens)
    assert (
        "the default backend is cpu"
        in (attention_implementation(*arrays, platform=platform).declined["splash"])
    )
    on_a_tpu(monkeypatch)
    implementation = attention_implementation(*arrays, is_causal=True, platform=platform)
    assert implementation.name == name
    assert set(implementation.declined) == {"dense", "chunked", "cudnn", "splash"} - {name}
    assert reason is None or reason in implementation.declined["splash"]


def test_auto_on_a_tpu_also_compiles_for_other_platforms(monkeypatch):
    on_a_tpu(monkeypatch)
    monkeypatch.setattr(program, "_MIN_SPLASH_WEIGHTS", 0)
    arrays = cases.inputs_of(cases.Sizes((), 128, 128, 2, 1, 16, 16))
    attend = jax.jit(functools.partial(dot_product_attention, is_causal=True))
    cases.assert_close(attend(**arrays), oracle.attention(**arrays, is_causal=True), 1e-6)
    for platform, kernels in (("tpu", 1), ("rocm", 0), ("cuda", 0)):
        text = export.export(attend, platforms=[platform])(**arrays).mlir_module()
        assert text.count("tpu_custom_call") == kernels


def test_splash_is_compiled_for_tpus_alone_and_has_no_forward_mode():
    arrays = cases.inputs_of(cases.Sizes((), 128, 128, 2, 1, 16, 8))
    attend = functools.partial(dot_product_attention, implementation="splash")
    gradient = jax.jit(jax.grad(lambda arrays: attend(**arrays).sum()))
    with pytest.raises(ValueError, match="interpret mode is supported on CPU"):
        gradient(arrays)
    exported = export.export(gradient, platforms=["tpu"])(arrays)
    assert exported.mlir_module().count("tpu_custom_call") == 3
    tangents = jax.jit(lambda arrays: jax.jvp(lambda a: attend(**a), [arrays], [arrays]))
    with pytest.raises(TypeError, match="forward-mode"):
        export.export(tangents, platforms=["tpu"])(arrays)


def test_splash_is_traced_within_pmap_and_is_declined_where_a_mesh_splits_it():
    attend = functools.partial(dot_product_attention, implementation="splash")
    x = jax.ShapeDtypeStruct((1, 128, 2, 16), np.float32)
    assert jax.eval_shape(jax.pmap(attend), x, x, x).shape == x.shape
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.PartitionSpec("data")
    for check, raises in ((False, False), (True, True)):
        mapped = jax.shard_map(attend, mesh=mesh, in_specs=split, out_specs=split, check_vma=check)
        if raises:
            with pytest.raises(ConfigError, match="give check_vma=False"):
                jax.eval_shape(mapped, x, x, x)
        else:
            assert jax.eval_shape(mapped, x, x, x).shape == x.shape
    two = jax.sharding.AbstractMesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    with jax.sharding.use_abstract_mesh(two), pytest.raises(ConfigError, match="{'data': 2}"):
        jax.eval_shape(attend, x, x, x)
    # Without jax.set_mesh, the mesh is that of the arguments.
    sharding = jax.sharding.NamedSharding(two, jax.sharding.PartitionSpec(None))
    x = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
    with pytest.raises(ConfigError, match="{'data': 2}"):
        jax.eval_shape(jax.jit(attend), x, x, x)


def test_auto_takes_splash_where_jit_cannot_split_the_program(monkeypatch):
    on_a_tpu(monkeypatch, num_devices=2)
    implementations = []

    def note(x):
        implementations.append(attention_implementation(x, x, x))
        return x

    x = jax.ShapeDtypeStruct((1, 2, 2048, 4, 16), jnp.bfloat16)
    jax.eval_shape(lambda x: (note(x[0]), jax.pmap(note)(x)), x)
    jitted, mapped = implementations
    assert "jit may split this program over devices" in jitted.declined["splash"]
    assert (jitted.name, mapped.name) == ("dense", "splash")


def test_program_for_a_mesh_of_devices_that_are_elsewhere_is_not_for_one(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert is_one_device()
    for size in (1, 2):
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((size,), ("data",))):
            assert is_one_device() == (size == 1)


def test_layer_with_learned_sinks_has_no_kernel_of_a_tpu(monkeypatch):
    on_a_tpu(monkeypatch)
    monkeypatch.setattr(program, "_MIN_SPLASH_WEIGHTS", 0)
    config = ModelConfig(
        max_len=128, num_layers=1, d_model=32, num_heads=4, num_kv_heads=2, positions="none"
    )
    x = jnp.asarray(cases.normal(2, 128, 32))
    for sinks, kernels in ((False, 3), (True, 0)):
        layer = MultiHeadAttention(dataclasses.replace(config, attention_sinks=sinks))
        params = layer.init(jax.random.key(0), x)

        def loss(params, x, layer=layer):
            return jnp.square(layer.apply(params, x).output).sum()

        exported = export.export(jax.jit(jax.grad(loss, (0, 1))), platforms=["tpu"])(params, x)
        assert exported.mlir_module().count("tpu_custom_call") == kernels
