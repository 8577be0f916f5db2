"""Letters that a figure draws: other scripts, formulas that are none, and missing fonts."""

import pathlib
import warnings

import pytest
from matplotlib import font_manager

from jaxformer.viz import attention_heatmaps, position_heatmap, style
from tests.viz.drawing import assert_readable, pixels

KANNADA = "ಕ್ಷಮಿಸಿ"


@pytest.fixture(autouse=True)
def forget_fonts():
    style._families.cache_clear()
    yield
    style._families.cache_clear()


def test_default_font_alone_draws_german():
    assert style.Lettering.of(["Jürgen heißt"]).families == ("sans-serif",)


def test_missing_characters_are_written_as_codes_with_one_warning(monkeypatch):
    only = [font for font in font_manager.fontManager.ttflist if "DejaVu" in font.name]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", only)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    with pytest.warns(UserWarning, match=r"such as U\+0C95 KANNADA LETTER KA") as found:
        figure = attention_heatmaps([[0.5, 0.5]], ["a"], ["ಕ", "b"])
    assert len(found) == 1 and "Noto Sans" in str(found[0].message)
    pixels(figure)  # without a warning
    assert figure.axes[0].get_xticklabels()[0].get_text() == "\\u0c95"


def test_other_fonts_are_taken_for_what_the_default_one_lacks(monkeypatch):
    """A font that has boxes for all characters is no help."""
    if not any("annada" in pathlib.Path(p).name for p in font_manager.findSystemFonts()):
        pytest.skip("no font with Kannada is installed")
    lettering = style.Lettering.of([KANNADA, "Köln"])
    assert lettering.missing == frozenset() and lettering.token(KANNADA) == KANNADA
    default, kannada = lettering.families
    assert default == "sans-serif" and "Kannada" in kannada
    path = font_manager.findfont(kannada)
    assert set(KANNADA) <= style._characters(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = attention_heatmaps([[1.0]], [KANNADA], ["Köln"], title=KANNADA)
        assert_readable(figure)
    assert kannada in figure.axes[0].get_yticklabels()[0].get_fontfamily()


def test_last_resort_font_does_not_count(monkeypatch):
    last = [f for f in font_manager.fontManager.ttflist if "LastResort" in f.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", last)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    with pytest.warns(UserWarning, match="no installed font has 1"):
        assert style.Lettering.of(["ಕ"]).missing == {"ಕ"}


def test_tokens_that_cannot_be_seen_are_shown():
    lettering = style.Lettering.of([" ", "\t\n", "a b", "\u200c\u200d"])
    shown = [lettering.token(t) for t in (" ", "\t\n", "a b", "\xa0", "")]
    assert shown == ["' '", "\\t\\n", "a b", "\\xa0", ""]
    assert lettering.token("ಕ್\u200d") == "ಕ್\u200d"
    assert lettering.title("a\nb\t") == "a\nb\\t"


def test_dollar_signs_begin_no_formula():
    figure = position_heatmap([[0.0]], title=r"costs $1, not \$2$")
    pixels(figure)
    assert figure.get_suptitle() == r"costs $1, not \$2$"
    assert all(not text.get_parse_math() for text in [figure._suptitle])


def test_curves_of_28_numbers_differ():
    styles = [style.line_style(i) for i in range(28)]
    assert len({(s["color"], s["linestyle"]) for s in styles}) == 28


def test_figures_are_made_without_pyplot_which_would_keep_and_show_them():
    for path in pathlib.Path(style.__file__).parent.glob("*.py"):
        assert "pyplot" not in path.read_text(encoding="utf-8"), path
