"""The browser that all tests of the attention viewer share, and the page as each finds it."""

import pytest

from tests.viz.browsing import CHROMIUM, DRIVER, PAGE, View


@pytest.fixture(scope="session")
def browser():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
        "--disable-background-networking", "--disable-smooth-scrolling", "--window-size=1280,900",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture
def view(browser, tmp_path):
    (tmp_path / "page.html").write_text(PAGE, encoding="utf-8")
    view = View(browser, (tmp_path / "page.html").as_uri())
    view.emulate("light")
    yield view.open()
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
