"""Every way to group the rows of experts, against the same reference."""

import functools
import sys
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType

from jaxformer.errors import ConfigError
from jaxformer.functional import Routing, mixture_of_experts
from jaxformer.functional.experts import grouped
from jaxformer.functional.platforms import compiling_for
from tests.functional.experts.small_experts import (
    GATED,
    PLAIN,
    D,
    E,
    X,
    arrays,
    low_rank,
    normal,
    reference,
)

TOKENS = normal(13, 3, 29, D)  # 87, in blocks of 32 rows if they make two choices each
MANY = 8.0  # a capacity that no expert exceeds
GROUPINGS = ("blocks", "ragged", "buckets")
ONE_DEVICE = AbstractMesh((1,), ("device",), axis_types=(AxisType.Auto,))


@pytest.fixture(params=GROUPINGS)
def mixture(request, monkeypatch):
    """`mixture_of_experts` with one way of grouping."""
    if request.param == "buckets":
        return functools.partial(mixture_of_experts, capacity_factor=MANY)
    platform = {"blocks": "cpu", "ragged": "tpu"}[request.param]
    monkeypatch.setattr(grouped, "by_platform", lambda programs: programs[platform]())

    def compute(*arguments, **options):
        with jax.sharding.use_abstract_mesh(ONE_DEVICE):
            return mixture_of_experts(*arguments, **options)

    return compute


@pytest.mark.parametrize("k", [1, 2, E])
@pytest.mark.parametrize("params", [GATED, PLAIN])
def test_each_grouping_equals_a_loop_over_tokens_and_their_experts(mixture, params, k):
    with jax.enable_x64(True):
        result = jax.jit(functools.partial(mixture, num_experts_per_token=k))(params, TOKENS)
        chex.assert_trees_all_close(
            tuple(result), reference(params, TOKENS, k), rtol=1e-11, atol=1e-11
        )


def all_experts(params, x, mask, k, normalize):
    """Output of k experts per token, the others weighted by 0, and the auxiliary losses."""
    logits = x @ params.router_kernel + params.router_bias
    chosen = logits >= jnp.sort(logits, axis=-1)[..., -k][..., None]
    probabilities = jax.nn.softmax(logits)
    weights = jnp.where(chosen, probabilities, 0)
    weights /= weights.sum(axis=-1, keepdims=True) if normalize else 1
    up = jnp.einsum("...d,edf->...ef", x, params.up_kernel) + params.up_bias
    gate = jnp.einsum("...d,edf->...ef", x, params.gate_kernel) + params.gate_bias
    outputs = jnp.einsum("...ef,efd->...ed", jax.nn.silu(gate) * up, params.down_kernel)
    output = jnp.einsum("...e,...ed->...d", weights, outputs + params.down_bias)
    load = chosen[mask].astype(x.dtype).mean(axis=0)
    load_balancing = E * (load * probabilities[mask].mean(axis=0)).sum()
    z_loss = jnp.square(jax.nn.logsumexp(logits[mask], axis=-1)).mean()
    return output, load_balancing, z_loss


@pytest.mark.essential
@pytest.mark.parametrize(
    ("k", "normalize", "length"),
    [(1, True, 29), (1, False, 29), (2, True, 29), (2, False, 29), (2, False, 1)],
)
def test_each_grouping_has_the_gradient_of_all_experts(mixture, k, normalize, length):
    x = TOKENS[:, :length]  # of three tokens, each block is one choice
    mask = np.arange(3 * length).reshape(3, length) % 5 > 0
    cotangent = normal(14, *x.shape) * mask[..., None]

    def sparse(params, x, mask):
        options = {"num_experts_per_token": k, "routing": Routing(normalize_weights=normalize)}
        return mixture(params, x, mask=mask, **options)[:3]

    def gradients(function):
        def loss(params, x):
            output, load_balancing, z_loss = function(params, x, mask)
            return jnp.square(output * cotangent).sum() + 3 * load_balancing + 5 * z_loss

        return jax.jit(jax.grad(loss, argnums=(0, 1)))(GATED, x)

    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        expected = gradients(functools.partial(all_experts, k=k, normalize=normalize))
    with jax.enable_x64(True):
        chex.assert_trees_all_close(gradients(sparse), expected, rtol=1e-9, atol=1e-9)


def test_ties_go_to_the_lower_index_and_experts_may_be_empty(mixture):
    params = GATED._replace(router_kernel=np.zeros((D, E)), router_bias=None)
    result = jax.jit(functools.partial(mixture, num_experts_per_token=2))(
        arrays(params), arrays(TOKENS)
    )
    np.testing.assert_array_equal(result.expert_load, [1.0] * 2 + [0.0] * (E - 2))
    expected = reference(params, TOKENS, 2)[0]
    if result.dropped:  # two experts have room for 8 shares of 11 each
        expected = np.where(np.any(result.output, axis=-1, keepdims=True), expected, 0)
    np.testing.assert_allclose(result.output, expected, rtol=3e-5, atol=3e-5)


def test_kernels_of_low_rank_equal_merged_ones(mixture):
    names = ("up_kernel", "gate_kernel", "down_kernel")
    params = low_rank(GATED, *names)
    with jax.enable_x64(True):
        compute = jax.jit(functools.partial(mixture, num_experts_per_token=2))
        merged = params._replace(**{name: getattr(params, name).merge() for name in names})
        result, expected = compute(params, TOKENS), compute(merged, TOKENS)
    chex.assert_trees_all_close(result, expected, rtol=1e-9, atol=1e-9)


def test_choices_beyond_the_capacity_are_dropped_and_counted():
    """All tokens choose experts 0 and 1, in this order, so each has room for 2 * 6 / 11 tokens."""
    params = GATED._replace(router_kernel=np.zeros((D, E)), router_bias=-np.arange(float(E)))
    mask = np.array([[False, True, True], [True, True, False]])
    compute = functools.partial(mixture_of_experts, arrays(params), arrays(X), mask=mask)
    full = compute(num_experts_per_token=2)
    for factor, room in ((0.1, 1), (1.0, 2), (2.0, 3), (9.0, 6)):
        result = compute(num_experts_per_token=2, capacity_factor=factor)
        routed = mask & (np.cumsum(mask).reshape(2, 3) <= room)  # padding takes no room
        np.testing.assert_allclose(result.output[routed], full.output[routed], rtol=1e-5, atol=1e-5)
        assert not result.output[~routed].any()
        np.testing.assert_allclose(result.dropped, 1 - routed.sum() / mask.sum(), rtol=1e-6)
        chex.assert_trees_all_equal(result[1:-1], full[1:-1])
    assert full.dropped == 0


def test_first_choices_are_kept_before_second_ones():
    """Two tokens choose experts (0, 1) and (1, 0); each expert has room for one."""
    params = arrays(GATED._replace(router_kernel=np.eye(D, E) * [3, 3, *[0] * 9], router_bias=None))
    x = jnp.eye(2, D) + 0.1 * jnp.eye(2, D)[::-1]
    routing = Routing(normalize_weights=False)
    options = {"routing": routing, "num_experts_per_token": 2}
    result = mixture_of_experts(params, x, capacity_factor=2.5, **options)  # ceil(2.5 * 4 / 11)
    first = mixture_of_experts(params, x, num_experts_per_token=1, routing=routing)
    np.testing.assert_allclose(result.output, first.output, rtol=1e-5, atol=1e-5)
    assert result.dropped == 0.5


@pytest.mark.parametrize("factor", [0, -1.0, "much", jnp.zeros(()), jnp.ones(2)])
def test_capacity_is_a_positive_number(factor):
    with pytest.raises(ConfigError, match="capacity_factor must be .*"):
        mixture_of_experts(
            arrays(GATED), arrays(X), num_experts_per_token=2, capacity_factor=factor
        )


def test_only_tpus_get_the_grouped_product_of_xla():
    """XLA computes it as a dense product of all experts elsewhere."""
    traced = jax.jit(functools.partial(mixture_of_experts, num_experts_per_token=2))
    with jax.sharding.use_abstract_mesh(ONE_DEVICE):
        traced = traced.trace(arrays(GATED), arrays(TOKENS))
    texts = {
        platform: traced.lower(lowering_platforms=(platform,)).as_text()
        for platform in ("cpu", "cuda", "rocm", "tpu")
    }
    assert [name for name, text in texts.items() if "ragged_dot" in text] == ["tpu"]
    assert [name for name, text in texts.items() if "while" not in text] == ["tpu"]


def test_gpus_use_the_grouped_product_of_tokamax_if_it_is_installed(monkeypatch):
    """A stand-in, since tokamax needs a GPU; the import is all that this shows."""
    calls = []

    def ragged_dot(rows, kernels, sizes, *, precision, implementation):
        calls.append((rows.dtype.name, implementation))
        return jax.lax.ragged_dot(rows, kernels, sizes)

    module = types.ModuleType("tokamax")
    module.__spec__ = types.SimpleNamespace(name="tokamax")
    module.ragged_dot = ragged_dot
    monkeypatch.setitem(sys.modules, "tokamax", module)
    monkeypatch.setattr(grouped.jax, "default_backend", lambda: "gpu")
    compute = functools.partial(mixture_of_experts, num_experts_per_token=2)
    with compiling_for("cuda"), jax.sharding.use_abstract_mesh(ONE_DEVICE):
        for dtype in (jnp.float32, jnp.bfloat16):
            jax.make_jaxpr(compute)(arrays(GATED, dtype), arrays(TOKENS, dtype))
    assert calls == [("bfloat16", ("mosaic", "triton"))] * 3
