import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxformer.config import ModelConfig
from jaxformer.functional import Products, cross_entropy
from jaxformer.models import Decoder, SequenceClassifier
from jaxformer.training import (
    PmapRunner,
    SingleRunner,
    TrainState,
    language_model_loss,
    losses,
    make_train_step,
)
from tests.training import tiny

BATCHES = [tiny.batch(step) for step in range(3)]


@pytest.fixture(scope="module")
def reference():
    """Three steps on one device, without accumulation or dropout."""
    runner = SingleRunner()
    return tiny.run(runner, tiny.train_step(runner), BATCHES)


@pytest.mark.essential
def test_step_equals_optax_on_the_mean_loss(reference):
    """The gradient of the mean over the whole batch, straight from its definition."""

    def mean_loss(params, batch):
        logits = tiny.model().apply({"params": params}, batch["tokens"]).logits
        labels = batch["labels"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    optimizer, params = tiny.optimizer(), tiny.state().params

    @jax.jit
    def step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(mean_loss)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss, optax.tree.norm(grads)

    opt_state, losses, norms = jax.jit(optimizer.init)(params), [], []
    for batch in BATCHES:
        params, opt_state, loss, norm = step(params, opt_state, batch)
        losses.append(loss)
        norms.append(norm)
    state, metrics = reference
    chex.assert_trees_all_close(state.params, params, rtol=1e-7, atol=2e-6)
    np.testing.assert_allclose([m["loss"] for m in metrics], losses, rtol=1e-6)
    np.testing.assert_allclose([m["grad_norm"] for m in metrics], norms, rtol=1e-5)
    assert state.step == 3 and metrics[0]["weight"] == tiny.ROWS * tiny.LENGTH


@pytest.fixture(scope="module")
def compiled():
    """The step of so many devices and micro-batches, the same for all tests."""

    @functools.cache
    def step(devices, accumulate_steps):
        runner = tiny.runner(devices)
        return runner, tiny.train_step(runner, accumulate_steps=accumulate_steps)

    return step


@pytest.mark.parametrize(
    ("devices", "accumulate_steps"),
    [(1, 4), (8, 1), (2, 2)],
)
def test_devices_and_micro_batches_change_no_result_and_the_second_step_does_not_compile_again(
    reference, compiled, devices, accumulate_steps
):
    runner, step = compiled(devices, accumulate_steps)
    state, first = step(runner.place(tiny.state()), BATCHES[0])
    with jax.no_tracing():
        state, second = step(state, BATCHES[1])
        state, third = step(state, BATCHES[2])
    chex.assert_trees_all_close(state.params, reference[0].params, rtol=1e-7, atol=2e-6)
    for metrics, expected in zip((first, second, third), reference[1], strict=True):
        chex.assert_trees_all_close(metrics, expected, rtol=1e-5)


@pytest.mark.parametrize(("devices", "accumulate_steps"), [(1, 4), (8, 1)])
def test_metrics_of_a_loss_are_divided_by_its_weight(devices, accumulate_steps):
    def loss(params, batch, rng):
        rows = batch["x"] * params
        return (rows**2).sum(), rows.size, {"mean": rows.sum(), "size": jnp.float32(rows.size)}

    runner, batch = tiny.runner(devices), {"x": np.arange(8.0, dtype=np.float32)}
    step = runner.compile_train(
        make_train_step(
            loss, optax.sgd(0.0), seed=0, accumulate_steps=accumulate_steps,
            axis_name=runner.axis_name,
        )
    )  # fmt: skip
    state = TrainState.create(jnp.float32(2), optax.sgd(0.0))
    _, metrics = step(runner.place(state), batch)
    values = {name: float(np.ravel(metrics[name])[0]) for name in ("loss", "mean", "size")}
    assert values == {"loss": 4 * (np.arange(8) ** 2).mean(), "mean": 7.0, "size": 1.0}


@pytest.mark.parametrize(
    ("total", "weight", "mean", "dtype"),
    [(0.25, 0.5, 0.5, "float32"), (2.0**15, 2.0**17, 0.25, "float16")],
)
def test_gradient_is_divided_by_any_weight(total, weight, mean, dtype):
    """By one below 1, and by one that float16 does not hold."""

    def loss(params, batch, rng):
        return total * params.sum() + batch.sum(), jnp.float32(weight)

    state = TrainState.create(jnp.zeros((), dtype), optax.sgd(1.0))
    step = jax.jit(make_train_step(loss, optax.sgd(1.0), seed=0))
    state, metrics = step(state, jnp.array([weight]))
    assert (float(state.params), float(metrics["loss"])) == (-mean, 1.0)


def test_uneven_padding_changes_nothing(compiled):
    """Rows that are padding, all on some devices, leave loss and update as they are."""
    real = tiny.batch(0, rows=3)
    padded = {
        "tokens": np.concatenate([real["tokens"], np.full((5, tiny.LENGTH), 7, np.int32)]),
        "labels": np.concatenate([real["labels"], np.full((5, tiny.LENGTH), -1, np.int32)]),
    }
    runner = SingleRunner()
    alone, alone_metrics = tiny.run(runner, tiny.train_step(runner), [real])
    together, metrics = tiny.run(*compiled(8, 1), [padded])
    chex.assert_trees_all_close(together.params, alone.params, rtol=1e-7, atol=2e-6)
    np.testing.assert_allclose(metrics[0]["loss"], alone_metrics[0]["loss"], rtol=1e-6)
    assert metrics[0]["weight"] == 3 * tiny.LENGTH


def test_dropout_differs_by_step_micro_batch_and_device():
    """The loss is a draw from the rng, so equal draws would show as equal losses."""

    def draw(params, batch, rng):
        return jax.random.uniform(rng) * batch["x"].sum() + 0 * params.sum(), jnp.float32(1)

    def draws(runner, accumulate_steps):
        step = make_train_step(
            draw, optax.sgd(0.0), seed=0, accumulate_steps=accumulate_steps,
            axis_name=runner.axis_name,
        )  # fmt: skip
        compiled = runner.compile_train(step)
        losses = []
        for row in range(2):
            state = runner.place(TrainState.create(jnp.ones(2), optax.sgd(0.0)))
            for _ in range(2):
                state, metrics = compiled(state, {"x": np.eye(2, dtype=np.float32)[row]})
                losses.append(round(float(metrics["loss"] * metrics["weight"]), 6))
        return losses

    assert len(set(draws(SingleRunner(), 2))) == 4  # two micro-batches, two steps
    assert len(set(draws(PmapRunner(jax.local_devices()[:2]), 1))) == 4  # two devices, two steps


def test_infinite_gradient_of_a_finite_loss_is_bad_too():
    def loss(params, batch, rng):
        return jnp.sqrt(params).sum(), jnp.float32(1)

    runner = SingleRunner()
    step = runner.compile_train(make_train_step(loss, optax.sgd(0.1), seed=0))
    state = runner.place(TrainState.create(jnp.zeros(1), optax.sgd(0.1)))
    state, metrics = step(state, {"x": np.zeros(1)})
    assert float(metrics["loss"]) == 0 and int(metrics["bad_step"]) == 0
    assert state.params.tolist() == [0.0]


@pytest.mark.parametrize("tied", [True, False])
def test_loss_of_many_logits_is_made_in_chunks_and_the_same(tied, monkeypatch):
    config = ModelConfig(
        vocab_size=tiny.VOCAB, max_len=tiny.LENGTH, num_layers=1, d_model=8, num_heads=2,
        logit_softcap=2.0, logit_scale=0.5, output_bias=True, tied_embeddings=tied, init_std=0.5,
    )  # fmt: skip
    model, batch = Decoder(config), tiny.batch()
    batch["labels"][0, 3] = -1
    params = model.init_params(jax.random.key(0))
    called, original = [], losses.chunked_cross_entropy

    def chunked(*args, **options):
        called.append(options)
        return original(*args, **options, chunk_size=7)

    monkeypatch.setattr(losses, "chunked_cross_entropy", chunked)

    def value_and_gradient():
        function = jax.value_and_grad(language_model_loss(model, z_loss=0.25), has_aux=True)
        return jax.jit(lambda params, batch: function(params, batch, None))(params, batch)

    whole = value_and_gradient()
    assert not called
    monkeypatch.setattr(losses, "_MAX_LOGITS", batch["labels"].size * tiny.VOCAB - 1)
    in_chunks = value_and_gradient()
    options = {"label_smoothing": 0.0, "z_loss": 0.25, "softcap": 2.0}
    assert called == [options | {"products": Products()}]
    for got, expected in zip(jax.tree.leaves(in_chunks), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_label_smoothing_is_in_the_training_loss():
    params, batch = tiny.state().params, tiny.batch()
    loss, weight = language_model_loss(tiny.model(), label_smoothing=0.3)(params, batch, None)
    logits = tiny.model().apply({"params": params}, batch["tokens"]).logits
    expected, count = cross_entropy(logits, batch["labels"], label_smoothing=0.3)
    assert float(loss) == pytest.approx(float(expected), rel=1e-6) and weight == count


def test_loss_of_token_classes_counts_each_token_that_has_a_label():
    config = ModelConfig(
        architecture="encoder", vocab_size=5, num_classes=3, pooling="none", max_len=4,
        num_layers=1, d_model=4, num_heads=2,
    )  # fmt: skip
    model, tokens, lengths = SequenceClassifier(config), np.array([[1, 2, 3], [4, 0, 0]]), [3, 1]
    labels = np.array([[2, -1, 0], [1, -1, -1]])
    params = model.init_params(jax.random.key(0))
    batch = {"tokens": tokens, "lengths": jnp.array(lengths), "labels": labels}
    total, count = losses.classification_loss(model)(params, batch, None)
    output = model.apply({"params": params}, tokens, lengths=batch["lengths"])
    logits = np.asarray(output.logits, np.float64)[labels >= 0]
    nats = np.logaddexp.reduce(logits, axis=-1) - logits[np.arange(3), labels[labels >= 0]]
    assert float(total) == pytest.approx(nats.sum(), rel=1e-5) and int(count) == 3
