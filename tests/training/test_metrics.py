import importlib.util

import numpy as np
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from jaxformer.training import read_metrics
from jaxformer.training.records import MetricsWriter


def test_resumed_run_writes_each_step_once(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        for step in (1, 2, 3):
            writer.write(step, loss=float(step))
    with MetricsWriter(tmp_path, start_step=1) as writer:
        writer.write(2, loss=20.0)
    assert read_metrics(tmp_path) == [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 20.0}]


def test_tensorboard_reads_the_records(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, loss=3.0, validation_loss=0.0)
        writer.write(2**40, **{"loss": float("nan"), "perplexity of a part": 1e30})
    (path,) = (tmp_path / "tensorboard").iterdir()
    events = EventFileLoader(str(path)).Load()
    scalars = [(event.step, value) for event in events for value in event.summary.value]
    np.testing.assert_equal(
        [(step, value.tag, value.tensor.float_val[0]) for step, value in scalars],
        [
            (1, "loss", 3.0),
            (1, "validation_loss", 0.0),
            (2**40, "loss", float("nan")),
            (2**40, "perplexity of a part", float(np.float32(1e30))),
        ],
    )


def test_without_tensorboard_the_records_are_written_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, loss=3.0)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_line_cut_short_by_a_crash_is_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "lo')
    assert read_metrics(tmp_path) == [{"step": 1, "loss": 3.0}]
