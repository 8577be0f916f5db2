import math

import numpy as np
import pytest

from jaxformer.errors import DataError
from jaxformer.viz import loss_curves, sweep_curves, time_bars
from tests.viz.drawing import assert_readable, legend_of

RECORDS = [
    {"step": 1, "loss": 3.0},
    {"step": 2, "loss": 2.5},
    {"step": 2, "validation_loss": 2.75, "bits_per_byte": 1.0},
]


def curves(figure):
    return {line.get_label(): line.get_xydata().tolist() for line in figure.axes[0].lines}


def test_loss_curves_of_one_run_are_training_and_validation():
    figure = loss_curves({"small": RECORDS}, title="a run")
    (axes,) = figure.axes
    assert curves(figure) == {"training": [[1, 3.0], [2, 2.5]], "validation": [[2, 2.75]]}
    assert legend_of(figure) == ["training", "validation"]
    assert axes.get_ylabel() == "loss (nats per token)" and axes.get_title() == "a run"
    assert axes.get_xlabel() == "optimizer step"
    training, validation = axes.lines
    assert training.get_color() != validation.get_color()
    assert_readable(figure)


def test_loss_curves_of_several_runs_have_a_colour_for_each():
    """A name may begin with an underscore, which matplotlib's own legends leave out."""
    unfinished = [{"step": 5, "loss": 1.5}]
    figure = loss_curves({"small": RECORDS, "_$large$": unfinished}, unit="text")
    assert curves(figure) == {
        "small, training": [[1, 3.0], [2, 2.5]],
        "small, validation": [[2, 2.75]],
        "_$large$, training": [[5, 1.5]],
    }
    assert legend_of(figure) == list(curves(figure))
    assert figure.axes[0].get_ylabel() == "loss (nats per text)"
    training, validation, other = figure.axes[0].lines
    assert training.get_color() == validation.get_color() != other.get_color()
    assert validation.get_marker() not in ("", "None") and training.get_marker() == ""
    assert other.get_marker() == "o"  # of one point there is no line
    assert training.get_linewidth() < validation.get_linewidth()
    assert_readable(figure)


def test_run_without_losses_is_refused_by_its_name():
    with pytest.raises(DataError, match=r"got 1 of 'b' without any; leave it out"):
        loss_curves({"a": RECORDS, "b": [{"step": 1, "bits_per_byte": 2.0}]})
    with pytest.raises(DataError, match=r"at least one run, got none"):
        loss_curves({})


def test_losses_that_are_not_finite_leave_gaps():
    losses = [3.0, 2.5, math.nan, math.inf, 2.0, 1.5]
    records = [{"step": np.int64(i), "loss": np.float32(loss)} for i, loss in enumerate(losses)]
    figure = loss_curves({"a": [*records, {"note": "no loss, and no step"}]})
    np.testing.assert_array_equal(curves(figure)["training"], list(enumerate(losses)))
    assert figure.axes[0].get_ylim()[1] < 4
    assert_readable(figure)
    never = [{"step": 1, "loss": math.nan}, {"step": 1, "validation_loss": -math.inf}]
    with pytest.raises(DataError, match="with a finite loss, got 2 of 'b' without one; leave it"):
        loss_curves({"a": RECORDS, "b": never})
    loss_curves({"b": [*never, RECORDS[2]]})


def test_sweep_curves_are_means_with_their_deviations():
    curves = {
        "decay 0": [(1e-3, 2.5, 0.125), (1e-2, 2.25, 0.5)],
        "decay 1": [(1e-3, 3.0, 0.0), (1e-2, 2.75, 0.25)],
    }
    figure = sweep_curves(curves, x_label="rate", y_label="loss", title="a sweep")
    (axes,) = figure.axes
    for container, (name, points) in zip(axes.containers, curves.items(), strict=True):
        line, _, (bars,) = container.lines
        assert container.get_label() == name
        np.testing.assert_array_equal(line.get_xydata(), [point[:2] for point in points])
        np.testing.assert_array_equal(
            bars.get_segments(), [[[x, y - sd], [x, y + sd]] for x, y, sd in points]
        )
    assert legend_of(figure) == list(curves)
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("rate", "loss", "a sweep")
    assert axes.get_xscale() == "log"
    assert_readable(figure)


@pytest.mark.parametrize("xs", [("adamw", "sgd"), (1.0, 9.0), (0.0, 100.0)])
def test_axis_of_words_or_of_less_than_a_decade_is_no_logarithm(xs):
    (axes,) = sweep_curves({"": [(x, 2.5, 0.0) for x in xs]}).axes
    assert axes.get_xscale() != "log" and axes.get_legend() is None


def test_sweep_without_a_point_is_refused():
    with pytest.raises(DataError, match="needs at least one point, got none"):
        sweep_curves({"decay 0": []})


def test_bars_are_milliseconds_with_shares_of_their_group():
    groups = {
        "device": {"attention": 0.03, "feed-forward": 0.01},
        "none": {},
        "host": {"saving": 0.002},
    }
    axes = time_bars(groups, title="Time").axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([30, 10, 2])
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "attention", "feed-forward", "saving",
    ]  # fmt: skip
    assert [text.get_text() for text in axes.texts] == ["30 ms (75%)", "10 ms (25%)", "2 ms"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["device", "host"]
    assert axes.get_title() == "Time" and axes.get_legend() is not None


@pytest.mark.parametrize("groups", [{}, {"device": {}}, {"device": {"attention": 0.0}}])
def test_bars_of_nothing_are_refused(groups):
    with pytest.raises(DataError, match="at least one part that took time, got none"):
        time_bars(groups)
