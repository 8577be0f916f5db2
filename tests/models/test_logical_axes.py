"""Logical axis names of parameters, which `init` returns and `init_params` leaves out."""

import dataclasses

import chex
import jax
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict
from jax.sharding import PartitionSpec

from jaxformer.config import ExpertsConfig, LayerConfig, ModelConfig, SamplingConfig
from jaxformer.inference import generate
from jaxformer.models import Decoder
from jaxformer.modules import BlockOutput
from jaxformer.training.parallel.placement import partition_specs

CONFIG = ModelConfig(
    vocab_size=12, max_len=16, num_layers=3, d_model=8, num_heads=4, num_kv_heads=2, d_ff=20,
    activation="swiglu", positions="learned", qk_norm=True,
)  # fmt: skip
EXPERTS = dataclasses.replace(
    CONFIG,
    experts=ExpertsConfig(
        num_experts=4, num_experts_per_token=2, num_shared_experts=3, shared_gate=True
    ),
    first_layers=(LayerConfig(attention_norm=False, experts=False),), tied_embeddings=False,
)  # fmt: skip
TOKENS = np.array([[1, 2, 3, 4, 5]])
SIZES = {"data": 1, "fsdp": 2, "expert": 2, "sequence": 1, "tensor": 2}
RULES = (
    ("vocab", "tensor"), ("heads", "tensor"), ("kv", "tensor"), ("mlp", "tensor"),
    ("experts", "expert"), ("embed", "fsdp"),
)  # fmt: skip


def specs_of(model):
    variables = jax.eval_shape(model.init, jax.random.key(0), TOKENS)
    return nn.get_partition_spec(variables)["params"]


@pytest.mark.parametrize("execution", ["scan", "loop"])
def test_init_names_the_axes_of_parameters(execution):
    specs = specs_of(Decoder(dataclasses.replace(EXPERTS, layer_execution=execution)))
    layers = specs["stack"]["layers"]
    for tree, names in (
        (specs["embedding"]["embedding"], ("vocab", "embed")),
        (specs["positions"]["embedding"], ("positions", "embed")),
        (specs["stack"]["first_layers"]["attention"]["key_bias"], ("layers", "kv")),
        (layers["attention"]["query_kernel"], ("layers", "embed", "heads")),
        (layers["attention"]["output_kernel"], ("layers", "heads", "embed")),
        (layers["feed_forward"]["gate_kernel"], ("layers", "experts", "embed", "mlp")),
        (layers["feed_forward"]["router_kernel"], ("layers", "embed", None)),
        (layers["feed_forward"]["shared"]["gate_kernel"], ("layers", "embed", "mlp")),
        (layers["feed_forward"]["shared_weight_kernel"], ("layers", "embed", None)),
        (layers["attention_norm"]["scale"], ("layers", "norm")),
    ):
        assert tree == PartitionSpec(*names)


@pytest.mark.parametrize("config", [CONFIG, EXPERTS], ids=["feed_forward", "experts"])
def test_names_split_kernels_and_tables_as_the_rules_of_a_mesh_do(config):
    model = Decoder(dataclasses.replace(config, positions="none"))
    by_name = flatten_dict(nn.logical_to_mesh(specs_of(model), RULES))
    shapes = jax.eval_shape(model.init_params, jax.random.key(0))
    by_path = flatten_dict(partition_specs(shapes, SIZES))
    assert by_name.keys() == by_path.keys()
    for path, spec in by_path.items():
        is_narrow = path[-1] in ("router_kernel", "shared_weight_kernel")
        if path[-1].endswith(("kernel", "embedding")) and not is_narrow:
            assert by_name[path] == spec, path


def test_models_take_parameters_with_names_or_without():
    model = Decoder(dataclasses.replace(CONFIG, layer_execution="scan"))
    named = jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]
    plain = model.init_params(jax.random.key(0))
    assert isinstance(named["embedding"]["embedding"], nn.LogicallyPartitioned)
    chex.assert_trees_all_equal(nn.unbox(named), plain)
    options = {"max_new_tokens": 3, "rng": jax.random.key(1)}
    rows = [
        generate(model, params, [[1, 2]], **options, sampling=SamplingConfig(temperature=0))
        for params in (named, plain)
    ]
    chex.assert_trees_all_equal(*rows)


def test_parameters_of_a_users_own_module_need_no_names():
    class Plain(nn.Module):
        config: ModelConfig

        @nn.compact
        def __call__(self, x, context, **options):
            return BlockOutput(nn.Dense(8)(x))

    for execution in ("scan", "loop"):
        model = Decoder(dataclasses.replace(CONFIG, layer_execution=execution), block=Plain)
        assert specs_of(model)["stack"]["layers"]["Dense_0"]["kernel"] == PartitionSpec()
        assert model.init_params(jax.random.key(0))["stack"]["layers"]["Dense_0"]["bias"].any() == 0
