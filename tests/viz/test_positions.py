import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import DataError, ShapeError
from jaxformer.functional import rotary_tables, sinusoidal_positions
from jaxformer.viz import (
    cosine_distance_heatmap,
    position_bias_curves,
    position_curves,
    position_heatmap,
    rotary_heatmaps,
)
from tests.viz.drawing import (
    assert_numbers_fit,
    assert_readable,
    bar_label,
    legend_of,
    numbers,
    pixels,
)

TABLE = np.asarray(jax.jit(sinusoidal_positions, static_argnums=(0, 1))(5, 7))


def image_of(figure, panel=0):
    (image,) = figure.axes[panel].images
    return image


def test_position_heatmap_has_a_row_for_each_position_from_the_top():
    figure = position_heatmap(TABLE, title="sines\nand cosines")
    axes, image = figure.axes[0], image_of(figure)
    assert np.array_equal(image.get_array(), TABLE)
    assert image.get_clim() == (-1, 1)
    top, bottom = axes.transData.transform([[0, 0], [0, 4]])
    assert top[1] > bottom[1]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("dimension", "position")
    assert bar_label(figure) == "value"
    assert figure.get_suptitle() == "sines\nand cosines"
    assert numbers(axes)[:4] == ["0.00", "1.00", "0.00", "1.00"] and len(axes.texts) == 35
    assert_readable(figure)
    assert_numbers_fit(figure)


def test_position_heatmap_scale_is_symmetric_around_zero():
    assert image_of(position_heatmap(-3 * TABLE)).get_clim() == (-3, 3)
    assert image_of(position_heatmap(TABLE * 0.01)).get_clim() == (-1, 1)
    red, green, blue, _ = image_of(position_heatmap(TABLE)).to_rgba(np.array([[0.0]]))[0, 0]
    assert min(red, green, blue) > 0.95


def test_numbers_are_written_into_at_most_400_cells():
    for shape, expected in (((20, 20), 400), ((20, 21), 0)):
        assert len(position_heatmap(np.zeros(shape)).figure.axes[0].texts) == expected


@pytest.mark.parametrize(
    ("largest", "written"),
    [
        (0.02, ["0.020", "-0.007"]),
        (1.0, ["1.00", "-0.33"]),
        (25.0, ["25.0", "-8.3"]),
        (1234.0, ["1234", "-411"]),
    ],
)
def test_numbers_have_the_digits_that_matter_and_fit(largest, written):
    figure = position_heatmap(np.array([[1, -1 / 3, -1e-9]]) * largest)
    assert numbers(figure.axes[0])[:2] == written
    assert not numbers(figure.axes[0])[2].startswith("-")
    assert_numbers_fit(figure)


def test_large_tables_are_averaged_as_numbers_and_stay_within_a_page():
    """Where cells are smaller than pixels, +1 and -1 give 0, not a mixture of their colours."""
    stripes = np.tile([1.0, -1.0], (3, 3000))
    figure = position_heatmap(stripes)
    assert max(figure.get_size_inches()) < 12
    figure.draw_without_rendering()
    assert image_of(figure).get_interpolation_stage() == "data"


def test_position_curves_are_the_rows_that_they_name():
    positions = [4, 0, 3]
    figure = position_curves(jnp.asarray(TABLE), positions, title="curves")
    for panel, chosen, name in zip(
        figure.axes, ([0, 2, 4, 6], [1, 3, 5], range(7)), ("even", "odd", "all"), strict=True
    ):
        assert panel.get_title() == f"{name} dimensions"
        assert [line.get_label() for line in panel.lines] == [f"position {p}" for p in positions]
        for line, position in zip(panel.lines, positions, strict=True):
            assert line.get_xdata().tolist() == list(chosen)
            assert np.array_equal(line.get_ydata(), TABLE[position, list(chosen)])
            assert line.get_marker() not in ("", "None")
    assert legend_of(figure) == ["position 4", "position 0", "position 3"]
    handles = figure.legends[0].legend_handles
    assert [h.get_color() for h in handles] == [h.get_color() for h in figure.axes[2].lines]
    assert figure.axes[-1].get_xlabel() == "dimension"
    assert_readable(figure)


def test_cosine_distances_are_of_directions():
    table = np.array([[3.0, 0.0], [0.0, 0.5], [-1.0, 0.0]])
    figure = cosine_distance_heatmap(table)
    image = image_of(figure)
    expected = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    np.testing.assert_allclose(image.get_array(), expected, atol=1e-12)
    assert image.get_clim() == (0, 2)
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("position", "position")
    assert bar_label(figure) == "cosine distance"
    assert numbers(axes)[:3] == ["0.00", "1.00", "2.00"]
    assert_readable(figure)
    near = image_of(cosine_distance_heatmap(TABLE))
    assert near.get_clim() == (0, 1) and near.get_array().min() >= 0


def test_rotary_heatmaps_show_cosines_and_sines_on_one_scale():
    cos, sin = rotary_tables(11, 6)
    figure = rotary_heatmaps(cos, 2 * sin)
    assert np.array_equal(image_of(figure, 0).get_array(), cos)
    assert np.array_equal(image_of(figure, 1).get_array(), 2 * sin)
    largest = float(2 * abs(sin).max())
    assert image_of(figure, 0).get_clim() == image_of(figure, 1).get_clim() == (-largest, largest)
    assert figure.axes[0].get_xlabel() == figure.axes[1].get_xlabel() == "feature pair"
    assert_readable(figure)
    assert_numbers_fit(figure)


def test_position_bias_curves_are_of_the_heads():
    bias, distances = np.arange(20.0).reshape(4, 5), [-4, -3, -2, -1, 0]
    figure = position_bias_curves(bias, distances)
    for head, line in enumerate(figure.axes[0].lines):
        assert line.get_label() == f"head {head}"
        assert line.get_xydata().tolist() == np.stack([distances, bias[head]], axis=-1).tolist()
    assert legend_of(figure) == ["head 0", "head 1", "head 2", "head 3"]
    assert figure.axes[0].get_xlabel() == "key position - query position (tokens)"
    assert_readable(figure)


@pytest.mark.parametrize(
    ("error", "message", "draw"),
    [
        (ShapeError, r"table must be \[T, D\], got shape \(7,\)",
         lambda: position_heatmap(TABLE[0])),
        (DataError, r"table must be finite, got -inf at \[0, 1\]",
         lambda: position_heatmap([[0, -np.inf]])),
        (ShapeError, r"an even and an odd", lambda: position_curves(TABLE[:, :1], [0])),
        (DataError, "row 1 of table must not be all zeros",
         lambda: cosine_distance_heatmap([[1.0, 0], [0, 0]])),
        (ShapeError, r"sin must be \[T=5, P=7\]", lambda: rotary_heatmaps(TABLE, TABLE[:4])),
        (ShapeError, r"distances must be \[K=7\]", lambda: position_bias_curves(TABLE, [0, 1])),
    ],
)  # fmt: skip
def test_figures_of_positions_refuse(error, message, draw):
    with pytest.raises(error, match=message):
        draw()


def test_dollar_signs_begin_no_formula():
    figure = position_heatmap([[0.0]], title=r"costs $1, not \$2$")
    pixels(figure)
    assert figure.get_suptitle() == r"costs $1, not \$2$"
    assert not figure._suptitle.get_parse_math()
