import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import CheckpointError
from jaxformer.training import Checkpoints, PmapRunner
from tests.training import saved, tiny


@pytest.fixture
def state():
    return PmapRunner(jax.local_devices()[:2]).place(tiny.state())


def at(state, step):
    return state._replace(
        step=jnp.int32(step), params=jax.tree.map(lambda leaf: leaf + step, state.params)
    )


def test_latest_and_best_are_kept(tmp_path, state):
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        for step, loss in ((1, 3.0), (2, 1.0), (3, None), (4, 2.0), (5, 2.5)):
            checkpoints.save(at(state, step), validation_loss=loss)
        checkpoints.wait()
        assert checkpoints.latest_step == 5 and checkpoints.best_step == 2
    steps = sorted(int(p.name) for p in tmp_path.iterdir() if p.name.isdigit())
    assert steps == [2, 5]


@pytest.mark.essential
def test_restored_state_is_bitwise_the_saved_one(tmp_path, state):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(at(state, 7))
    with Checkpoints(tmp_path) as checkpoints:
        restored = checkpoints.restore(state)
    jax.tree.map(np.testing.assert_array_equal, restored, at(state, 7))
    kernel = restored.params["embedding"]["embedding"]
    assert kernel.sharding == state.params["embedding"]["embedding"].sharding


@pytest.mark.essential
def test_parameters_load_alone_and_from_any_step(tmp_path, state):
    with Checkpoints(tmp_path) as checkpoints:
        for step, loss in ((1, 1.0), (2, 2.0)):
            checkpoints.save(at(state, step), validation_loss=loss)
        checkpoints.wait()
        best = checkpoints.restore_params(state.params)
        second = checkpoints.restore_params(state.params, step=2)
    jax.tree.map(np.testing.assert_array_equal, best, at(state, 1).params)
    jax.tree.map(np.testing.assert_array_equal, second, at(state, 2).params)


def test_missing_checkpoints_are_named(tmp_path, state):
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(CheckpointError, match="has no checkpoint; train"):
            checkpoints.restore(state)
        checkpoints.save(at(state, 3))
        checkpoints.wait()
        with pytest.raises(CheckpointError, match=r"no checkpoint of step 4, only \[3\]"):
            checkpoints.restore_params(state.params, step=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda leaf: jnp.zeros((*leaf.shape, 2)), "expects"),
        (lambda leaf: leaf.astype(jnp.bfloat16), "bfloat16"),
    ],
)
def test_other_shapes_and_dtypes_are_refused(tmp_path, state, change, message):
    """Orbax would cast or pad without a word."""
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(state)
        checkpoints.wait()
        with pytest.raises(CheckpointError, match=message):
            checkpoints.restore_params(jax.tree.map(change, state.params), step=0)


def test_leftovers_of_an_interrupted_save_go_with_the_next_one(tmp_path, state):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(at(state, 1))
    leftover = tmp_path / "2.orbax-checkpoint-tmp"
    leftover.mkdir()
    # To a reader they may be a save in progress.
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        assert checkpoints.latest_step == 1
        checkpoints.restore_params(state.params)
    assert leftover.exists()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(at(state, 2))
    assert not leftover.exists() and (tmp_path / "2").is_dir()


def test_an_old_checkpoint_that_a_killed_training_has_left_is_removed_by_the_next(tmp_path):
    saved.save(tmp_path, 1, 2, 3)  # and killed before it removed the first
    with Checkpoints(tmp_path, keep=2, read_only=True):
        pass
    assert saved.steps(tmp_path) == ["1", "2", "3"]
    with Checkpoints(tmp_path, keep=2):
        pass
    assert saved.steps(tmp_path) == ["2", "3"]
