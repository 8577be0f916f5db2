"""A decoder small enough to train in a test, and batches for it."""

import jax
import numpy as np

from jaxformer.config import AdamWConfig, ModelConfig, ScheduleConfig
from jaxformer.models import Decoder
from jaxformer.training import (
    PmapRunner,
    SingleRunner,
    TrainState,
    language_model_loss,
    make_optimizer,
    make_train_step,
)

VOCAB, LENGTH, ROWS = 11, 6, 8


def model(dropout_rate=0.0):
    return Decoder(
        ModelConfig(
            vocab_size=VOCAB, max_len=LENGTH, num_layers=2, d_model=8, num_heads=2,
            layer_execution="scan", dropout_rate=dropout_rate,
        )
    )  # fmt: skip


def optimizer():
    return make_optimizer(
        AdamWConfig(learning_rate=1e-2), ScheduleConfig(name="constant", warmup_steps=2)
    )


def init_params(rng):
    return model().init_params(rng)


def state():
    return TrainState.create(init_params(jax.random.key(0)), optimizer())


def batch(step=0, rows=ROWS):
    tokens = np.random.default_rng(step).integers(0, VOCAB, (rows, LENGTH + 1), dtype=np.int32)
    return {"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}


def runner(devices):
    return SingleRunner() if devices == 1 else PmapRunner(jax.local_devices()[:devices])


def train_step(runner, *, accumulate_steps=1):
    step = make_train_step(
        language_model_loss(model()), optimizer(), seed=3, accumulate_steps=accumulate_steps,
        axis_name=runner.axis_name,
    )  # fmt: skip
    return runner.compile_train(step)


def run(runner, step, batches):
    """Trains over the batches and returns (state on the host, list of metrics on the host)."""
    current, metrics = runner.place(state()), []
    for batch in batches:
        current, measured = step(current, batch)
        metrics.append(jax.device_get(measured))
    return jax.device_get(current), metrics
