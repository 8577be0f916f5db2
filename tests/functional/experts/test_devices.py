"""Experts and tokens split over eight virtual devices, against one device."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from jaxformer.errors import ConfigError
from jaxformer.functional import ExpertsLayout, ExpertsParams, mixture_of_experts
from tests.functional.experts.small_experts import low_rank, normal

E, D, F, B, T = 4, 5, 6, 8, 4
KERNELS = {"up_kernel": (E, D, F), "gate_kernel": (E, D, F), "down_kernel": (E, F, D)}
BIASES = {"router_bias": (E,), "up_bias": (E, F), "gate_bias": (E, F), "down_bias": (E, D)}
PARAMS = ExpertsParams(
    router_kernel=normal(1, D, E),
    **{name: normal(seed, *shape) for seed, (name, shape) in enumerate((KERNELS | BIASES).items())},
)
X, MASK = normal(20, B, T, D), np.arange(B * T).reshape(B, T) % 5 > 0
BY_EXPERT = ExpertsLayout(("data", "expert"), expert_axis="expert", hidden_axes=("tensor",))
BY_TOKEN = ExpertsLayout(("data",), ("tensor",))
LAYOUTS = [((2, 2, 2), BY_EXPERT), ((1, 4, 2), BY_EXPERT), ((4, 1, 2), BY_TOKEN)]


def mesh_of(sizes):
    axes = ("data", "expert", "tensor")
    return jax.make_mesh(sizes, axes, axis_types=(AxisType.Auto,) * 3)


def evaluate(params, layout, capacity_factor):
    @functools.partial(jax.jit)
    @functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
    def loss(params, x):
        result = mixture_of_experts(
            params, x, num_experts_per_token=2, mask=jnp.asarray(MASK), layout=layout,
            capacity_factor=capacity_factor,
        )  # fmt: skip
        total = (result.output * normal(21, B, T, D)).sum() + result.load_balancing_loss
        return total + result.router_z_loss, result

    return loss(params, jnp.asarray(X))


@pytest.mark.parametrize("capacity_factor", [None, 4.0])
@pytest.mark.parametrize("kernels", [(), tuple(KERNELS)])
def test_experts_on_eight_devices_are_those_of_one(kernels, capacity_factor):
    params = low_rank(PARAMS, *kernels)
    with jax.enable_x64(True):
        expected = evaluate(params, None, capacity_factor)
        for sizes, layout in LAYOUTS if not kernels else LAYOUTS[:1]:
            with jax.set_mesh(mesh_of(sizes)):
                result = evaluate(params, layout, capacity_factor)
            chex.assert_trees_all_close(result, expected, rtol=1e-10, atol=1e-10)


def test_devices_exchange_tokens_up_to_the_capacity():
    def collectives(capacity_factor):
        call = functools.partial(
            mixture_of_experts, num_experts_per_token=2, layout=BY_EXPERT,
            capacity_factor=capacity_factor,
        )  # fmt: skip
        with jax.set_mesh(mesh_of((2, 4, 1))):
            program = str(jax.make_jaxpr(call)(PARAMS, X))
        return {name for name in ("all_to_all", "all_gather", "reduce_scatter") if name in program}

    assert collectives(1.0) == {"all_to_all"}
    assert collectives(None) == {"all_gather", "reduce_scatter"}


def test_drops_are_counted_on_all_devices():
    with jax.set_mesh(mesh_of((2, 4, 1))):
        _, result = evaluate(PARAMS, BY_EXPERT, 0.1)[0]
    # Each of eight devices has one row of four tokens, and each expert has room for one of them.
    chosen = np.argsort(-(X @ PARAMS.router_kernel + PARAMS.router_bias), axis=-1)[..., :2]
    num_kept = sum(np.unique(chosen[row][MASK[row]]).size for row in range(B))
    np.testing.assert_allclose(result.dropped, 1 - num_kept / (2 * MASK.sum()), rtol=1e-6)


@pytest.mark.parametrize(
    ("layout", "x", "message"),
    [
        (ExpertsLayout(("data",), expert_axis="expert"), X, "one of batch_axes or sequence_axes"),
        (ExpertsLayout(("data",)), X[0], r"must be \[B, T, D\], got shape \(4, 5\)"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(layout, x, message):
    with jax.set_mesh(mesh_of((2, 4, 1))), pytest.raises(ConfigError, match=message):
        mixture_of_experts(PARAMS, x, num_experts_per_token=2, layout=layout)
