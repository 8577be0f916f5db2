"""Training of the matrices of LoRA beside frozen weights, on every kind of runner."""

import functools

import chex
import jax
import numpy as np
import optax
import pytest
from flax import linen as nn

from jaxformer.config import LoopConfig, MeshConfig
from jaxformer.errors import ConfigError
from jaxformer.training import (
    Checkpoints,
    MeshRunner,
    SingleRunner,
    TrainingData,
    TrainState,
    Trial,
    combine_low_rank,
    decay_mask,
    fit,
    language_model_loss,
    low_rank_params,
    make_eval_step,
    make_train_step,
    merge_low_rank,
)
from tests.training import tiny

COMBINE = functools.partial(combine_low_rank, scale=2.0)
TARGETS = ("*query_kernel", "*value_kernel", "*feed_forward/up_kernel")
MESH = MeshConfig(data=2, fsdp=2)
RUNNERS = {
    "single": SingleRunner,
    "pmap": lambda: tiny.runner(2),
    "mesh": lambda: MeshRunner(MESH, jax.devices()[:4]),
}


@pytest.fixture(scope="module")
def base():
    return jax.device_get(tiny.init_params(jax.random.key(0)))


@pytest.fixture(scope="module")
def matrices(base):
    return low_rank_params(base, jax.random.key(1), rank=2, targets=TARGETS)


def test_matrices_are_those_of_plain_parameters_in_boxes_too(matrices):
    boxed = tiny.model().init(jax.random.key(0), np.zeros((1, 2), int))["params"]
    plain = nn.unbox(boxed)
    of_boxes = low_rank_params(boxed, jax.random.key(1), rank=2, targets=TARGETS)
    chex.assert_trees_all_equal(of_boxes, matrices)
    chex.assert_trees_all_equal(COMBINE(of_boxes, boxed), COMBINE(matrices, plain))


def data(steps=6):
    batches = [tiny.batch(step) for step in range(steps)]
    return TrainingData(batches, validation=lambda: [tiny.batch(99)])


def train(folder, base, matrices, steps=4, runner="single", loss=None, **loop):
    trial = Trial(
        loss or language_model_loss(tiny.model()), matrices, tiny.optimizer(), frozen=base,
        combine=COMBINE,
    )  # fmt: skip
    return fit(
        trial, data(), folder,
        LoopConfig(steps=steps, checkpoint_every=2, eval_every=2, log_every=1, **loop),
        runner=RUNNERS[runner](),
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory, base, matrices):
    """The folder and the result of four steps on one device."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, train(folder, base, matrices)


def test_model_starts_as_its_base_to_the_bit(base, matrices):
    step = jax.jit(make_eval_step(language_model_loss(tiny.model())))
    loss, _ = step(COMBINE(matrices, base), tiny.batch())
    assert float(loss) == float(step(base, tiny.batch())[0])


@pytest.mark.parametrize("runner", ["pmap", "mesh"])
def test_runners_train_alike_and_leave_the_base_as_it_is(tmp_path, trained, base, matrices, runner):
    copy, steps = jax.tree.map(jax.numpy.asarray, base), 4
    result = train(tmp_path, copy, matrices, runner=runner, accumulate_steps=2)
    chex.assert_trees_all_close(result.params, trained[1].params, rtol=2e-4, atol=1e-5)
    chex.assert_trees_all_equal(copy, base)
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), result.params, matrices)
    assert min(jax.tree.leaves(moved)) > 1e-3 and result.step == steps
    np.testing.assert_allclose(result.evaluation.loss, trained[1].evaluation.loss, rtol=1e-5)


def test_frozen_weights_are_an_argument_that_no_step_takes_away(base, matrices):
    runner, optimizer = SingleRunner(), tiny.optimizer()
    frozen = runner.place_frozen(jax.tree.map(jax.numpy.asarray, base))
    step = make_train_step(language_model_loss(tiny.model()), optimizer, seed=0, combine=COMBINE)
    state = runner.place(TrainState.create(matrices, optimizer))
    program = runner.compile_train(step)
    text = program.lower(state, runner.batch_template(tiny.batch()), frozen).as_text()
    assert max(len(line) for line in text.splitlines() if "stablehlo.constant" in line) < 400
    for _ in range(2):
        state, _ = program(state, tiny.batch(), frozen)
    chex.assert_trees_all_equal(frozen, base)
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(x)) for x in (state.opt_state, matrices)]
    assert sizes[0] <= 2 * sizes[1] + 3  # two moments of each, and counts


def test_resumed_training_is_the_same_and_checkpoints_have_the_matrices_alone(
    tmp_path, trained, base, matrices
):
    train(tmp_path, base, matrices, steps=2)
    result = train(tmp_path, base, matrices)
    chex.assert_trees_all_equal(result.params, trained[1].params)
    with Checkpoints(tmp_path / "checkpoints", read_only=True) as checkpoints:
        stored = checkpoints.restore_params(SingleRunner().template(matrices), 4)
    chex.assert_trees_all_equal(stored, result.params)  # which it compares, name by name


def test_merged_matrices_give_the_loss_of_the_validation(trained, base):
    step = jax.jit(make_eval_step(language_model_loss(tiny.model())))
    loss, weight = step(merge_low_rank(COMBINE(trained[1].params, base)), tiny.batch(99))
    np.testing.assert_allclose(loss / weight, trained[1].evaluation.loss, rtol=1e-5)


def test_frozen_and_combine_go_together(tmp_path, base, matrices):
    for options in ({"frozen": base}, {"combine": COMBINE}):
        with pytest.raises(ConfigError, match="frozen and combine go together, got"):
            loss = language_model_loss(tiny.model())
            trial = Trial(loss, matrices, optax.sgd(0.1), **options)
            fit(trial, data(), tmp_path, LoopConfig(steps=1))


def test_matrices_decay(matrices):
    assert all(jax.tree.leaves(decay_mask(matrices)))
    names = {"up_kernel": {"down": 0, "up": 0}, "down": 0, "norm": {"up": 0}}
    assert decay_mask(names) == {
        "up_kernel": {"down": True, "up": True}, "down": False, "norm": {"up": False}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": ("*queri_kernel",)}, r"'\*queri_kernel', which matches no kernel; .*query_k"),
        ({"targets": ("*embedding",)}, "which matches no kernel"),
        ({"rank": 9}, r"lora.rank must be at most .*, got 9 and stack/layers/attention/query_k"),
    ],
)
def test_impossible_targets_and_ranks_are_refused(base, changes, message):
    options = {"rank": 2, "targets": TARGETS} | changes
    with pytest.raises(ConfigError, match=message):
        low_rank_params(base, jax.random.key(0), **options)
