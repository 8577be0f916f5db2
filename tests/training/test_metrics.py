import pytest

from jaxformer.errors import DataError
from jaxformer.training import MetricsWriter, read_metrics


def test_records_are_appended_in_order(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, loss=3.0)
        writer.write(2, loss=2.0, grad_norm=0.5)
    assert read_metrics(tmp_path) == [
        {"step": 1, "loss": 3.0},
        {"step": 2, "loss": 2.0, "grad_norm": 0.5},
    ]
    assert list((tmp_path / "tensorboard").iterdir())


def test_resumed_run_writes_each_step_once_and_loses_none(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        for step in (1, 2, 3):
            writer.write(step, loss=float(step))
    with MetricsWriter(tmp_path, start_step=1) as writer:
        writer.write(2, loss=20.0)
    assert read_metrics(tmp_path) == [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 20.0}]
    superseded = (tmp_path / "metrics.superseded.jsonl").read_text()
    assert superseded == '{"step": 2, "loss": 2.0}\n{"step": 3, "loss": 3.0}\n'


def test_line_cut_short_by_a_crash_is_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "lo')
    assert read_metrics(tmp_path) == [{"step": 1, "loss": 3.0}]


def test_missing_file_has_no_records(tmp_path):
    assert read_metrics(tmp_path) == []


@pytest.mark.parametrize(
    "line", [b'{"step": 1, "lo', b"\xff", b"3", b'{"loss": 1}', b'{"step": "a"}']
)
def test_damaged_line_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    with pytest.raises(DataError, match=r"metrics.jsonl, line 2 is damaged: .* remove it"):
        read_metrics(tmp_path)
