import numpy as np
import pytest

from jaxformer.errors import DataError
from jaxformer.viz import sweep_curves
from tests.viz.drawing import assert_readable, legend_of


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
