"""Callbacks of `fit`, and early stopping."""

import pathlib

import numpy as np
import pytest

from jaxformer.config import LoopConfig
from jaxformer.errors import ConfigError
from jaxformer.training import EarlyStopping, read_metrics
from tests.docs.pages import blocks, run
from tests.training.test_fit import batch, saved_steps, train

LOOP = LoopConfig(steps=6, log_every=2, eval_every=1, checkpoint_every=6)


def stopped_by(folder, *callbacks, **options):
    options = {"loop": LOOP, "validation": lambda: [batch(99)]} | options
    return train(folder, callbacks=callbacks, **options)


def test_callbacks_get_the_metrics_and_what_is_not_true_stops_nothing(tmp_path):
    seen, first = [], []
    result = stopped_by(
        tmp_path,
        lambda *record: seen.append(record),
        lambda step, metrics: first.append(step) or step,
    )
    assert result.step == 6
    records = read_metrics(tmp_path)
    assert seen == [(record.pop("step"), record) for record in records] and first == [
        s for s, _ in seen
    ]


@pytest.mark.parametrize("name", ["loss", "validation_loss"])
def test_run_that_a_callback_stops_is_saved_with_its_evaluation_and_goes_on(tmp_path, name, capfd):
    def stop(step, metrics):
        return step == 4 and np.isfinite(metrics.get(name, np.nan))  # NumPy's True, too

    result = stopped_by(tmp_path / "parts", stop)
    assert (result.step, result.stop_signal, saved_steps(tmp_path / "parts")) == (4, None, [4])
    records = read_metrics(tmp_path / "parts")
    assert records[-1] == {"step": 4, "validation_loss": result.evaluation.loss}
    assert "stopped at step 4 by <function" in capfd.readouterr().out
    parts, whole = stopped_by(tmp_path / "parts"), stopped_by(tmp_path / "whole")
    np.testing.assert_array_equal(parts.params["kernel"], whole.params["kernel"])


def test_early_stopping_goes_by_the_records_when_a_run_is_resumed(tmp_path):
    """With a minimal improvement that no validation makes but the first."""
    stop = EarlyStopping(patience=3, min_delta=1e9)
    assert stopped_by(tmp_path, stop, loop=LoopConfig(steps=3, eval_every=1)).step == 3
    again = EarlyStopping(patience=3, min_delta=1e9)
    assert stopped_by(tmp_path, again).step == 4
    for _ in range(2):  # that has stopped, in a new process and in this one
        assert stopped_by(tmp_path, again).step == 4
    assert stopped_by(tmp_path, EarlyStopping(patience=4, min_delta=1e9)).step == 5


def test_early_stopping_without_validation_data_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="EarlyStopping.* needs validation data, got none"):
        stopped_by(tmp_path, EarlyStopping(patience=3), validation=None)


def test_early_stopping_may_go_by_a_score(tmp_path):
    stop = EarlyStopping(patience=1, metric="accuracy", higher_is_better=True)
    scores = [{"validation_loss": 1.0, "accuracy": value} for value in (0.5, 0.6, 0.6)]
    assert [stop(1, record) for record in ({"loss": 3.0}, *scores)] == [False, False, False, True]
    with pytest.raises(ConfigError, match=r"one of \['validation_loss'\], got 'accuracy'"):
        stop(1, {"validation_loss": 1.0})
    with pytest.raises(ConfigError, match="at least 1 validation, got 0"):
        EarlyStopping(patience=0)


def test_callbacks_of_the_documentation_see_the_validations(tmp_path, capsys):
    page, of_page = pathlib.Path("docs/train.md").read_text(encoding="utf-8"), {}
    for code in blocks(page, "python"):
        if "EarlyStopping" in code:
            run(code, "docs/train.md", of_page)
    stopped_by(tmp_path, *of_page["callbacks"])
    printed = capsys.readouterr().out
    for record in read_metrics(tmp_path):
        if "validation_loss" in record:
            assert f"{record['step']} {record['validation_loss']}\n" in printed
