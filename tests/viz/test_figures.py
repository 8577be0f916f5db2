import pytest

from jaxformer.errors import DataError
from jaxformer.viz import loss_curve

RECORDS = [
    {"step": 1, "loss": 3.0},
    {"step": 2, "loss": 2.5},
    {"step": 2, "held_out_loss": 2.75, "bits_per_byte": 1.0},
]


def test_loss_curve_draws_both_losses_against_steps(tmp_path):
    figure = loss_curve(RECORDS, title="a run")
    (axes,) = figure.axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines == {"training": [[1, 3.0], [2, 2.5]], "held out": [[2, 2.75]]}
    assert axes.get_ylabel() == "loss (nats per token)" and axes.get_title() == "a run"
    figure.savefig(tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_loss_curve_without_losses_is_refused():
    with pytest.raises(DataError, match="got 1 without any"):
        loss_curve([{"step": 1, "bits_per_byte": 2.0}])
