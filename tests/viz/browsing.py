"""The attention viewer in a browser, and what a person does to it and reads on it."""

import shutil

import numpy as np
import pytest

from jaxformer.viz import AttentionMap, attention_page

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs chromium and chromedriver: apt-get install chromium chromium-driver",
)

QUERIES = ["<|endoftext|>", " ನಮಸ್ಕಾರ", "</script>", "<b>bold</b>", "\n"]
KEYS = ["la", " cat", "ಿ", "😀", "\u202eabc", "a very long token that does not fit at all", "."]
LAYERS, HEADS = 2, 3


def weights(queries, keys, seed):
    random = np.random.default_rng(seed)
    return random.dirichlet(np.full(keys, 0.3), size=(LAYERS, HEADS, queries))


CROSS, ENCODER = weights(len(QUERIES), len(KEYS), 54), weights(len(KEYS), len(KEYS), 1)
PAGE = attention_page(
    [
        AttentionMap("cross-attention", CROSS, QUERIES, KEYS),
        AttentionMap("encoder self-attention", ENCODER, KEYS, KEYS),
    ],
    title='A "run" & <more>',
)


def assert_shows(view, row):
    np.testing.assert_allclose(view.shown, row, rtol=0, atol=0.0006)


class View:
    """The open page, and what a person reads on it."""

    def __init__(self, driver, address):
        self.driver, self.address = driver, address

    def open(self, fragment=""):
        self.driver.get("about:blank")
        self.driver.get_log("browser")  # forgets what was before
        self.driver.get(self.address + fragment)
        return self

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def element(self, selector):
        (element,) = self.all(selector)
        return element

    def texts(self, selector):
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
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

    def emulate(self, scheme):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        size = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def wait_for(self, condition):
        """Waits until a condition, in JavaScript, holds."""
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(self.driver, 5, poll_frequency=0.02)
        wait.until(lambda _: self.run(f"return {condition}"), condition)

    def wait_for_link(self, expected):
        self.wait_for(f"location.hash === '{expected}'")
