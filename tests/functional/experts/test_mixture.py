import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jaxformer.functional import ExpertsParams, Routing, mixture_of_experts
from tests.functional.experts.small_experts import (
    BARE,
    GATED,
    MASK,
    PLAIN,
    D,
    E,
    X,
    arrays,
    normal,
    reference,
)

OPTIONS = ("num_experts_per_token", "activation")
jitted = jax.jit(mixture_of_experts, static_argnames=OPTIONS)


def assert_equal(result, expected, tolerance):
    chex.assert_trees_all_close(tuple(result), tuple(expected), rtol=tolerance, atol=tolerance)


# Six tokens: of one choice each they compute the chosen experts, of two and eleven all.
@pytest.mark.essential
@pytest.mark.parametrize("k", [1, 2, E])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("params", "activation"), [(GATED, "silu"), (PLAIN, "gelu"), (BARE, "relu")]
)
def test_mixture_equals_a_loop_over_tokens_and_their_experts(params, activation, normalize, k):
    routing = Routing(normalize_weights=normalize)
    options = {"activation": activation, "routing": routing, "num_experts_per_token": k}
    expected = reference(params, X, k, routing, activation, MASK)
    assert_equal(jitted(arrays(params), arrays(X), mask=MASK, **options), expected, 3e-5)
    with jax.enable_x64(True):
        result = jitted(params, X, mask=MASK, **options)
        chex.assert_type(tuple(result), np.float64)
        assert_equal(result, expected, 1e-12)


TWELVE = ExpertsParams(
    router_kernel=normal(1, D, 12), up_kernel=normal(3, 12, D, 7), down_kernel=normal(5, 12, 7, D),
    gate_kernel=normal(7, 12, D, 7), selection_bias=normal(8, 12),
)  # fmt: skip
SIGMOID = functools.partial(Routing, scores="sigmoid")


@pytest.mark.parametrize(
    ("routing", "k"),
    [
        (SIGMOID(), 5),
        (SIGMOID(normalize_weights=False, scale=2.5), 1),
        (SIGMOID(num_groups=4, num_groups_per_token=2), 3),
        (SIGMOID(num_groups=6, num_groups_per_token=1, scale=0.3), 2),
    ],
)
@pytest.mark.parametrize("has_bias", [True, False])
def test_sigmoid_routing_equals_a_loop_over_tokens_and_their_experts(routing, k, has_bias):
    params = TWELVE if has_bias else TWELVE._replace(selection_bias=None)
    options = {"routing": routing, "num_experts_per_token": k}
    expected = reference(params, X, k, routing, mask=MASK)
    assert_equal(jitted(arrays(params), arrays(X), mask=MASK, **options), expected, 3e-5)
    with jax.enable_x64(True):
        assert_equal(jitted(params, X, mask=MASK, **options), expected, 1e-12)


def test_selection_bias_changes_the_choice_and_no_weight_and_has_no_gradient():
    """A bias that prefers two experts; they keep the weights of their scores."""
    bias = np.where(np.isin(np.arange(12), (3, 8)), 5.0, 0.0)
    params = arrays(TWELVE._replace(selection_bias=bias))

    def loss(params):
        options = {"num_experts_per_token": 2, "routing": SIGMOID(normalize_weights=False)}
        result = mixture_of_experts(params, arrays(X), **options)
        return jnp.square(result.output).sum() + result.load_balancing_loss, result

    grads, result = jax.jit(jax.grad(loss, has_aux=True))(params)
    np.testing.assert_array_equal(result.expert_load, bias > 0)
    assert not grads.selection_bias.any() and grads.router_kernel.any()
    scores = jax.nn.sigmoid(X @ TWELVE.router_kernel)
    alone = [
        jitted(
            ExpertsParams(
                *[
                    jnp.float32(leaf[..., e : e + 1]) if i == 0 else leaf[e : e + 1]
                    for i, leaf in enumerate(arrays(TWELVE)[:4])
                ]
            ),
            arrays(X),
            num_experts_per_token=1,
        ).output
        for e in (3, 8)
    ]
    expected = scores[..., 3, None] * alone[0] + scores[..., 8, None] * alone[1]
    np.testing.assert_allclose(result.output, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("tokens", "k", "steps"), [(5, 2, 10), (10, 1, 10), (4, 3, E), (12, 1, E)])
def test_fewer_choices_than_experts_compute_the_chosen_alone(tokens, k, steps):
    call = functools.partial(mixture_of_experts, num_experts_per_token=k)
    program = str(jax.make_jaxpr(call)(arrays(GATED), jnp.ones((tokens, D))))
    assert f"length={steps}" in program
    assert program.count("length=") == 1


def never_chosen(value):
    """Parameters whose expert 3 no token chooses, and whose kernels and biases are all `value`."""
    bias = GATED.router_bias.copy()
    bias[3] = -1e9
    arrays_of_experts = {
        name: array.copy()
        for name, array in GATED._asdict().items()
        if "router" not in name and array is not None
    }
    for array in arrays_of_experts.values():
        array[3] = value
    return arrays(GATED._replace(router_bias=bias, **arrays_of_experts))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38])
@pytest.mark.parametrize(("k", "capacity_factor"), [(1, None), (2, None), (2, 8.0)])
def test_what_an_unchosen_expert_computes_reaches_no_output_and_no_gradient(
    k, capacity_factor, value
):
    @jax.jit
    def evaluate(params, x):
        def loss(params, x):
            options = {"num_experts_per_token": k, "capacity_factor": capacity_factor}
            result = mixture_of_experts(params, x, **options)
            return jnp.square(result.output).sum(), result

        return jax.grad(loss, argnums=(0, 1), has_aux=True)(params, x)

    expected = evaluate(never_chosen(0.0), arrays(X))
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(expected))
    chex.assert_trees_all_equal(evaluate(never_chosen(value), arrays(X)), expected)


def test_a_token_that_is_not_finite_breaks_its_own_experts_only():
    params, x = arrays(GATED), arrays(X).reshape(6, D)

    def loss(params, x, mask):
        result = mixture_of_experts(params, x, num_experts_per_token=2, mask=mask)
        auxiliary = result.load_balancing_loss + result.router_z_loss
        return jnp.where(mask[:, None], result.output, 0).sum() + auxiliary, result

    mask = np.arange(6) != 4
    evaluate = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    (grads, x_grad), result = evaluate(params, x.at[4].set(jnp.nan), mask)
    (expected, x_expected), clean = evaluate(params, x, mask)
    assert jnp.isnan(result.output[4]).all()
    np.testing.assert_array_equal(result.output[mask], clean.output[mask])
    np.testing.assert_array_equal(x_grad[mask], x_expected[mask])
    chex.assert_trees_all_equal(result[1:], clean[1:])
    broken = np.isnan(grads.up_kernel).any(axis=(1, 2))
    assert broken.sum() == 2  # the indices that top_k gives of NaN
    np.testing.assert_array_equal(grads.up_kernel[~broken], expected.up_kernel[~broken])


def test_without_a_real_token_the_losses_are_zero_and_so_is_their_gradient():
    def losses(params):
        mask = np.zeros((2, 3), bool)
        result = mixture_of_experts(params, arrays(X), num_experts_per_token=2, mask=mask)
        return result.load_balancing_loss + result.router_z_loss

    value, grads = jax.jit(jax.value_and_grad(losses))(arrays(GATED))
    assert value == 0
    assert not any(leaf.any() for leaf in jax.tree.leaves(grads))


def routed(router, k):
    """The mixture of tokens that are the rows of an identity matrix, so `router` is its logits."""
    kernel = np.zeros((E, E, 2), np.float32)
    params = ExpertsParams(np.float32(router), kernel, kernel.reshape(E, 2, E))
    return jitted(params, np.eye(E, dtype=np.float32), num_experts_per_token=k)


@pytest.mark.parametrize("k", [1, 3])
def test_load_balancing_loss_is_k_when_balanced_and_the_number_of_experts_when_collapsed(k):
    next_k = sum(np.roll(np.eye(E), shift, axis=1) for shift in range(k))
    balanced = routed(50 * next_k, k)
    np.testing.assert_allclose(balanced.load_balancing_loss, k, rtol=1e-6)
    np.testing.assert_allclose(balanced.expert_load, [k / E] * E, rtol=1e-6)
    collapsed = routed(50 * (np.ones((E, 1)) * (np.arange(E) >= E - k)), k)
    np.testing.assert_allclose(collapsed.load_balancing_loss, E, rtol=1e-6)
    np.testing.assert_allclose(collapsed.expert_load, np.arange(E) >= E - k, rtol=1e-6)


@pytest.mark.parametrize(("k", "dtype"), [(1, jnp.bfloat16), (2, jnp.float16)])
def test_output_has_the_dtype_of_x_and_the_losses_are_float32(k, dtype):
    x = arrays(X, dtype)
    result = jitted(arrays(GATED), x, num_experts_per_token=k)
    assert [leaf.dtype for leaf in result] == [dtype] + [jnp.float32] * 4
    expected = reference(GATED, np.asarray(x, np.float64), k)
    scale = np.abs(expected[0]).max()
    np.testing.assert_allclose(np.float64(result.output) / scale, expected[0] / scale, atol=0.02)
    assert_equal(result[1:], expected[1:], 1e-5)


def test_router_is_computed_in_float32():
    """Expert 4 is better by less than bfloat16 tells apart."""
    kernel = np.ones((D, E)) + 1e-4 * (np.arange(E) == 4)
    result = jitted(
        arrays(BARE._replace(router_kernel=kernel)), jnp.ones((7, D), jnp.bfloat16),
        num_experts_per_token=1,
    )  # fmt: skip
    np.testing.assert_array_equal(result.expert_load, np.arange(E) == 4)


@pytest.mark.parametrize("leading", [(), (0,), (3, 0, 2)])
def test_mixture_takes_any_leading_axes(leading):
    x = normal(12, *leading, D)
    result = jitted(arrays(GATED), arrays(x), num_experts_per_token=2)
    assert result.output.shape == x.shape
    if x.size:
        assert_equal(result, reference(GATED, x, 2), 3e-5)
    else:
        assert (result.load_balancing_loss, result.router_z_loss) == (0, 0)


def test_number_of_tokens_may_be_symbolic():
    batch, length = export.symbolic_shape("b, t")
    call = jax.jit(functools.partial(mixture_of_experts, arrays(GATED), num_experts_per_token=2))
    spec = jax.ShapeDtypeStruct((batch, length, D), jnp.float32)
    program = export.export(jax.jit(lambda x: tuple(call(x))))(spec)
    assert_equal(program.call(arrays(X)), reference(GATED, X, 2), 3e-5)


def test_backward_pass_keeps_the_activations_of_one_block():
    """Of all eleven experts, the activations would be 11 * 2 * 4 MiB."""
    wide, tokens = 512, 2048
    shapes = ExpertsParams((D, E), (E, D, wide), (E, wide, D), (E, D, wide))
    params = ExpertsParams(*[jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes if s])
    x = jax.ShapeDtypeStruct((tokens, D), jnp.float32)

    def loss(params, x):
        return jnp.square(mixture_of_experts(params, x, num_experts_per_token=2).output).sum()

    memory = jax.jit(jax.grad(loss)).lower(params, x).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 8 * tokens * wide * 4
