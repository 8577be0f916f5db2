"""Checkpoints of a few numbers, made without compiling anything, and ways to damage them."""

import jax
import numpy as np

from jaxformer.storage import Manifest, read_manifest, write_manifest
from jaxformer.training import Checkpoints, TrainState
from jaxformer.training.checkpoints import read_checkpoint_manifest
from jaxformer.training.checkpoints.manifest import _NOT_COVERED, MANIFEST


def state(step, size=7):
    """A state whose every number depends on the step."""
    numbers = np.arange(size, dtype=np.float32) + step
    return jax.device_put(
        TrainState(
            step=np.int32(step),
            params={"kernel": numbers, "bias": {"bias": -numbers[:3]}},
            opt_state=(np.int32(step), {"mean": numbers * 2}),
            bad_step=np.int32(-1),
        )
    )


def save(folder, *steps, losses=(), keep=10):
    """Saves states of some steps, each with its loss if there are any."""
    with Checkpoints(folder, keep=keep) as checkpoints:
        for index, step in enumerate(steps):
            checkpoints.save(state(step), losses[index] if losses else None)
        checkpoints.wait()


def restored(folder, params, optimizer, runner, **options):
    """The newest state in a run folder, on the host."""
    template = runner.place(TrainState.create(params, optimizer, **options))
    with Checkpoints(folder / "checkpoints", read_only=True) as checkpoints:
        return jax.device_get(checkpoints.restore(template))


def assert_same(tree, expected):
    jax.tree.map(np.testing.assert_array_equal, tree, expected)


def data_file(folder):
    """The file that has a checkpoint's parameters."""
    (file,) = (folder / "params" / "d").iterdir()
    return file


def flip(path, bit=None):
    """Flips a bit of a file; one in the middle when not given."""
    data = bytearray(path.read_bytes())
    bit = len(data) * 4 if bit is None else bit
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def sign(folder):
    """Makes the manifest of a checkpoint right again, as a stranger could who has changed it."""
    about = read_manifest(folder / MANIFEST).about
    write_manifest(folder / MANIFEST, Manifest.of(folder, about, ignore=_NOT_COVERED))


def loss_of(checkpoint):
    """The validation loss of a checkpoint."""
    return read_checkpoint_manifest(checkpoint).about["validation_loss"]


def steps(folder):
    return sorted(path.name for path in folder.iterdir())


def contents(folder):
    """Every file in a folder, by its path there, with what it holds."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
