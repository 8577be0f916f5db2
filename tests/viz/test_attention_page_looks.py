"""What the attention viewer shows: texts, colours, widths, and what is read out to the blind."""

import itertools

import numpy as np

from jaxformer.viz import AttentionMap, attention_page
from tests.viz.browsing import CROSS, HEADS, KEYS, assert_shows, needs_browser

pytestmark = needs_browser


def test_page_shows_title_tokens_and_a_token_to_start_with(view):
    assert view.driver.title == view.element("h1").text == 'A "run" & <more>'
    expected = ["<|endoftext|>", "␣ನಮಸ್ಕಾರ", "</script>", "<b>bold</b>", "↵"]
    assert view.texts("#queries li") == view.texts("#rows li") == expected
    keys = ["la", "␣cat", "◌ಿ", "😀", "⟨U+202E⟩abc", KEYS[5].replace(" ", "␣"), "."]
    assert view.texts("#keys tbody th") == view.texts("#columns li") == keys
    assert view.title == "Layer 0, head 0" and view.chosen_token == ["</script>"]
    assert_shows(view, CROSS[0, 0, 2])
    assert view.all("main b:not(.bar b), main script") == []


def test_names_say_what_pictures_show(view):
    assert view.cell(1, 2).accessible_name == "Layer 1, head 2"
    assert view.cell(1, HEADS).accessible_name == "Layer 1, all heads averaged"
    assert view.element("#queries").accessible_name == "This token (query)"
    assert view.element("#keys").accessible_name == "Layer 0, head 0 looks at (keys)"
    name = view.element("#cells canvas").accessible_name
    assert name.startswith("Heat map of cross-attention, Layer 0, head 0: 5 tokens that look, 7")
    assert view.element("#status").aria_role == "status"


def pixels(view, selector):
    """The brightness of a canvas: [rows, columns]."""
    width, height, data = view.run(
        "const c = document.querySelector(arguments[0]);"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return [c.width, c.height, [...d]]",
        selector,
    )
    return np.array(data).reshape(height, width, 4)[..., :3].sum(axis=-1)


def is_ordered(values, by):
    """Whether values rise as others do, as far as those differ at all."""
    pairs = itertools.combinations(zip(by.ravel(), values.ravel(), strict=True), 2)
    return all((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in pairs if abs(a[0] - b[0]) > 0.02)


def test_heat_maps_are_darker_where_weights_are_larger_and_brighter_on_dark(view):
    view.open("#layer=1&head=0")
    last = "#overview tr:nth-child(3) td:last-child canvas"
    assert is_ordered(-pixels(view, "#cells canvas"), CROSS[1, 0])
    assert is_ordered(-pixels(view, last), CROSS[1].mean(axis=0))
    view.element("#theme").click()
    assert view.element("#theme").text == "Light colors"
    assert is_ordered(pixels(view, "#cells canvas"), CROSS[1, 0])
    assert is_ordered(pixels(view, last), CROSS[1].mean(axis=0))
    view.emulate("dark")  # the scheme that the browser prefers
    assert view.open("#layer=1&head=0").element("#theme").text == "Light colors"
    assert is_ordered(pixels(view, "#cells canvas"), CROSS[1, 0])


def test_decoder_shows_the_token_that_comes_next_beside_each(view, tmp_path):
    assert not view.element("#next-hint").is_displayed()
    tokens, following = ["<|endoftext|>", "the", "cat"], ["the", "cat", " sat"]
    weights = np.tri(3)[None, None] / np.arange(1, 4)[:, None]
    page = attention_page([AttentionMap("decoder", weights, tokens, tokens, following)])
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    view.open()
    assert view.element("#next-hint").is_displayed()
    expected = ["<|endoftext|> → the", "the → cat", "cat → ␣sat"]
    assert view.texts("#queries li") == expected
    assert [element.get_attribute("title") for element in view.all("#queries li")] == expected
