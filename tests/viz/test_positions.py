import jax
import numpy as np
import pytest

from jaxformer.errors import DataError, ShapeError
from jaxformer.functional import rotary_tables, sinusoidal_positions
from jaxformer.viz import position_heatmaps
from tests.viz.drawing import assert_numbers_fit, assert_readable, bar_label, numbers

TABLE = np.asarray(jax.jit(sinusoidal_positions, static_argnums=(0, 1))(5, 7))


def heatmap(table, **options):
    """The figure of one table, and its axes."""
    figure = position_heatmaps({"": table}, **options)
    return figure, figure.axes[0]


def test_position_heatmaps_have_a_row_for_each_position_from_the_top():
    figure, axes = heatmap(TABLE, title=r"costs $1, not \$2$" "\nand sines")
    (image,) = axes.images
    assert np.array_equal(image.get_array(), TABLE)
    top, bottom = axes.transData.transform([[0, 0], [0, 4]])
    assert top[1] > bottom[1]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("dimension", "position")
    assert bar_label(figure) == "value"
    assert figure.get_suptitle() == r"costs $1, not \$2$" "\nand sines"
    assert not figure._suptitle.get_parse_math()  # dollar signs begin no formula
    assert numbers(axes)[:4] == ["0.00", "1.00", "0.00", "1.00"] and len(axes.texts) == 35
    red, green, blue, _ = image.to_rgba(np.array([[0.0]]))[0, 0]
    assert min(red, green, blue) > 0.95
    assert_readable(figure)
    assert_numbers_fit(figure)


def test_position_heatmaps_share_a_scale_that_is_symmetric_around_zero():
    cos, sin = rotary_tables(11, 6)
    figure = position_heatmaps({"cos": cos, "sin": -2 * sin}, x_label="pair", label="part")
    images = [axes.images[0] for axes in figure.axes[:2]]
    largest = float(2 * abs(sin).max())
    for axes, image, table in zip(figure.axes, images, (cos, -2 * sin), strict=False):
        assert np.array_equal(image.get_array(), table)
        assert image.get_clim() == (-largest, largest)
        assert axes.get_xlabel() == "pair"
    assert [axes.get_title() for axes in figure.axes[:2]] == ["cos", "sin"]
    assert bar_label(figure) == "part"
    assert_readable(figure)
    assert_numbers_fit(figure)
    images[1].set_clim(-5, 3)
    assert [image.get_clim() for image in images] == [(-5, 3)] * 2
    assert figure.axes[2].get_ylim() == (-5, 3)  # of the color bar


@pytest.mark.parametrize(("factor", "limit"), [(0.01, 0.01), (-3.0, 3.0), (0.0, 1.0)])
def test_position_heatmaps_have_the_scale_of_the_largest_number(factor, limit):
    (image,) = heatmap(np.array([[0.5, -1.0]]) * factor)[1].images
    assert image.get_clim() == pytest.approx((-limit, limit))


def test_numbers_are_written_into_at_most_400_cells():
    for shape, expected in (((20, 20), 400), ((20, 21), 0)):
        assert len(heatmap(np.zeros(shape))[1].texts) == expected


def test_numbers_have_hundredths_and_no_negative_zero():
    figure, axes = heatmap(np.array([[1234.0, -1 / 3, -1e-9]]))
    assert numbers(axes) == ["1234.00", "-0.33", "0.00"]
    assert_numbers_fit(figure)


def test_large_tables_are_averaged_as_numbers_and_stay_within_a_page():
    """Where cells are smaller than pixels, +1 and -1 give 0, not a mixture of their colours."""
    figure, axes = heatmap(np.tile([1.0, -1.0], (3, 3000)))
    assert max(figure.get_size_inches()) < 12
    assert axes.images[0].get_interpolation_stage() == "data"


@pytest.mark.parametrize(
    ("error", "message", "draw"),
    [
        (ShapeError, r"tables\[''\] must be \[T, D\], got shape \(7,\)", lambda: heatmap(TABLE[0])),
        (DataError, "must be finite, got -inf at .0, 1", lambda: heatmap([[0, -np.inf]])),
        (ShapeError, r"tables\['b'\] must be \[T=5, D=7\]",
         lambda: position_heatmaps({"a": TABLE, "b": TABLE[:4]})),
        (DataError, "needs at least one table, got none", lambda: position_heatmaps({})),
    ],
)  # fmt: skip
def test_figures_of_positions_refuse(error, message, draw):
    with pytest.raises(error, match=message):
        draw()
