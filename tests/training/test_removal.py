"""Checkpoints that a training removes while another process reads them."""

import pytest
from orbax.checkpoint import v1 as ocp

from jaxformer.errors import CheckpointError
from jaxformer.training import Checkpoints
from jaxformer.training.checkpoints import checkpoint_damage
from tests.training import saved


@pytest.fixture
def folder(tmp_path):
    """Checkpoints of steps 1 and 2, of which 2 is the best."""
    saved.save(tmp_path / "checkpoints", 1, 2, losses=(3.0, 1.0))
    return tmp_path / "checkpoints"


def test_checkpoint_that_is_removed_before_it_is_verified_is_no_damage(folder, monkeypatch):
    """Another one is taken."""

    def remove_first(checkpoint):
        if checkpoint.name == "2":
            saved.replace(folder, 2, 4)
        return checkpoint_damage(checkpoint)

    monkeypatch.setattr("jaxformer.training.checkpoints.index.checkpoint_damage", remove_first)
    with Checkpoints(folder, read_only=True) as opened:
        assert (opened.require_step(), opened.latest_step) == (1, 1)


def test_checkpoint_that_is_removed_while_it_is_read_is_named(folder, monkeypatch):
    """Although it was loaded: what is missing of an array is zeros to TensorStore."""
    load = ocp.load_checkpointables

    def reading(path, *args):
        loaded = load(path, *args)
        saved.replace(folder, 2, 4)
        return loaded

    monkeypatch.setattr(ocp, "load_checkpointables", reading)
    with Checkpoints(folder, read_only=True) as opened:
        with pytest.raises(CheckpointError, match="checkpoints/2 was removed while it was read"):
            opened.restore_params(saved.state(0).params, 2)
