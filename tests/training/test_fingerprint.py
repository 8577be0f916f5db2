"""A run is resumed only by the program that began it."""

import copy
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxformer.config import LoopConfig, MeshConfig, ModelConfig
from jaxformer.errors import CheckpointError
from jaxformer.functional import dot_product_attention
from jaxformer.models import Decoder
from jaxformer.training import (
    MeshRunner,
    PmapRunner,
    SingleRunner,
    TrainingData,
    Trial,
    fit,
    language_model_loss,
    read_metrics,
)
from jaxformer.training.records.fingerprint import (
    PROGRAM,
    program_fingerprint,
    require_same_program,
)
from jaxformer.training.trial import Recipe

BATCH = {"x": np.float32([[1, 2, 3], [3, 5, 7]] * 4), "y": np.float32([[1], [2]] * 4)}
DATA = TrainingData([BATCH] * 3, lambda: [BATCH], unit="row")
TABLE = np.float32([[0.1], [0.2], [0.3]])


def squared(power=2.0, table=TABLE):
    def loss(params, batch, dropout_rng):
        error = batch["x"] @ (params["kernel"] + table) - batch["y"]
        return jnp.sum(jnp.abs(error) ** power), error.shape[0]

    return loss


def absolute(params, batch, dropout_rng):
    error = batch["x"] @ params["kernel"] - batch["y"]
    return jnp.abs(error).sum(), error.shape[0]


def through(gradient_scale):
    """A loss whose gradient is scaled by hand, which its value does not show."""

    @jax.custom_vjp
    def identity(x):
        return x

    identity.defvjp(lambda x: (x, None), lambda _, g: (gradient_scale * g,))
    return lambda params, batch, rng: squared()(jax.tree.map(identity, params), batch, rng)


def draw(scale):
    return lambda rng: {"kernel": scale * jax.random.normal(rng, (3, 1))}


def trial(loss=None, optimizer=None, init_params=None, **options):
    optimizer = optimizer or optax.adam(0.1)
    return Trial(loss or squared(), init_params or draw(0.1), optimizer, **options)


def fingerprint(data=DATA, seed=0, average_decay=None, **parts):
    loop = LoopConfig(steps=2, average_decay=average_decay)
    return program_fingerprint(Recipe.of(trial(**parts), seed), data, loop)


def train(folder, *, steps=2, seed=0, runner=None, restart=False, **parts):
    loop, runner = LoopConfig(steps=steps), runner or SingleRunner()
    return fit(trial(**parts), DATA, folder, loop, seed=seed, runner=runner, restart=restart)


@pytest.fixture(scope="module")
def first():
    return fingerprint()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Folder of a finished run."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(folder)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": absolute}, "another loss and another validation loss"),
        ({"loss": squared(4.0)}, "another loss and another validation loss"),
        ({"loss": squared(table=TABLE[::-1])}, "another loss and another validation loss"),
        ({"validation_loss": absolute}, "another validation loss;"),
        ({"optimizer": optax.adam(0.2)}, "another optimizer;"),
        ({"optimizer": optax.adam(0.1, nesterov=True)}, "another optimizer;"),
        ({"init_params": draw(0.2)}, "another initializer;"),
        ({"seed": 1}, "another seed (0, now 1);"),
        (
            {"data": DATA._replace(batches=[jax.tree.map(lambda x: x[:2], BATCH)])},
            "other batches (x float32[8, 3], y float32[8, 1], now x float32[2, 3], y float32[2, 1]",
        ),
    ],
)
def test_a_changed_program_is_refused_and_named(first, tmp_path, change, message):
    with pytest.raises(CheckpointError) as raised:
        require_same_program(tmp_path, first, fingerprint(**change))
    assert f"{tmp_path} was trained with {message}" in str(raised.value)
    assert "choose another folder, or pass restart=True" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_changed_gradient_and_average_are_refused(tmp_path):
    before, now = (fingerprint(loss=through(scale)) for scale in (1.0, 0.5))
    with pytest.raises(CheckpointError, match="another loss;"):
        require_same_program(tmp_path, before, now)
    before, now = (fingerprint(average_decay=decay) for decay in (0.9, 0.99))
    with pytest.raises(CheckpointError, match=r"another average_decay \(0.9, now 0.99\);"):
        require_same_program(tmp_path, before, now)


def test_a_changed_attention_in_a_model_is_refused(tmp_path):
    config = ModelConfig(vocab_size=7, max_len=5, num_layers=1, d_model=4, num_heads=2)
    tokens = np.ones((2, 5), np.int32)
    data = TrainingData([{"tokens": tokens, "labels": tokens}])

    def attention(scale):
        def scaled(query, key, value, mask=None, **structure):
            return dot_product_attention(query, key, value, mask=mask, scale=scale, **structure)

        return scaled

    params = jax.eval_shape(Decoder(config).init_params, jax.random.key(0))
    losses = [
        language_model_loss(Decoder(config, attention_fn=attention(scale))) for scale in (0.5, 0.25)
    ]
    before, now = (fingerprint(data, loss=loss, init_params=params) for loss in losses)
    with pytest.raises(CheckpointError, match="another loss;"):
        require_same_program(tmp_path, before, now)


def renamed(weights, rows, key):
    difference = rows["x"] @ (weights["kernel"] + TABLE) - rows["y"]
    return jnp.sum(jnp.abs(difference) ** 2.0), difference.shape[0]


def test_what_does_not_change_a_program_is_not_refused(first, tmp_path):
    """Names, validation, parameters as arrays, a JSON file, and what was traced before."""
    same = fingerprint(loss=renamed)
    for now in (same, fingerprint(DATA._replace(validation=None))):
        assert require_same_program(tmp_path, json.loads(json.dumps(first)), now) == []
    arrays = fingerprint(init_params=draw(0.1)(jax.random.key(0)))  # as with init_from of a run
    assert require_same_program(tmp_path, first, arrays) == []
    jax.clear_caches()
    assert fingerprint() == first


@pytest.mark.essential
def test_a_finished_run_is_not_repeated_as_that_of_another_loss(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "moved")
    assert train(folder).step == 2
    with pytest.raises(CheckpointError, match="moved was trained with another loss"):
        train(folder, loss=absolute)
    result = train(folder, loss=absolute, restart=True)
    assert result.step == 2 and [record["step"] for record in read_metrics(folder)] == [1, 2, 2]
    assert train(folder, loss=absolute).step == 2
    with pytest.raises(CheckpointError, match="another loss"):
        train(folder)


@pytest.mark.parametrize("kind", ["pmap", "mesh"])
def test_an_unchanged_run_goes_on_on_other_devices(run, tmp_path, kind, capsys):
    mesh = MeshConfig(data=2, fsdp=2, sequence=1, tensor=2)
    runner = PmapRunner() if kind == "pmap" else MeshRunner(mesh)
    result = train(shutil.copytree(run, tmp_path / "run"), runner=runner)
    assert result.step == 2 and "not checked" not in capsys.readouterr().out


def test_programs_of_other_versions_are_not_compared(run, tmp_path, capsys):
    folder = shutil.copytree(run, tmp_path / "run")
    record = json.loads((folder / PROGRAM).read_text())
    old = copy.deepcopy(record)
    old["versions"]["jax"] = "0.1"
    old["parts"]["loss"] = "of another version"
    (folder / PROGRAM).write_text(json.dumps(old))
    assert train(folder).step == 2
    line = f"has changed: jax was 0.1, is {record['versions']['jax']}"
    assert line in " ".join(capsys.readouterr().out.split())
    assert json.loads((folder / PROGRAM).read_text()) == record


def test_a_loss_that_needs_its_devices_trains_and_resumes(tmp_path):
    def loss(params, batch, dropout_rng):
        total, rows = squared()(params, batch, dropout_rng)
        return total + 0 * jax.lax.axis_index("batch"), rows

    runner = PmapRunner(jax.local_devices()[:2])
    assert train(tmp_path, loss=loss, runner=runner).step == 2
    assert train(tmp_path, loss=loss, runner=runner, steps=3).step == 3
