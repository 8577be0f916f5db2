"""LoRA beside the weights of every family: what starts, what is trained, and what is merged."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util

from jaxformer.config import LoraConfig
from jaxformer.interop import load_huggingface
from jaxformer.training import combine_low_rank, low_rank_params, merge_low_rank
from tests.interop import ours
from tests.interop.golden import read_golden
from tests.interop.tables import VARIANTS

LORA = LoraConfig(rank=2, alpha=6.0, targets=("*",))
TOLERANCE = 1e-5  # of outputs of about 1, as for the golden files
# Gradients take seconds to compile: those of the other variants are slow.
OFTEN = ("roberta-classes", "gemma3_text-older", "qwen3_moe", "t5-gated")
# What a module adds to hidden states or scores, rather than multiplies them by.
TABLES = ("embedding", "output_embedding", "token_type_embedding", "table")

combine = functools.partial(combine_low_rank, scale=LORA.scale)


@functools.partial(
    jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0}
)
def output_of(model, params, tokens, given):
    return output(model.apply({"params": params}, *tokens, **given))


@functools.partial(
    jax.jit, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0}
)
def output_and_gradients(model, matrices, base, tokens, given):
    def loss(matrices):
        found = output(model.apply({"params": combine(matrices, base)}, *tokens, **given))
        return jnp.square(found - 1).mean(), found

    gradients, found = jax.grad(loss, has_aux=True)(matrices)
    return found, gradients


def output(result):
    """What a model predicts; of a base model the vector of a text, or its hidden states."""
    if result.logits is not None:
        return result.logits
    pooled = getattr(result, "pooled", None)
    return result.hidden if pooled is None else pooled


def mark(name):
    return name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=map(mark, VARIANTS))
def case(request, tmp_path_factory):
    """A model, its parameters, matrices beside all kernels, and what it is called with."""
    golden, folder = read_golden(request.param), tmp_path_factory.mktemp("base")
    golden.write(folder)
    loaded = load_huggingface(folder)
    draw = functools.partial(low_rank_params, rank=LORA.rank, targets=LORA.targets)
    matrices = jax.jit(draw)(loaded.params, jax.random.key(0))
    inputs = ours.arguments_of(VARIANTS[request.param].kind, golden.arrays)
    return loaded.model, loaded.params, matrices, inputs


@pytest.mark.thorough
def test_every_matrix_but_tables_is_a_target_and_the_default_ones_are_there(case):
    _, base, matrices, _ = case
    leaves = traverse_util.flatten_dict(base)
    adapted = {path[:-1] for path in traverse_util.flatten_dict(matrices)}
    of_layers = {"layers", "first_layers"}
    kernels = {path for path, leaf in leaves.items() if leaf.ndim - bool({*path} & of_layers) > 1}
    assert adapted == {path for path in kernels if path[-1] not in TABLES}
    default = LoraConfig(rank=2)
    chosen = jax.eval_shape(
        functools.partial(low_rank_params, rank=2, targets=default.targets), base, jax.random.key(0)
    )
    chosen = {path[:-1] for path in traverse_util.flatten_dict(chosen)}
    names = {"query_kernel", "value_kernel"}
    assert chosen == {path for path in adapted if path[-1] in names}
    assert {path[-1] for path in chosen} == names


@pytest.mark.thorough
def test_model_starts_as_its_base_and_a_step_changes_what_it_should(case):
    """The merged parameters of a step predict what matrices beside their base predict."""
    model, base, matrices, inputs = case
    before = output_of(model, base, *inputs)
    start, gradients = output_and_gradients(model, matrices, base, *inputs)
    jax.tree.map(np.testing.assert_array_equal, merge_low_rank(combine(matrices, base)), base)
    # XLA fuses a program with gradients in its own way.
    np.testing.assert_allclose(start, before, rtol=0, atol=2e-6)
    flat = traverse_util.flatten_dict(gradients)
    for path, gradient in flat.items():
        # "down" is multiplied by "up", which is zeros.
        assert np.isfinite(gradient).all() and (path[-1] == "down") != np.any(gradient), path
    biggest = max(float(jnp.abs(gradient).max()) for gradient in flat.values())
    moved = jax.tree.map(lambda leaf, change: leaf - 0.1 / biggest * change, matrices, gradients)
    beside, _ = output_and_gradients(model, moved, base, *inputs)
    assert float(jnp.abs(beside - before).max()) > 100 * TOLERANCE
    merged = merge_low_rank(combine(moved, base))
    np.testing.assert_allclose(
        output_of(model, merged, *inputs), beside, rtol=0, atol=TOLERANCE
    )  # fmt: skip
    others = traverse_util.flatten_dict(base)
    for path, leaf in traverse_util.flatten_dict(merged).items():
        assert np.array_equal(leaf, others[path]) == ((*path, "up") not in flat), path
