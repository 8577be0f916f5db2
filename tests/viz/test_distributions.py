import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import DataError, ShapeError
from jaxformer.viz import distributions
from tests.viz.drawing import assert_readable, legend_of


def test_distributions_are_densities_over_common_bins():
    wide = np.linspace(-2, 4, 7 * 11).reshape(7, 11)
    figure = distributions(
        {"wide": wide, "narrow": jnp.array([0.25, 0.5], jnp.bfloat16)}, bins=6, xlabel="score",
        title="two",
    )  # fmt: skip
    (axes,) = figure.axes
    edges = np.linspace(-2, 4, 7)
    for outline, densities in zip(
        axes.patches, (np.histogram(wide, edges, density=True)[0], [0, 0, 1, 0, 0, 0]), strict=True
    ):
        left, right = outline.get_xy()[1:13:2, 0], outline.get_xy()[2:14:2, 0]
        np.testing.assert_allclose([*left, right[-1]], edges, atol=1e-6)
        np.testing.assert_allclose(outline.get_xy()[1:13:2, 1], densities, rtol=1e-6, atol=1e-6)
    assert legend_of(figure) == ["wide: mean 1, std 1.75", "narrow: mean 0.375, std 0.125"]
    assert axes.get_xlabel() == "score" and axes.get_ylabel() == "density"
    assert axes.get_title() == "two"
    assert_readable(figure)


@pytest.mark.parametrize(
    ("error", "message", "values"),
    [
        (DataError, "at least one name", {}),
        (DataError, r"values\['a'\] must be finite, got nan at \[1\]", {"a": [0, np.nan]}),
        (ShapeError, r"values\['b'\] must be an array of numbers with rows of equal length",
         {"a": [1], "b": [[1], [2, 3]]}),
    ],
)  # fmt: skip
def test_distributions_refuse(error, message, values):
    with pytest.raises(error, match=message):
        distributions(values)
