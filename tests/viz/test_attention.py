import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.errors import DataError, ShapeError
from jaxformer.viz import attention_heatmaps
from tests.viz.drawing import assert_numbers_fit, assert_readable, bar_label, numbers, pixels

QUERIES, KEYS = ["ich", "heiße", "Jürgen"], ["my", "name", "is", "$a$", "\n"]


def weights(*leading):
    """Random weights whose rows sum to 1, float32 [..., 3, 5]."""
    drawn = np.random.default_rng(0).random((*leading, 3, 5)).astype(np.float32)
    return drawn / drawn.sum(axis=-1, keepdims=True)


def labels(axis):
    return [text.get_text() for text in axis.get_ticklabels() if text.get_visible()]


def panels(figure):
    return [axes for axes in figure.axes if axes.images]


def test_one_head_has_queries_down_and_keys_across():
    head = weights()
    figure = attention_heatmaps(jnp.asarray(head), QUERIES, KEYS, title="layer 3")
    (axes,) = panels(figure)
    (image,) = axes.images
    assert np.array_equal(image.get_array(), head)
    assert image.get_clim() == (0, head.max())
    pixels(figure)
    assert labels(axes.yaxis) == QUERIES
    assert labels(axes.xaxis) == ["my", "name", "is", "$a$", "↵"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key", "query")
    assert axes.get_title() == "" and figure.get_suptitle() == "layer 3"
    assert bar_label(figure) == "attention weight"
    top, bottom = axes.transData.transform([[0, 0], [0, 2]])
    assert top[1] > bottom[1]
    assert numbers(axes) == [f"{w:.2f}" for w in head.flat]
    assert_readable(figure)
    assert_numbers_fit(figure)


def test_heads_are_panels_that_wrap_and_share_a_scale():
    six = weights(6)
    figure = attention_heatmaps(six, QUERIES, KEYS, label="weight")
    shown = panels(figure)
    assert len(shown) == 6 and len(figure.axes) == 7
    for head, axes in enumerate(shown):
        assert axes.get_title() == f"head {head}"
        assert np.array_equal(axes.images[0].get_array(), six[head])
        assert axes.images[0].get_clim() == (0, six.max())
    places = [(axes.get_subplotspec().rowspan.start, axes.get_subplotspec().colspan.start)
              for axes in shown]  # fmt: skip
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert bar_label(figure) == "weight"
    assert_readable(figure)
    named = attention_heatmaps(six[:2], QUERIES, KEYS, names=["first", "second"])
    assert [axes.get_title() for axes in panels(named)] == ["first", "second"]


def test_layers_are_rows():
    grid = weights(2, 7)
    figure = attention_heatmaps(grid, QUERIES, KEYS)
    shown = panels(figure)
    for index, axes in enumerate(shown):
        layer, head = divmod(index, 7)
        assert np.array_equal(axes.images[0].get_array(), grid[layer, head])
        place = axes.get_subplotspec()
        assert (place.rowspan.start, place.colspan.start) == (layer, head)
        assert axes.get_title() == (f"head {head}" if layer == 0 else "")
        assert axes.get_ylabel() == (f"layer {layer}\nquery" if head == 0 else "")
    assert_readable(figure)
    assert_numbers_fit(figure)


def test_scores_have_colours_around_zero_and_masked_ones_are_hatched():
    scores = np.array([[0.5, -np.inf, -np.inf], [0.25, 0.75, -np.inf], [0.0, 0.5, 1.0]])
    figure = attention_heatmaps(scores, QUERIES, label="score", scores=True)
    (axes,) = panels(figure)
    (image,) = axes.images
    assert image.get_clim() == (-1, 1) and image.get_cmap().name == "RdBu_r"
    assert image.get_array().mask.tolist() == np.isneginf(scores).tolist()
    assert axes.patch.get_hatch() and bar_label(figure) == "score\n(hatched: masked)"
    assert numbers(axes) == ["0.50", "0.25", "0.75", "0.00", "0.50", "1.00"]
    drawn = pixels(figure)
    left, low = axes.transData.transform([1.5, 0.4])
    right, high = axes.transData.transform([2.4, -0.4])
    rows = drawn.shape[0] - np.array([high, low])
    cell = drawn[int(rows[0]) : int(rows[1]), int(left) : int(right), :3]
    assert np.ptp(cell, axis=-1).max() < 0.02  # grey
    assert cell.min() < 0.75 and cell.max() > 0.9  # of two shades
    assert_readable(figure)


@pytest.mark.parametrize("value", [-0.5, 1.5, -np.inf])
def test_scores_that_are_taken_for_weights_are_refused(value):
    weights = [[value, 0.5], [0.25, 0.75]]
    with pytest.raises(DataError, match=r"weights must be between 0 and 1, got .*pass scores=True"):
        attention_heatmaps(weights, ["a", "b"])
    attention_heatmaps(weights, ["a", "b"], scores=True)


def test_scale_of_weights_ends_at_the_largest_even_if_it_is_rounded_or_0():
    for largest, end in ((0.02, 0.02), (1.000001, 1.000001), (0.0, 1.0)):
        (image,) = panels(attention_heatmaps([[0.0, largest]], ["a"], ["b", "c"]))[0].images
        np.testing.assert_allclose(image.get_clim(), (0, end), rtol=1e-6)


def test_many_tokens_are_named_as_far_as_there_is_room():
    tokens = [f"t{i}" for i in range(60)]
    figure = attention_heatmaps(np.zeros((60, 60)), tokens)
    pixels(figure)
    (axes,) = panels(figure)
    assert labels(axes.yaxis) == labels(axes.xaxis) == tokens
    many = [f"t{i}" for i in range(400)]
    figure = attention_heatmaps(np.zeros((400, 400)), many)
    pixels(figure)
    (axes,) = panels(figure)
    assert labels(axes.yaxis) == many[::3]
    boxes = [text.get_window_extent() for text in axes.yaxis.get_ticklabels()]
    assert all(box.y0 > other.y1 for box, other in zip(boxes, boxes[1:], strict=False))
    assert max(figure.get_size_inches()) < 24


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ShapeError, r"must be \[T, S\], \[heads, T, S\] or \[layers, heads, T, S\], got 1 axes",
         (np.zeros(3), QUERIES)),
        (ShapeError, r"weights must be \[T=3, S=3\], got shape \(3, 5\)", (weights(), QUERIES)),
        (ShapeError, "weights must be an array of numbers with rows of equal length, got list",
         ([[1], [2, 3]], QUERIES)),
        (ShapeError, "weights must have no empty axis", (np.zeros((0, 3, 3)), QUERIES)),
        (DataError, r"finite, or -inf where masked, got nan at \[0, 1\]",
         ([[0, np.nan]], ["a"], ["b", "c"])),
    ],
)  # fmt: skip
def test_attention_heatmaps_refuse(error, message, arguments):
    with pytest.raises(error, match=message):
        attention_heatmaps(*arguments)
    with pytest.raises(ShapeError, match="names must have one name for each of 2 heads, got 1"):
        attention_heatmaps(weights(2), QUERIES, KEYS, names=["first"])
