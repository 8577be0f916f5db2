"""Bad numbers in training: they change nothing, end the run, and are named."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxformer.config import LoopConfig
from jaxformer.errors import TrainingError
from jaxformer.training import (
    PmapRunner,
    SingleRunner,
    TrainState,
    make_train_step,
)
from tests.training import saved, test_fit

RUNNERS = {1: SingleRunner, 2: lambda: PmapRunner(jax.local_devices()[:2])}
OPTIMIZER = optax.adam(0.1)


def loss(params, batch, rng):
    """Squared error of rows with "x"."""
    error = batch["x"] * params["first"] + params["second"] - 1
    return (error**2).sum(), jnp.float32(error.size)


def start():
    return {"first": jnp.ones((1, 3)), "second": jnp.zeros((1, 3))}


def batch(step, bad=()):
    x = np.random.default_rng(step).normal(size=(8, 3)).astype(np.float32)
    x[list(bad), 1] = np.nan
    return {"x": x}


class Batches:
    """Batches by step, some rows of which are NaN."""

    def __init__(self, bad):
        self.bad = bad

    def __getitem__(self, step):
        return batch(step, self.bad.get(step, ()))


def train(folder, bad, *, devices=1, **options):
    loop = LoopConfig(steps=6, log_every=2, eval_every=2, checkpoint_every=2)
    return test_fit.train(
        folder, loop=loop, batches=Batches(bad), loss=loss, init_params=start(),
        optimizer=OPTIMIZER, runner=RUNNERS[devices](), **options,
    )  # fmt: skip


@pytest.mark.essential
@pytest.mark.parametrize("devices", [1, 2])
def test_a_bad_step_ends_the_run_and_names_the_learning_rate(tmp_path, devices):
    with pytest.raises(TrainingError) as raised:
        train(tmp_path, {2: (5,)}, devices=devices, learning_rate=lambda step: 1000.0 * (step + 5))
    assert str(raised.value) == (
        "loss or gradient is not finite at step 3; the run is saved up to step 2; unless the batch "
        "is bad, the likeliest cause is the learning rate, 7000 at this step: lower it, or the "
        "norm to which gradients are clipped, and choose another folder"
    )


def test_a_bad_step_and_those_after_it_change_nothing():
    runner = SingleRunner()
    step = runner.compile_train(make_train_step(loss, OPTIMIZER, seed=0))
    state = runner.place(TrainState.create(start(), OPTIMIZER))
    before = jax.device_get(step(state, batch(0))[0])
    state = runner.place(before)
    for bad in (True, True, False):
        state, metrics = step(state, batch(1, (0,) if bad else ()))
        assert int(metrics["bad_step"]) == 1
    saved.assert_same(state._replace(bad_step=-1), before)


def test_a_bad_validation_loss_ends_the_run(tmp_path):
    batches = [batch(100), batch(101, (3,))]
    message = "validation loss is not finite at step 2; the run is saved up to step 0; unless"
    with pytest.raises(TrainingError, match=message):
        train(tmp_path, {}, validation=lambda: batches)
