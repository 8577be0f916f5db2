"""`fit` with a task of one's own: no config, no model of the library."""

import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxformer.config import LoopConfig
from jaxformer.errors import CheckpointError, ConfigError, DataError
from jaxformer.training import (
    Checkpoints,
    PmapRunner,
    SingleRunner,
    TrainingData,
    Trial,
    fit,
    read_metrics,
)
from jaxformer.training.checkpoints import checkpoint_steps
from jaxformer.training.parallel import Program
from tests.records import CPU_METERS
from tests.training import saved

TRUE = np.float32([[1.0], [-2.0], [0.5]])


def batch(step, rows=8):
    x = np.random.default_rng(step).normal(size=(rows, 3)).astype(np.float32)
    return {"x": x, "y": x @ TRUE}


def loss(params, batch, dropout_rng):
    error = batch["x"] @ params["kernel"] - batch["y"]
    return (error**2).sum(), error.shape[0]


def zeros(rng):
    return {"kernel": jnp.zeros((3, 1))}


def train(folder, *, steps=6, batches=None, init_params=zeros, optimizer=None, **options):
    data = TrainingData(
        [batch(i) for i in range(6)] if batches is None else batches,
        validation=options.pop("validation", None), unit="row",
    )  # fmt: skip
    loop = LoopConfig(steps=steps, log_every=2, eval_every=3, checkpoint_every=3)
    trial_options = {name: options.pop(name) for name in Trial._fields[3:] if name in options}
    trial = Trial(
        options.pop("loss", loss), init_params, optimizer or optax.adam(0.3), **trial_options
    )
    loop = options.pop("loop", loop)
    return fit(trial, data, folder, loop, **{"runner": SingleRunner()} | options)


def saved_steps(folder):
    return checkpoint_steps(folder / "checkpoints")


def test_own_task_is_trained_as_by_a_loop_written_out(tmp_path):
    result = train(str(tmp_path / "new" / "run"), validation=lambda: [batch(99)])
    params, optimizer = zeros(None), optax.adam(0.3)
    state = optimizer.init(params)
    for step in range(6):
        grads = jax.grad(lambda p, step=step: loss(p, batch(step), None)[0] / 8)(params)
        updates, state = optimizer.update(grads, state)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(result.params["kernel"], params["kernel"], rtol=1e-4)
    assert result.step == 6 and result.stop_signal is None
    records = read_metrics(tmp_path / "new" / "run")
    assert [sorted(record) for record in records][:3] == [
        sorted(["grad_norm", "loss", "rows_per_second", "step", *CPU_METERS]),
        ["step", "validation_loss"],
        sorted(["grad_norm", "loss", "rows_per_second", "step", *CPU_METERS]),
    ]
    total, count = loss(params, batch(99), None)
    assert result.evaluation.loss == pytest.approx(float(total) / count, rel=1e-3)
    assert records[-1]["validation_loss"] == result.evaluation.loss


def test_validation_may_have_a_loss_of_its_own(tmp_path):
    def doubled(params, batch, rng):
        total, count = loss(params, batch, rng)
        return 2 * total, count

    result = train(tmp_path, steps=3, validation=lambda: [batch(99)], validation_loss=doubled)
    total, count = loss(result.params, batch(99), None)
    assert result.evaluation.loss == pytest.approx(2 * float(total) / count, rel=1e-5)


@pytest.mark.essential
def test_without_validation_checkpoints_and_resume_are_exact(tmp_path):
    """And the newest checkpoint is the best that is known."""
    whole = train(tmp_path / "whole")
    assert whole.evaluation is None
    assert all("validation_loss" not in record for record in read_metrics(tmp_path / "whole"))
    train(tmp_path / "parts", steps=4)
    with Checkpoints(tmp_path / "parts" / "checkpoints") as checkpoints:
        assert checkpoints.best_step == 4
    parts = train(tmp_path / "parts")
    np.testing.assert_array_equal(parts.params["kernel"], whole.params["kernel"])


@pytest.mark.essential
def test_all_devices_and_accumulation_give_the_parameters_of_one(tmp_path):
    batches = [batch(step, rows=16) for step in range(2)]
    loop = LoopConfig(steps=2, accumulate_steps=2)
    alone = train(tmp_path / "one", batches=batches, loop=LoopConfig(steps=2))
    together = train(tmp_path / "all", batches=batches, loop=loop, runner=None)
    np.testing.assert_allclose(together.params["kernel"], alone.params["kernel"], rtol=1e-4)


def test_parameters_that_exist_are_started_from(tmp_path):
    start = {"kernel": np.float32([[5.0], [6.0], [7.0]])}
    result = train(tmp_path, steps=1, init_params=start, optimizer=optax.sgd(0.0))
    np.testing.assert_array_equal(result.params["kernel"], start["kernel"])


def test_batches_may_be_any_pytree_of_arrays(tmp_path):
    def pair_loss(params, batch, rng):
        return loss(params, dict(zip("xy", batch, strict=True)), rng)

    batches = [(batch(0)["x"], batch(0)["y"])]
    assert train(tmp_path, batches=batches, loss=pair_loss, steps=1).step == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batches": iter([batch(0)])}, DataError, "indexed by step.*got list_iterator; pass a"),
        ({"batches": [batch(0)] * 5}, DataError, "each of the 6 steps, got 5; .*step % 5"),
        ({"batches": {0: batch(0)}}, DataError, "got KeyError for step 1"),
        ({"batches": [{"x": np.float32(1)}] * 6}, DataError, r"got shape \(\) at \['x'\]"),
        (
            {"batches": [batch(0), batch(1, 7)] * 3, "runner": PmapRunner(jax.devices()[:2])},
            DataError, r"batch of step 1 must.*accumulate_steps = 2, got shape \(7, 3\) at \['x'\]",
        ),
        (
            {"batches": [batch(0) | {"y": np.zeros((4, 1))}] * 6},
            DataError, r"same number of rows in every array.*got shape \(4, 1\) at \['y'\]",
        ),
        ({"validation": lambda: []}, DataError, "at least one batch, got none; return a new"),
        ({"loss": lambda *a: (*loss(*a), {"grad_norm": 1.0})}, ConfigError,
         "metrics with other names than bad_step, grad_norm, .*step, .*, got .*'grad_norm'"),
        ({"loss": lambda *a: (*loss(*a), {"validation_loss": 1.0})}, ConfigError, "other names"),
        ({"loss": lambda *a: (*loss(*a), {"rows_per_second": 1.0})}, ConfigError,
         "another name than loss, .*, rows_per_second, .*, got 'rows_per_second'; rename it"),
        ({"loss": lambda *a: (*loss(*a), {"rows": jnp.ones(8)})}, ConfigError,
         r"a dict of numbers, .*'rows': 'float32\[8\]'"),
        ({"loss": lambda *a: (*loss(*a), {"more": {"x": 1.0}})}, ConfigError, "dict of numbers"),
        ({"loss": lambda *a: (*loss(*a), 3.0)}, ConfigError, "a dict of numbers, .*, got "),
        ({"loss": lambda *a: loss(*a)[0]}, ConfigError, r"two numbers.*got float32\[\]; sum over"),
        (
            {"loss": lambda p, b, r: (b["x"] @ p["kernel"], 8)}, ConfigError,
            r"two numbers.*got \('float32\[8, 1\]', 'int32\[\]'\)",
        ),
        ({"loss": lambda p, b, r: (8, 8)}, ConfigError, "the loss a float, .*got .'int32"),
    ],
)  # fmt: skip
def test_mistakes_get_one_line(tmp_path, options, error, message):
    with pytest.raises(error, match=message) as raised:
        train(tmp_path, **options)
    assert "\n" not in str(raised.value)


def test_metrics_of_a_loss_are_averaged_by_its_weights(tmp_path):
    def with_metric(params, batch, rng):
        total = (batch["x"] @ params["kernel"]).sum()
        return total, batch["weight"][0], {"size": batch["weight"][0] * batch["value"][0]}

    batches = [
        {"x": np.ones((1, 3), np.float32), "weight": np.float32([weight]),
         "value": np.float32([value])}
        for weight, value in ((1.0, 2.0), (3.0, 6.0))
    ]  # fmt: skip
    loop = LoopConfig(steps=2, log_every=2)
    train(tmp_path, loss=with_metric, batches=batches, loop=loop, optimizer=optax.sgd(0.0))
    (record,) = read_metrics(tmp_path)
    assert record["size"] == (1 * 2 + 3 * 6) / 4


def test_scores_need_a_validation_loss(tmp_path):
    data = TrainingData([batch(0)], scores=lambda params: {"accuracy": 1.0})
    with pytest.raises(DataError, match="scores need validation batches, got none"):
        fit(Trial(loss, zeros, optax.sgd(0.1)), data, tmp_path, LoopConfig(steps=1))


def test_signal_while_another_shape_is_compiled_loses_no_step(tmp_path, monkeypatch):
    compile_ = Program.compile

    def interrupted(program, state, rows, *rest):
        if rows["x"].shape[0] == 16:
            signal.raise_signal(signal.SIGTERM)
        compile_(program, state, rows, *rest)

    batches = [batch(step, rows=16 if step == 2 else 8) for step in range(4)]
    monkeypatch.setattr(Program, "compile", interrupted)
    result = train(tmp_path / "parts", steps=4, batches=batches)
    assert result.step == 3 and result.stop_signal == signal.SIGTERM
    assert saved_steps(tmp_path / "parts") == [3]
    monkeypatch.undo()
    parts = train(tmp_path / "parts", steps=4, batches=batches)
    whole = train(tmp_path / "whole", steps=4, batches=batches)
    np.testing.assert_array_equal(parts.params["kernel"], whole.params["kernel"])


def test_without_a_folder_nothing_is_written_and_the_result_is_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = train(None, validation=lambda: [batch(99)])
    assert list(tmp_path.iterdir()) == []
    saved = train(tmp_path / "run", validation=lambda: [batch(99)])
    np.testing.assert_array_equal(alone.params["kernel"], saved.params["kernel"])
    assert alone.evaluation == saved.evaluation and alone.step == saved.step == 6
    assert list(saved.records) == read_metrics(tmp_path / "run") and alone.stop_signal is None


def test_optimizer_without_state_is_resumed_and_one_with_state_refused(tmp_path):
    for steps in (1, 2):
        assert train(tmp_path, steps=steps, optimizer=optax.sgd(0.3)).step == steps
    with pytest.raises(CheckpointError, match="it belongs to another configuration"):
        train(tmp_path, steps=3, optimizer=optax.adam(0.3))


def test_no_more_than_one_step_is_queued_which_a_signal_would_wait_for(tmp_path, monkeypatch):
    call, events, taken = Program.__call__, [], []

    def noted(program, *args):
        result = call(program, *args)
        taken.append(result[1])
        events.append(f"step {len(taken)}")
        return result

    def block(metrics):
        events.extend(
            f"wait {i}" for i, step_metrics in enumerate(taken, 1) if step_metrics is metrics
        )

    monkeypatch.setattr(Program, "__call__", noted)
    monkeypatch.setattr(jax, "block_until_ready", block)
    train(tmp_path, steps=4)
    assert " ".join(events) == "step 1 step 2 wait 1 step 3 wait 2 step 4 wait 3"


def test_validation_that_a_signal_cuts_short_is_made_up_for(tmp_path):
    """Also where it is that of the last step, so that the best checkpoint is the same."""

    def validation():
        yield batch(99)
        if stopping:
            signal.raise_signal(signal.SIGTERM)
        yield batch(98)

    stopping = True
    for _ in range(2):
        result = train(tmp_path / "parts", steps=3, validation=validation)
        assert (result.step, result.evaluation) == (3, None)
        assert result.stop_signal == signal.SIGTERM
        assert saved_steps(tmp_path / "parts") == [3]
    stopping = False
    parts = train(tmp_path / "parts", validation=validation)
    whole = train(tmp_path / "whole", validation=validation)
    records = [
        [record for record in read_metrics(tmp_path / name) if "validation_loss" in record]
        for name in ("parts", "whole")
    ]
    assert records[0] == records[1] and len(records[0]) == 2
    assert parts.evaluation == whole.evaluation
    folders = (tmp_path / name / "checkpoints" for name in ("parts", "whole"))
    losses = [[saved.loss_of(path) for path in sorted(folder.iterdir())] for folder in folders]
    assert losses[0] == losses[1] and len(losses[0]) == 2 and None not in losses[0]


def test_loss_that_was_measured_before_a_signal_is_in_the_checkpoint(tmp_path):
    """So that it is not measured again."""
    measured = []

    def interrupt(step, metrics):
        if step == 2 and "validation_loss" in metrics:
            signal.raise_signal(signal.SIGTERM)

    def validation():
        measured.append(len(measured))
        yield batch(99)

    loop = LoopConfig(steps=4, eval_every=2, checkpoint_every=4)
    assert train(tmp_path, validation=validation, loop=loop, callbacks=[interrupt]).step == 2
    assert train(tmp_path, validation=validation, loop=loop).step == 4
    records = [record for record in read_metrics(tmp_path) if "validation_loss" in record]
    assert [record["step"] for record in records] == [2, 4]
    assert len(measured) == 2
    for record in records:
        path = tmp_path / "checkpoints" / str(record["step"])
        assert saved.loss_of(path) == record["validation_loss"]
