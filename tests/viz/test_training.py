import pytest
from matplotlib.colors import to_hex

from jaxformer.errors import DataError
from jaxformer.viz import loss_curves
from tests.viz.drawing import assert_readable, legend_of

RECORDS = [
    {"step": 1, "loss": 3.0},
    {"step": 2, "loss": 2.5},
    {"step": 2, "held_out_loss": 2.75, "bits_per_byte": 1.0},
]


def curves(figure):
    return {line.get_label(): line.get_xydata().tolist() for line in figure.axes[0].lines}


def test_loss_curves_of_one_run_are_training_and_held_out():
    figure = loss_curves({"small": RECORDS}, title="a run")
    (axes,) = figure.axes
    assert curves(figure) == {"training": [[1, 3.0], [2, 2.5]], "held out": [[2, 2.75]]}
    assert legend_of(figure) == ["training", "held out"]
    assert axes.get_ylabel() == "loss (nats per token)" and axes.get_title() == "a run"
    assert axes.get_xlabel() == "optimizer step"
    training, held_out = axes.lines
    assert training.get_color() != held_out.get_color()
    assert_readable(figure)


def test_loss_curves_of_several_runs_have_a_colour_for_each():
    """A name may begin with an underscore, which matplotlib's own legends leave out."""
    unfinished = [{"step": 5, "loss": 1.5}]
    figure = loss_curves({"small": RECORDS, "_$large$": unfinished}, unit="text")
    assert curves(figure) == {
        "small, training": [[1, 3.0], [2, 2.5]],
        "small, held out": [[2, 2.75]],
        "_$large$, training": [[5, 1.5]],
    }
    assert legend_of(figure) == list(curves(figure))
    assert figure.axes[0].get_ylabel() == "loss (nats per text)"
    training, held_out, other = figure.axes[0].lines
    assert training.get_color() == held_out.get_color() != other.get_color()
    assert held_out.get_marker() not in ("", "None") and training.get_marker() == ""
    assert training.get_linewidth() < held_out.get_linewidth()
    assert_readable(figure)


def test_more_runs_than_colours_have_other_lines():
    figure = loss_curves({f"run {i}": RECORDS for i in range(15)})
    styles = [
        (to_hex(line.get_color()), line.get_linestyle())
        for line in figure.axes[0].lines
        if line.get_label().endswith("training")
    ]
    assert len({colour for colour, _ in styles}) == 7
    assert len(set(styles)) == 15
    assert "#f0e442" not in dict(styles)  # a yellow that is lost on white paper
    assert len(legend_of(figure)) == 30
    assert_readable(figure)


def test_run_without_losses_is_refused_by_its_name():
    with pytest.raises(DataError, match=r"got 1 of 'b' without any; leave it out"):
        loss_curves({"a": RECORDS, "b": [{"step": 1, "bits_per_byte": 2.0}]})
    with pytest.raises(DataError, match=r"at least one run, got none"):
        loss_curves({})
