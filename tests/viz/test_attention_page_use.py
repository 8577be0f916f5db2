"""The attention viewer as a person uses it: with a mouse, a link, or the keyboard alone."""

import pytest

from tests.viz.browsing import CROSS, ENCODER, HEADS, KEYS, PAGE, assert_shows, needs_browser

pytestmark = needs_browser


def test_mouse_over_a_token_shows_where_it_looks_until_it_leaves(view):
    view.mouse().move_to_element(view.token(4)).perform()
    assert_shows(view, CROSS[0, 0, 4])
    best = CROSS[0, 0, 4].argmax()
    assert view.texts("#keys .strongest th") == [view.texts("#keys tbody th")[best]]
    assert KEYS[best].startswith("a very long")  # of which the sentence has the start alone
    percent = f"{100 * CROSS[0, 0, 4, best]:.1f}\u202f%"
    status = f"“↵” looks most at “a␣very␣long␣toke…” {percent}, “"
    assert view.element("#status").text.startswith(status)
    assert view.chosen_token == ["</script>"]
    view.mouse().move_to_element(view.element("h1")).perform()
    assert_shows(view, CROSS[0, 0, 2])


def test_click_chooses_token_layer_and_head_and_the_link_remembers(view):
    view.token(1).click()
    view.cell(1, 2).click()
    assert view.title == "Layer 1, head 2" and view.chosen_token == ["␣ನಮಸ್ಕಾರ"]
    assert_shows(view, CROSS[1, 2, 1])
    view.wait_for_link("#map=0&layer=1&head=2&token=1")
    view.cell(0, HEADS).click()
    assert view.title == "Layer 0, all heads averaged"
    assert_shows(view, CROSS[0, :, 1].mean(axis=0))
    view.wait_for_link("#map=0&layer=0&head=all&token=1")


def test_link_opens_what_it_was_made_of(view):
    view.open("#map=1&layer=1&head=all&token=6")
    assert view.title == "Layer 1, all heads averaged" and view.chosen_token == ["."]
    assert_shows(view, ENCODER[1, :, 6].mean(axis=0))
    view.run("location.hash = '#layer=1&head=1&token=0'")
    view.run("return new Promise(requestAnimationFrame)")
    assert_shows(view, CROSS[1, 1, 0])


@pytest.mark.parametrize("link", ["#layer=2&head=-1&token=x&map=8", "#%", "#layer=1.5&head=3"])
def test_wrong_link_opens_what_a_new_page_shows(view, link):
    view.open(link)
    assert view.title == "Layer 0, head 0" and view.chosen_token == ["</script>"]
    assert_shows(view, CROSS[0, 0, 2])


def test_notebook_shows_a_page_that_works_and_leaves_the_notebook_alone(view, tmp_path):
    (tmp_path / "page.html").write_text(f"<body>{PAGE._repr_html_()}", encoding="utf-8")
    view.open("#cell")
    view.driver.switch_to.frame(0)
    assert view.title == "Layer 0, head 0" and view.chosen_token == ["</script>"]
    assert not view.element("#link-hint").is_displayed()
    view.token(1).click()
    assert_shows(view, CROSS[0, 0, 1])
    view.run("return new Promise(done => setTimeout(done, 200))")  # until it would make a link
    view.driver.switch_to.default_content()
    assert view.run("return location.hash") == "#cell"


def test_other_map_has_its_own_tokens(view):
    view.open("#layer=1&head=2&token=4")
    view.all("#maps label")[1].click()
    assert len(view.texts("#queries li")) == 7
    assert_shows(view, ENCODER[1, 2, 4])
    view.open("#map=1&token=6")
    view.all("#maps label")[0].click()  # which has no token 7
    assert view.chosen_token == ["↵"]
    assert_shows(view, CROSS[0, 0, 4])


def test_everything_is_reached_by_the_keyboard_alone(view):
    from selenium.webdriver.common.keys import Keys

    reached = []
    for _ in range(6):
        view.press(Keys.TAB)
        outlined = view.run(
            "let element = document.activeElement;"
            "if (element.matches('input')) element = element.parentElement;"
            "return getComputedStyle(element).outlineStyle"
        )
        assert outlined == "solid"
        reached.append(view.focused.get_attribute("id") or view.focused.aria_role)
    assert reached == ["theme", "radio", "gridcell", "option", "weights", "region"]
    assert view.focused.accessible_name == "All tokens of this head"
    view.tab_back()
    assert view.focused.accessible_name == "Layer 0, head 0 looks at (keys)"
    view.tab_back()
    for keys, title, token in [
        ([Keys.ARROW_DOWN], "Layer 0, head 0", 3),
        ([Keys.ARROW_DOWN] * 4, "Layer 0, head 0", 4),
        ([Keys.ARROW_UP], "Layer 0, head 0", 3),
        ([Keys.HOME], "Layer 0, head 0", 0),
        ([Keys.ARROW_UP], "Layer 0, head 0", 0),
        ([Keys.END], "Layer 0, head 0", 4),
        ([Keys.ARROW_RIGHT], "Layer 0, head 1", 4),
        ([Keys.PAGE_DOWN], "Layer 1, head 1", 4),
        ([Keys.PAGE_DOWN], "Layer 1, head 1", 4),
        ([Keys.ARROW_RIGHT] * 5, "Layer 1, all heads averaged", 4),
        ([Keys.PAGE_UP], "Layer 0, all heads averaged", 4),
        ([Keys.ARROW_LEFT], "Layer 0, head 2", 4),
    ]:
        view.press(*keys)
        assert (view.title, view.focused) == (title, view.token(token)), keys
    view.mouse().key_down(Keys.CONTROL).send_keys(Keys.HOME).key_up(Keys.CONTROL).perform()
    assert_shows(view, CROSS[0, 2, 4])  # keys with Ctrl are the browser's
    view.tab_back()
    assert view.focused == view.cell(0, 2)  # back in the overview, where the head is that was left
    view.press(Keys.ARROW_DOWN, Keys.ARROW_LEFT)
    assert view.title == "Layer 1, head 1" and view.focused == view.cell(1, 1)
    view.tab_back()
    view.press(Keys.ARROW_RIGHT)
    assert_shows(view, ENCODER[1, 1, 4])
    view.tab_back()
    view.press(Keys.ENTER)
    assert view.run("return document.documentElement.dataset.theme") == "dark"


def test_cell_of_the_heat_map_is_read_and_chosen(view):
    box = view.element("#cells").rect
    cell = box["width"] / 7
    x, y = (6 - 3) * cell, (3 - 2) * box["height"] / 5  # from the middle, that of (2, 3)
    view.mouse().move_to_element_with_offset(view.element("#cells"), round(x), round(y)).perform()
    assert_shows(view, CROSS[0, 0, 3])
    percent = f"{100 * CROSS[0, 0, 3, 6]:.1f}\u202f%"
    assert view.texts("#reading") == [f"{percent}: “<b>bold</b>” looks at “.”"]
    chosen, row = view.element("#chosen-row").rect, view.all("#rows li")[3].rect
    assert chosen["y"] == pytest.approx(row["y"], abs=1)
    columns = [column.rect for column in view.all("#columns bdi")]
    assert columns[6]["x"] == pytest.approx(box["x"] + 6 * cell, abs=1)
    view.mouse().click().perform()
    view.mouse().move_to_element(view.element("h1")).perform()
    assert view.chosen_token == ["<b>bold</b>"]
    assert view.texts("#reading") == ["Point at a cell to read its weight."]
