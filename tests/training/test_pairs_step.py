"""Training steps of an encoder-decoder on pairs of unequal lengths."""

import jax
import numpy as np
import pytest

from jaxformer.config import ModelConfig
from jaxformer.models import EncoderDecoder
from jaxformer.text import BucketedBatches
from jaxformer.training import SingleRunner, TrainState, language_model_loss
from tests.training import tiny

# No biases: that of keys has no gradient but rounding, which Adam would make steps of.
MODEL = EncoderDecoder(
    ModelConfig(
        architecture="encoder_decoder", vocab_size=tiny.VOCAB, max_len=7, num_layers=1, d_model=8,
        num_heads=2, layer_execution="loop", use_bias=False,
    )
)  # fmt: skip


def example(source_length, length):
    rng = np.random.default_rng([source_length, length])
    draw = rng.integers(1, tiny.VOCAB, source_length + length, dtype=np.int32)
    target = draw[source_length:]
    return {
        "source_tokens": draw[:source_length],
        "tokens": np.insert(target[:-1], 0, 0),
        "labels": target,
        "source_lengths": np.array(source_length, np.int32),
        "lengths": np.array(length, np.int32),
    }


# Five rows, of which a batch for 8 devices is filled up to 8: three of them have no real one.
EXAMPLES = [example(2 + i, 7 - i) for i in range(5)]
BATCHES = BucketedBatches(EXAMPLES, batch_tokens=7 * 8, seed=1, multiple_of=8, num_buckets=1)
STEPS = [BATCHES[step] for step in range(3)]


def real_rows(batch):
    keep = (batch["labels"] >= 0).any(axis=1)
    return {name: array[keep] for name, array in batch.items()}


@pytest.fixture(scope="module")
def start():
    """Parameters of the model's shapes, drawn without compiling anything."""
    tokens, rng = np.zeros((1, 2), np.int32), np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: MODEL.init(jax.random.key(0), tokens, tokens))["params"]
    params = jax.tree.map(lambda leaf: rng.normal(0, 0.3, leaf.shape).astype(np.float32), shapes)
    return jax.device_get(TrainState.create(params, tiny.optimizer()))


def test_eight_devices_and_rows_that_fill_up_equal_one_device_without_them(start):
    assert {(len(batch["labels"]), len(real_rows(batch)["labels"])) for batch in STEPS} == {(8, 5)}
    runner = tiny.runner(8)
    step = tiny.train_step(runner, loss=language_model_loss(MODEL))
    state, metrics = tiny.run(runner, step, STEPS, start)
    single = SingleRunner()
    step = tiny.train_step(single, loss=language_model_loss(MODEL))
    expected, expected_metrics = tiny.run(single, step, map(real_rows, STEPS), start)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), state.params, expected.params
    )
    for ours, theirs, batch in zip(metrics, expected_metrics, STEPS, strict=True):
        assert ours["weight"] == theirs["weight"] == (batch["labels"] >= 0).sum()
        np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=1e-5)
        np.testing.assert_allclose(ours["grad_norm"], theirs["grad_norm"], rtol=1e-5)
    for path, before in jax.tree.leaves_with_path(start.params):
        if "kernel" in jax.tree_util.keystr(path):
            (after,) = (x for p, x in jax.tree.leaves_with_path(state.params) if p == path)
            assert np.abs(after - before).max() > 1e-3
