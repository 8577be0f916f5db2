"""The attention viewer as a person uses it: with a mouse, a finger, or the keyboard alone."""

import http.server
import itertools
import json
import shutil
import threading

import numpy as np
import pytest

from jaxformer.viz import AttentionMap, attention_page

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs chromium and chromedriver: apt-get install chromium chromium-driver",
)

QUERIES = ["<|endoftext|>", " ನಮಸ್ಕಾರ", "</script>", "<b>bold</b>", "\n"]
KEYS = ["la", " cat", "ಿ", "😀", "\u202eabc", "a very long token that does not fit at all", "."]
LAYERS, HEADS = 2, 3


def weights(queries, keys, seed):
    random = np.random.default_rng(seed)
    return random.dirichlet(np.full(keys, 0.3), size=(LAYERS, HEADS, queries))


CROSS, ENCODER = weights(len(QUERIES), len(KEYS), 0), weights(len(KEYS), len(KEYS), 1)
PAGE = attention_page(
    [
        AttentionMap("cross-attention", CROSS, QUERIES, KEYS),
        AttentionMap("encoder self-attention", ENCODER, KEYS, KEYS),
    ],
    title='A "run" & <more>',
)


@pytest.fixture(scope="session")
def browser():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
        "--disable-background-networking", "--window-size=1280,900",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


class View:
    """The open page, and what a person reads on it."""

    def __init__(self, driver, address):
        self.driver, self.address = driver, address

    def open(self, fragment=""):
        self.driver.get("about:blank")
        for log in ("browser", "performance"):
            self.driver.get_log(log)  # forgets what was before
        self.driver.get(self.address + fragment)
        return self

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        (element,) = self.all(selector)
        return element

    def texts(self, selector):
        script = "return [...document.querySelectorAll(arguments[0])].map(one => one.textContent)"
        return self.run(script, selector)

    @property
    def title(self):
        return self.texts("#view-title")[0]

    @property
    def shown(self):
        """The weights beside the keys."""
        texts = self.texts("#keys tbody td:not(.bar)")
        assert all(text.endswith("\u202f%") for text in texts)
        return [float(text[:-2]) / 100 for text in texts]

    @property
    def chosen_token(self):
        return self.texts("#queries [aria-selected=true]")

    def token(self, index):
        return self.all("#queries li")[index]

    def cell(self, layer, head):
        return self.all("#overview [role=gridcell]")[layer * (HEADS + 1) + head]

    def mouse(self):
        from selenium.webdriver import ActionChains

        return ActionChains(self.driver, duration=0)

    def press(self, *keys):
        self.mouse().send_keys(*keys).perform()

    def tab_back(self):
        from selenium.webdriver.common.keys import Keys

        self.mouse().key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()

    @property
    def focused(self):
        return self.driver.switch_to.active_element

    def emulate(self, scheme, width=1280, mobile=False):
        send = self.driver.execute_cdp_cmd
        feature = {"name": "prefers-color-scheme", "value": scheme}
        send("Emulation.setEmulatedMedia", {"features": [feature]})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": mobile}
        send("Emulation.setDeviceMetricsOverride", size)

    def wait_for(self, condition):
        """Waits until a condition, in JavaScript, holds."""
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(self.driver, 5, poll_frequency=0.02)
        wait.until(lambda _: self.run(f"return {condition}"), condition)

    def wait_for_link(self, expected):
        self.wait_for(f"location.hash === '{expected}'")


@pytest.fixture
def view(browser, tmp_path):
    (tmp_path / "page.html").write_text(PAGE, encoding="utf-8")
    view = View(browser, (tmp_path / "page.html").as_uri())
    view.emulate("light")
    yield view.open()
    assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []


def assert_shows(view, row):
    np.testing.assert_allclose(view.shown, row, rtol=0, atol=0.0006)


def test_page_shows_title_tokens_and_a_token_to_start_with(view):
    assert view.driver.title == view.one("h1").text == 'A "run" & <more>'
    expected = ["<|endoftext|>", "␣ನಮಸ್ಕಾರ", "</script>", "<b>bold</b>", "↵"]
    assert view.texts("#queries li") == view.texts("#rows li") == expected
    keys = ["la", "␣cat", "◌ಿ", "😀", "⟨U+202E⟩abc", KEYS[5].replace(" ", "␣"), "."]
    assert view.texts("#keys tbody th") == view.texts("#columns li") == keys
    assert view.title == "Layer 0, head 0" and view.chosen_token == ["</script>"]
    assert_shows(view, CROSS[0, 0, 2])
    assert view.all("main b:not(.bar b), main script") == []


def test_page_loads_nothing_but_itself(view):
    events = [json.loads(one["message"])["message"] for one in view.driver.get_log("performance")]
    requests = [one for one in events if one["method"] == "Network.requestWillBeSent"]
    assert {one["params"]["request"]["url"] for one in requests} == {view.address}


def test_policy_lets_nothing_in_and_nothing_out(view):
    class Server(http.server.BaseHTTPRequestHandler):
        asked = []

        def do_GET(self):
            self.asked.append(self.path)
            self.send_error(404)

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        refused = view.driver.execute_async_script(
            """
            const [address, done] = arguments;
            const refused = [];
            document.addEventListener("securitypolicyviolation", (event) => {
              refused.push(event.effectiveDirective);
              if (refused.length === 4) done(refused.sort());
            });
            fetch(address + "/fetch").catch(() => {});
            new Image().src = address + "/image";
            const script = document.createElement("script");
            script.textContent = "document.title = 'taken over'";
            document.body.append(script);
            const link = document.createElement("link");
            link.rel = "stylesheet";
            link.href = address + "/style";
            document.body.append(link);
            """,
            address,
        )
        server.shutdown()
    assert refused == ["connect-src", "img-src", "script-src-elem", "style-src-elem"]
    assert Server.asked == [] and "taken over" not in view.driver.title
    view.driver.get_log("browser")  # has what was refused


def test_mouse_over_a_token_shows_where_it_looks_until_it_leaves(view):
    view.mouse().move_to_element(view.token(4)).perform()
    assert_shows(view, CROSS[0, 0, 4])
    best = CROSS[0, 0, 4].argmax()
    assert view.texts("#keys .strongest th") == [view.texts("#keys tbody th")[best]]
    assert KEYS[best].startswith("a very long")  # of which the sentence has the start alone
    percent = f"{100 * CROSS[0, 0, 4, best]:.1f}\u202f%"
    said = f"“↵” looks most at “a␣very␣long␣toke…” {percent}, “"
    assert view.one("#status").text.startswith(said)
    assert view.chosen_token == ["</script>"]
    view.mouse().move_to_element(view.one("h1")).perform()
    assert_shows(view, CROSS[0, 0, 2])


@pytest.mark.parametrize("width", [320, 760, 1280])
def test_nothing_moves_away_from_the_pointer(view, width):
    view.emulate("light", width=width)
    view.open("#map=1")
    script = (
        "return [...document.querySelectorAll('#queries li, #cells, .help')]"
        ".map(one => one.getBoundingClientRect().top + scrollY)"
    )
    before = view.run(script)
    places = [(one, 0, 0) for one in view.all("#queries li")]
    cells = view.one("#cells")
    places += [(cells, round(2 * cells.rect["width"] / 7), round(2 * cells.rect["height"] / 7))]
    for place in places:
        view.mouse().move_to_element_with_offset(*place).perform()
        assert view.run(script) == before
    assert view.texts("#reading")[0].count("a␣very␣long␣toke…") == 2
    status = view.one("#status")
    assert view.run("return arguments[0].scrollHeight <= arguments[0].clientHeight", status)


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
    for _ in range(4):
        view.press(Keys.TAB)
        outlined = view.run(
            "let one = document.activeElement; if (one.matches('input')) one = one.parentElement;"
            "return getComputedStyle(one).outlineStyle"
        )
        assert outlined == "solid"
        reached.append(view.focused.get_attribute("id") or view.focused.aria_role)
    assert reached == ["theme", "radio", "gridcell", "option"]
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


def test_keys_are_not_hidden_by_a_pointer_that_rests(view):
    from selenium.webdriver.common.keys import Keys

    view.token(0).click()
    view.mouse().move_to_element(view.token(2)).perform()
    view.press(Keys.ARROW_DOWN)
    assert_shows(view, CROSS[0, 0, 1])


def test_selected_elements_alone_are_in_the_order_of_tab(view):
    view.open("#layer=1&head=1&token=1")
    for selector, count in (("#queries li", 5), ("#overview [role=gridcell]", 8)):
        states = [
            (one.get_attribute("aria-selected"), one.get_attribute("tabindex"))
            for one in view.all(selector)
        ]
        assert sorted(states) == [("false", "-1")] * (count - 1) + [("true", "0")]


def test_names_say_what_pictures_show(view):
    assert view.cell(1, 2).accessible_name == "Layer 1, head 2"
    assert view.cell(1, HEADS).accessible_name == "Layer 1, all heads averaged"
    assert view.one("#queries").accessible_name == "This token"
    assert view.one("#keys").accessible_name == "Layer 0, head 0 looks at"
    name = view.one("#cells canvas").accessible_name
    assert name.startswith("Heat map of cross-attention, Layer 0, head 0: 5 tokens that look, 7")
    assert view.one("#status").aria_role == "status"


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
    view.one("#theme").click()
    assert is_ordered(pixels(view, "#cells canvas"), CROSS[1, 0])
    assert is_ordered(pixels(view, last), CROSS[1].mean(axis=0))


def test_cell_of_the_heat_map_is_read_and_chosen(view):
    box = view.one("#cells").rect
    cell = box["width"] / 7
    x, y = (6 - 3) * cell, (3 - 2) * box["height"] / 5  # from the middle, that of (2, 3)
    view.mouse().move_to_element_with_offset(view.one("#cells"), round(x), round(y)).perform()
    assert_shows(view, CROSS[0, 0, 3])
    percent = f"{100 * CROSS[0, 0, 3, 6]:.1f}\u202f%"
    assert view.texts("#reading") == [f"{percent}: “<b>bold</b>” → “.”"]
    chosen, row = view.one("#chosen-row").rect, view.all("#rows li")[3].rect
    assert chosen["y"] == pytest.approx(row["y"], abs=1)
    columns = [one.rect for one in view.all("#columns bdi")]
    assert columns[6]["x"] == pytest.approx(box["x"] + 6 * cell, abs=1)
    view.mouse().click().perform()
    view.mouse().move_to_element(view.one("h1")).perform()
    assert view.chosen_token == ["<b>bold</b>"]
    assert view.texts("#reading") == ["Point at a cell to read its weight."]


def test_lines_go_from_the_token_to_the_keys_it_looks_at(view):
    view.token(3).click()
    seen = np.flatnonzero(np.round(CROSS[0, 0, 3] * 65535) / 65535 >= 0.005)
    lines = view.run(
        "return [...document.querySelectorAll('#lines path')].map((line) => {"
        "const box = line.getBBox(), end = line.getPointAtLength(line.getTotalLength());"
        "return [line.getPointAtLength(0).y, end.y, +line.getAttribute('stroke-width')]})"
    )
    np.testing.assert_allclose([start for start, *_ in lines], 3.5)
    np.testing.assert_allclose([end for _, end, _ in lines], seen + 0.5, atol=1e-3)
    assert is_ordered(np.array([width for *_, width in lines]), CROSS[0, 0, 3, seen])
    box, svg = view.token(3).rect, view.one("#lines").rect
    middle = svg["y"] + 3.5 * svg["height"] / 7
    assert middle == pytest.approx(box["y"] + box["height"] / 2, abs=1)
    key = view.all("#keys tbody tr")[6].rect
    last = svg["y"] + 6.5 * svg["height"] / 7
    assert last == pytest.approx(key["y"] + key["height"] / 2, abs=1)


CONTRASTS = """
const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = (colour) => {
  const [r, g, b] = channels(colour).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  const colour = getComputedStyle(element).backgroundColor;
  return channels(colour)[3] === 0 ? behind(element.parentElement) : colour;
};
const found = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
  if (element.closest("script, noscript, .unseen")) continue;
  const colours = [getComputedStyle(element).color, behind(element)];
  const [most, least] = colours.map(light).sort((a, b) => b - a);
  found.push([(most + 0.05) / (least + 0.05), texts.currentNode.data]);
}
return found;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast_in_the_scheme_that_is_preferred(view, scheme):
    view.emulate(scheme)
    view.mouse().move_to_element(view.token(4)).perform()  # one pointed at, one chosen
    for toggled in (False, True):
        if toggled:
            view.one("#theme").click()
        dark = (scheme == "dark") != toggled
        colour = view.run("return getComputedStyle(document.body).backgroundColor")
        assert (colour == "rgb(14, 19, 24)") == dark
        assert view.one("#theme").text == ("Light colours" if dark else "Dark colours")
        found = view.run(CONTRASTS)
        assert len(found) > 60 and min(found)[0] >= 4.5, min(found)


def test_scheme_is_followed_while_the_page_is_open(view):
    view.emulate("dark")
    view.wait_for("document.querySelector('#theme').textContent === 'Light colours'")
    assert pixels(view, "#ramp")[0, 0] < pixels(view, "#ramp")[0, -1]
    view.emulate("light")
    view.wait_for("document.querySelector('#theme').textContent === 'Dark colours'")
    assert pixels(view, "#ramp")[0, 0] > pixels(view, "#ramp")[0, -1]


def test_page_fits_a_phone_and_a_finger(view):
    from selenium.webdriver.common.actions.action_builder import ActionBuilder
    from selenium.webdriver.common.actions.pointer_input import PointerInput

    view.emulate("light", width=390, mobile=True)
    view.open()
    assert view.run("return [innerWidth, document.documentElement.scrollWidth]") == [390, 390]
    for selector, least in (("#queries li", 32), ("#overview td[role]", 24), ("button", 24)):
        assert min(one.rect["height"] for one in view.all(selector)) >= least
        assert min(one.rect["width"] for one in view.all(selector)) >= least
    for text in view.all("#status, .hint, #keys td:not(.bar), .help dd"):
        assert view.run("return arguments[0].scrollWidth <= arguments[0].clientWidth", text)
    finger = ActionBuilder(view.driver, mouse=PointerInput("touch", "finger"), duration=0)
    finger.pointer_action.move_to(view.token(3)).pointer_down().pointer_up()
    finger.perform()
    assert view.chosen_token == ["<b>bold</b>"]
    assert_shows(view, CROSS[0, 0, 3])


def test_one_map_is_named_but_not_offered(view, tmp_path):
    page = attention_page([AttentionMap("encoder self-attention", ENCODER, KEYS, KEYS)])
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    view.open()
    assert not view.one("#maps").is_displayed()
    assert view.one("#kind").text == (
        "encoder self-attention; 2 layers of 3 heads; 7 tokens look at 7"
    )


def test_token_that_sees_nothing_looks_nowhere(view, tmp_path):
    page = attention_page([AttentionMap("a", np.zeros((1, 1, 1, 2)), ["x"], ["y", "z"])])
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    view.open()
    assert view.one("#status").text == "“x” looks at no token."
    assert view.shown == [0, 0] and view.all("#lines path, #keys .strongest") == []
