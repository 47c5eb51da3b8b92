"""A headless Chromium with the report of a synthetic run. Without one the tests skip; where CI is set they fail."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.runs.pages import Page, report_on

_PARTS = Path(__file__).with_name("scripts.js").read_text(encoding="utf-8").split("\n//// ")[1:]
SCRIPTS = {name: script for name, _, script in (part.partition("\n") for part in _PARTS)}
"""What is executed in pages, by its name in ``scripts.js``."""
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


@pytest.fixture(scope="session")
def chromium() -> Iterator[WebDriver]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    options = Options()
    options.binary_location = str(program)
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        if program is None or shutil.which("chromedriver") is None:
            raise WebDriverException("no Chromium or no chromedriver on this machine")
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    except WebDriverException as error:
        advice = "install chromium and chromium-driver, for example with tests/browser/install_chromium.sh"
        reason = f"Chromium does not start ({str(error.msg).splitlines()[0]}); {advice}"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium: WebDriver) -> WebDriver:
    """The one browser of the session, without the screen, colours or paper that another test may have left it with."""
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    chromium.set_window_size(1360, 900)
    return chromium


@pytest.fixture(scope="session")
def costs(run: Path, cards: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The report on a run with a cost card of each kind."""
    return report_on(tmp_path_factory.mktemp("costs"), run, costs=list(cards.values()), cases=2)


@pytest.fixture
def opened(browser: WebDriver) -> Callable[[Path], WebDriver]:
    """Opens a report with all folded sections open: what is in them is seen."""

    def show(page: Path) -> WebDriver:
        browser.get(page.as_uri())
        browser.execute_script("for (const one of document.querySelectorAll('.folded > details')) one.open = true")
        return browser

    return show


Opened = Callable[[Path], WebDriver]


def one(place: WebDriver | WebElement, css: str) -> WebElement:
    return place.find_element(By.CSS_SELECTOR, css)


def every(place: WebDriver | WebElement, css: str) -> list[WebElement]:
    return place.find_elements(By.CSS_SELECTOR, css)


def texts(place: WebDriver | WebElement, css: str) -> list[str]:
    return [str(found.text) for found in every(place, css)]


def fits(browser: WebDriver, width: int) -> bool:
    """Whether a telephone or tablet of that width shows the page without scrolling sideways; it stays one."""
    screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    return bool(browser.execute_script("return document.documentElement.scrollWidth") <= width)


def prefer(browser: WebDriver, scheme: str, media: str = "") -> None:
    """Light or dark; on a screen or, as medium, in print."""
    features = [{"name": "prefers-color-scheme", "value": scheme}] if scheme else []
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def fetched(browser: WebDriver) -> list[str]:
    """What the page asked of any machine: nothing that it has with it."""
    names = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    return [name for name in names if not name.startswith(("data:", "blob:"))]
