import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxformer.config import (
    AdafactorConfig,
    AdamWConfig,
    LionConfig,
    MuonConfig,
    ScheduleConfig,
    SgdConfig,
)
from jaxformer.errors import ConfigError
from jaxformer.training import decay_mask, make_optimizer, make_schedule
from tests import option_sets
from tests.training import tiny


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ScheduleConfig(name="constant"), [2, 2, 2, 2, 2, 2]),
        (ScheduleConfig(name="constant", warmup_steps=10), [0, 1, 2, 2, 2, 2]),
        (
            ScheduleConfig(name="linear", warmup_steps=10, decay_steps=30, final_scale=0.5),
            [0, 1, 2, 1.5, 1, 1],
        ),
        (
            ScheduleConfig(name="cosine", warmup_steps=10, decay_steps=30, final_scale=0.0),
            [0, 1, 2, 1, 0, 0],
        ),
        (  # without warmup, it starts at the peak
            ScheduleConfig(name="cosine", decay_steps=20, final_scale=0.1),
            [2, 2 * (0.55 + 0.45 * 0.5**0.5), 1.1, 0.2, 0.2, 0.2],
        ),
        (
            ScheduleConfig(
                name="warmup_stable_decay",
                warmup_steps=5,
                decay_start=10,
                decay_steps=30,
                final_scale=0.2,
            ),
            [0, 2, 2, 1.2, 0.4, 0.4],
        ),
    ],
)
def test_schedule_has_its_value_at(config, expected):
    schedule = make_schedule(2.0, config)
    values = [float(schedule(step)) for step in (0, 5, 10, 20, 30, 1000)]
    np.testing.assert_allclose(values, expected, atol=1e-6)


def test_decay_needs_its_end():
    with pytest.raises(ConfigError, match="cosine schedule needs decay_steps, got none"):
        make_schedule(1.0, ScheduleConfig(name="cosine", warmup_steps=3))


def test_noam_is_the_formula_of_the_paper():
    """Vaswani et al. (2017), equation 3, whose steps count from 1."""
    width, warmup = 512, 4000
    schedule = make_schedule(
        (width * warmup) ** -0.5, ScheduleConfig(name="noam", warmup_steps=warmup)
    )
    steps = np.array([0, 1, 1999, 3998, 3999, 4000, 15_999, 99_999])
    count = steps + 1.0
    expected = width**-0.5 * np.minimum(count**-0.5, count * warmup**-1.5)
    values = [float(schedule(step)) for step in steps]
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert np.argmax(values) == 4  # the peak is at the end of the warmup
    np.testing.assert_allclose(jax.jit(schedule)(jnp.int32(1999)), expected[2], rtol=1e-6)


def test_decay_mask_takes_kernels_and_embeddings_of_a_scanned_model():
    params = tiny.state().params
    mask = decay_mask(params)
    flat = jax.tree_util.tree_leaves_with_path(mask)
    decayed = {jax.tree_util.keystr(path, simple=True, separator="/") for path, on in flat if on}
    layers = "stack/layers"
    assert decayed == {
        "embedding/embedding",
        *(f"{layers}/attention/{name}_kernel" for name in ("query", "key", "value", "output")),
        *(f"{layers}/feed_forward/{name}_kernel" for name in ("up", "down")),
    }


def test_decay_mask_leaves_biases_on_scores_and_scales_of_heads():
    mask = decay_mask(option_sets.random_params(option_sets.config("relative")))
    assert mask["positions"] == {"table": False}
    attention = mask["stack"]["layers"]["attention"]
    assert not attention["query_norm_scale"] and not attention["key_norm_scale"]


@pytest.mark.parametrize("config", [AdamWConfig, LionConfig])
def test_weight_decay_moves_only_what_the_mask_marks(config):
    optimizer = make_optimizer(
        config(learning_rate=0.5, weight_decay=0.1), ScheduleConfig(name="constant")
    )
    params = {"kernel": jnp.ones(3), "scale": jnp.ones(3)}
    zero = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(zero, optimizer.init(params), params)
    np.testing.assert_allclose(updates["kernel"], -0.05, rtol=1e-6)
    assert updates["scale"].tolist() == [0, 0, 0]


@pytest.mark.essential
def test_gradients_are_clipped_by_their_global_norm():
    """Adam forgets the gradient's scale, but not which step was how much larger."""

    def second_update(clip_norm):
        optimizer = make_optimizer(
            AdamWConfig(learning_rate=1.0, clip_norm=clip_norm, weight_decay=0.0),
            ScheduleConfig(name="constant"),
        )
        params = {"a": jnp.zeros(1), "b": jnp.zeros(1)}
        state = optimizer.init(params)
        for grads in ({"a": 3.0, "b": 4.0}, {"a": 0.3, "b": 0.4}):
            grads = {name: jnp.float32([value]) for name, value in grads.items()}
            updates, state = optimizer.update(grads, state, params)
        return float(updates["a"][0])

    def adam(g0, g1):
        mean = (0.9 * 0.1 * g0 + 0.1 * g1) / (1 - 0.9**2)
        square = (0.95 * 0.05 * g0**2 + 0.05 * g1**2) / (1 - 0.95**2)
        return -mean / (square**0.5 + 1e-8)

    assert second_update(0.0) == pytest.approx(adam(3.0, 0.3), rel=1e-5)
    assert second_update(1.0) == pytest.approx(adam(0.6, 0.3), rel=1e-5)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            SgdConfig(learning_rate=0.5, momentum=0.75, nesterov=True, clip_norm=0.0),
            optax.sgd(0.5, momentum=0.75, nesterov=True),
        ),
        (SgdConfig(learning_rate=0.5, momentum=0.0, clip_norm=0.0), optax.sgd(0.5)),
        (
            LionConfig(
                learning_rate=0.5, beta1=0.25, beta2=0.5, weight_decay=0.125, clip_norm=0.0
            ),
            optax.lion(0.5, b1=0.25, b2=0.5, weight_decay=0.125),
        ),
        (
            AdamWConfig(
                learning_rate=0.5, beta1=0.25, beta2=0.5, eps=1.0, weight_decay=0.125, clip_norm=0.0
            ),
            optax.adamw(0.5, b1=0.25, b2=0.5, eps=1.0, weight_decay=0.125),
        ),
        (
            AdafactorConfig(
                learning_rate=0.5, weight_decay=0.25, clip_threshold=1.25, momentum=0.5,
                relative_steps=False, decay_rate=0.75, clip_norm=0.0,
            ),
            optax.adafactor(
                0.5, multiply_by_parameter_scale=False, decay_rate=0.75, momentum=0.5,
                clipping_threshold=1.25, weight_decay_rate=0.25,
            ),
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
def test_optimizer_is_the_one_of_optax(config, expected):
    start, *gradients = np.random.default_rng(0).normal(size=(3, 130, 140)).astype(np.float32)
    updates = []
    for optimizer in (make_optimizer(config, ScheduleConfig(name="constant")), expected):
        params = {"kernel": jnp.asarray(start)}
        state = optimizer.init(params)
        for gradient in gradients:
            update, state = optimizer.update({"kernel": jnp.asarray(gradient)}, state, params)
            params = optax.apply_updates(params, update)
        updates.append(params["kernel"])
    np.testing.assert_allclose(updates[0], updates[1], rtol=1e-6)


@pytest.mark.essential
def test_muon_makes_the_steps_of_every_layers_kernel_orthogonal():
    """Jordan et al. (2024): singular values near 1, here times update_rms and the larger root."""
    gradient = np.random.default_rng(0).normal(size=(3, 6, 10))
    config = MuonConfig(learning_rate=0.5, weight_decay=0.25, nesterov=False, clip_norm=0.0)
    optimizer = make_optimizer(config, ScheduleConfig(name="constant"))
    params = {"up_kernel": jnp.ones((3, 6, 10)), "embedding": jnp.ones((6, 10)),
              "up_bias": jnp.ones((3, 10))}  # fmt: skip
    gradients = {name: jnp.full(leaf.shape, 1e3) for name, leaf in params.items()}
    gradients["up_kernel"] = jnp.float32(gradient)
    updates, _ = jax.jit(optimizer.update)(gradients, optimizer.init(params), params)
    step = -(np.asarray(updates["up_kernel"]) + 0.5 * 0.25) / (0.5 * 0.2 * np.sqrt(10))
    for layer in range(3):
        left, _, right = np.linalg.svd(gradient[layer], full_matrices=False)
        inner = left.T @ step[layer] @ right.T  # diagonal: the directions are the gradient's
        np.testing.assert_allclose(np.diag(inner), 1, atol=0.35)
        np.testing.assert_allclose(inner - np.diag(np.diag(inner)), 0, atol=1e-3)
    # All else is AdamW's, whose first step has the size of the learning rate, without decay.
    np.testing.assert_allclose(updates["embedding"], -0.5, rtol=1e-4)
    np.testing.assert_allclose(updates["up_bias"], -0.5, rtol=1e-4)
