"""Formulas that are none, and figures that nothing keeps."""

import pathlib

from jaxformer.viz import arrays, position_heatmap
from tests.viz.drawing import pixels


def test_dollar_signs_begin_no_formula():
    figure = position_heatmap([[0.0]], title=r"costs $1, not \$2$")
    pixels(figure)
    assert figure.get_suptitle() == r"costs $1, not \$2$"
    assert not figure._suptitle.get_parse_math()


def test_figures_are_made_without_pyplot_which_would_keep_and_show_them():
    for path in pathlib.Path(arrays.__file__).parent.glob("*.py"):
        assert "pyplot" not in path.read_text(encoding="utf-8"), path
