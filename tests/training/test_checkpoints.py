import shutil

import jax
import jax.numpy as jnp
import pytest
from orbax.checkpoint import v1 as ocp

from jaxformer.errors import CheckpointError
from jaxformer.training import Checkpoints, PmapRunner
from tests.training import saved


@pytest.mark.essential
def test_restored_state_is_bitwise_the_saved_one(tmp_path):
    runner = PmapRunner(jax.local_devices()[:2])
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(runner.place(saved.state(7)))
    with Checkpoints(tmp_path) as checkpoints:
        template = runner.place(saved.state(0))
        restored = checkpoints.restore(template)
    saved.assert_same(restored, saved.state(7))
    assert restored.params["kernel"].sharding == template.params["kernel"].sharding


def test_missing_checkpoints_are_named(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(CheckpointError, match="has no checkpoint; train"):
            checkpoints.restore(saved.state(0))
        checkpoints.save(saved.state(3))
        checkpoints.wait()
        with pytest.raises(CheckpointError, match=r"no checkpoint of step 4, only \[3\]"):
            checkpoints.restore_params(saved.state(0).params, step=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda leaf: jnp.zeros((*leaf.shape, 2)), r"is \(\(3,\), 'float32'\), the model expects"),
        (lambda leaf: leaf[:1], r"expects \(\(1,\), 'float32'\)"),
        (lambda leaf: leaf.astype(jnp.bfloat16), "bfloat16"),
    ],
)
def test_other_shapes_and_dtypes_are_refused(tmp_path, change, message):
    """Orbax would cast, cut or pad without a word."""
    saved.save(tmp_path, 1)
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        with pytest.raises(CheckpointError, match=message):
            checkpoints.restore_params(jax.tree.map(change, saved.state(0).params), step=1)


def test_leftovers_of_an_interrupted_save_go_with_the_next_one(tmp_path):
    saved.save(tmp_path, 1)
    leftover = tmp_path / "2.orbax-checkpoint-tmp"
    leftover.mkdir()
    # To a reader they may be a save in progress.
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        assert checkpoints.latest_step == 1
        checkpoints.restore_params(saved.state(0).params)
    assert leftover.exists()
    saved.save(tmp_path, 2)
    assert not leftover.exists() and (tmp_path / "2").is_dir()


def test_an_old_checkpoint_that_a_killed_training_has_left_goes_with_the_next_save(tmp_path):
    saved.save(tmp_path, 1, 2, 3)  # and killed before it removed the first
    with Checkpoints(tmp_path, keep=2, read_only=True):
        pass
    assert saved.steps(tmp_path) == ["1", "2", "3"]
    saved.save(tmp_path, 4, keep=2)
    assert saved.steps(tmp_path) == ["3", "4"]


def test_checkpoint_that_is_removed_while_it_is_read_is_named(tmp_path, monkeypatch):
    """Although it was loaded: what is missing of an array is zeros to TensorStore."""
    saved.save(tmp_path, 1, 2)
    load = ocp.load_checkpointables

    def reading(path, *args):
        loaded = load(path, *args)
        shutil.rmtree(path)  # as a training does that saves others
        return loaded

    monkeypatch.setattr(ocp, "load_checkpointables", reading)
    with Checkpoints(tmp_path, read_only=True) as opened:
        with pytest.raises(CheckpointError, match="/2 was removed while it was read"):
            opened.restore_params(saved.state(0).params, 2)
