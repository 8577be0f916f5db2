"""The moving average of the parameters: what it is, and where it takes their place."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxformer.config import LoopConfig, MeshConfig
from jaxformer.errors import CheckpointError
from jaxformer.training import (
    Checkpoints,
    MeshRunner,
    PmapRunner,
    SingleRunner,
    TrainingData,
    TrainState,
    Trial,
    fit,
    make_train_step,
)
from tests.training import saved

DECAY = 0.75  # a plain mean of four steps, and then no more
OPTIMIZER = optax.adam(0.3)
FROZEN = {"query_kernel": np.float32([[1.0], [0.0], [-1.0], [2.0]])}


def batch(step):
    x = np.random.default_rng(step).normal(size=(8, 4)).astype(np.float32)
    return {"x": x, "y": x.sum(1, keepdims=True)}


def loss(params, batch, dropout_rng):
    error = batch["x"] @ params["query_kernel"].astype(jnp.float32) - batch["y"]
    return (error**2).sum(), jnp.float32(error.size)


def start():
    return {"query_kernel": jnp.zeros((4, 1)), "constant": jnp.full(2, 0.1, "float32")}


def train(folder, steps, *, decay=DECAY, **options):
    data = TrainingData([batch(step) for step in range(6)], validation=lambda: [batch(99)])
    loop = LoopConfig(steps=steps, eval_every=3, checkpoint_every=3, average_decay=decay)
    trial = Trial(loss, start(), OPTIMIZER)
    return fit(trial, data, folder, loop, **{"runner": SingleRunner()} | options)


def restored(folder):
    return saved.restored(folder, start(), OPTIMIZER, SingleRunner(), averages=True)


def validation_loss(params):
    total, count = loss(params, batch(99), None)
    return float(total / count)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder and the result of six steps."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, train(folder, 6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_average_is_the_recursion_over_the_parameters(dtype):
    step = make_train_step(loss, OPTIMIZER, seed=0, average_decay=DECAY)
    program = SingleRunner().compile_train(step)
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), start())
    constant = np.float32(params["constant"])
    state = SingleRunner().place(TrainState.create(params, OPTIMIZER, averages=True))
    expected = np.zeros((4, 1))
    for index in range(8):
        state, _ = program(state, batch(index))
        share = max(1 - DECAY, 1 / (index + 1))
        expected += share * (np.float64(state.params["query_kernel"]) - expected)
    assert state.average["query_kernel"].dtype == np.float32
    # XLA may average parameters that it has not rounded to bfloat16 yet.
    rtol = {"float32": 1e-6, "bfloat16": 2**-8}[dtype]
    np.testing.assert_allclose(state.average["query_kernel"], expected, rtol=rtol)
    np.testing.assert_array_equal(state.average["constant"], constant)
    assert float(jnp.abs(state.average["query_kernel"] - state.params["query_kernel"]).max()) > 1e-2
    assert state.evaluated["query_kernel"].dtype == dtype


def test_resumed_training_is_bitwise_the_uninterrupted_one(tmp_path, trained):
    folder, whole = trained
    train(tmp_path, 4)
    result = train(tmp_path, 6)
    saved.assert_same(restored(tmp_path), restored(folder))
    saved.assert_same(result.params, whole.params)
    assert result.evaluation == whole.evaluation


@pytest.mark.essential
def test_validation_result_and_checkpoint_have_the_average(trained):
    folder, result = trained
    state = restored(folder)
    with Checkpoints(folder / "checkpoints", read_only=True) as checkpoints:
        opened = checkpoints.restore_params(SingleRunner().template(start()), 6)
        narrow = jax.tree.map(lambda leaf: leaf.astype("bfloat16"), start())
        rounded = checkpoints.restore_params(SingleRunner().template(narrow), 6)
    for params in (opened, result.params):
        saved.assert_same(params, state.average)
    assert rounded["query_kernel"].dtype == "bfloat16"
    assert result.evaluation.loss == pytest.approx(validation_loss(state.average), rel=1e-5)
    assert result.evaluation.loss != pytest.approx(validation_loss(state.params), rel=1e-2)


def test_scores_and_result_combine_the_average_with_what_is_frozen():
    seen = []
    data = TrainingData(
        [batch(step) for step in range(3)], validation=lambda: [batch(99)],
        scores=lambda params: seen.append(params) or {},
    )  # fmt: skip
    trial = Trial(
        loss, {"query_kernel": start()["query_kernel"]}, OPTIMIZER, frozen=FROZEN,
        combine=lambda params, frozen: jax.tree.map(jnp.add, params, frozen),
    )  # fmt: skip
    loop = LoopConfig(steps=3, average_decay=DECAY)
    result = fit(trial, data, None, loop, runner=SingleRunner())
    np.testing.assert_array_equal(
        seen[0]["query_kernel"], result.params["query_kernel"] + FROZEN["query_kernel"]
    )
    assert result.evaluation.loss == pytest.approx(validation_loss(seen[0]), rel=1e-5)


def test_mesh_splits_the_average_as_the_parameters_and_has_that_of_pmap(trained):
    mesh = MeshRunner(MeshConfig(data=1, fsdp=2), jax.devices()[:2])
    states = []
    for runner in (mesh, PmapRunner(jax.devices()[:2])):
        step = make_train_step(
            loss, OPTIMIZER, seed=0, average_decay=DECAY, axis_name=runner.axis_name
        )
        program = runner.compile_train(step)
        state = runner.create(lambda p: TrainState.create(p, OPTIMIZER, averages=True), (start(),))
        state, _ = program(state, batch(0))
        with jax.no_tracing():  # the second step is the same program
            for number in range(1, 6):
                state, _ = program(state, batch(number))
        for name, leaf in state.params.items():
            assert state.average[name].sharding == leaf.sharding
        states.append(state)
    assert states[0].average["query_kernel"].addressable_data(0).shape == (2, 1)
    np.testing.assert_allclose(
        states[0].average["query_kernel"], states[1].average["query_kernel"], rtol=1e-5
    )
    np.testing.assert_allclose(
        states[1].average["query_kernel"], trained[1].params["query_kernel"], rtol=1e-5
    )


def averaged(step):
    state = saved.state(step)
    return state._replace(average=jax.tree.map(lambda leaf: leaf + 1, state.params))


def test_checkpoint_without_an_average_is_not_resumed_with_one(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(averaged(3))
        checkpoints.wait()
        saved.assert_same(checkpoints.restore(averaged(0)), averaged(3))
        checkpoints.save(saved.state(4))
        checkpoints.wait()
        with pytest.raises(CheckpointError, match="4, average: .* is missing, the model expects"):
            checkpoints.restore(averaged(0))
