"""A headless Chromium with the report of a synthetic run. Without one the tests skip; where CI is set they fail."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver

from sightline.report.build import build_report
from tests.unit.report.cost_cards import make_cards
from tests.unit.report.fake_open_run import make_open_run
from tests.unit.report.fake_run import EDITED, make_run

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


def _missing(reason: str) -> None:
    advice = "install chromium and chromium-driver, for example with tests/browser/install_chromium.sh"
    if os.environ.get("CI"):
        pytest.fail(f"{reason}; {advice}", pytrace=False)
    pytest.skip(f"{reason}; {advice}")


@pytest.fixture(scope="session")
def chromium() -> Iterator[WebDriver]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver_program = shutil.which("chromedriver")
    if program is None or driver_program is None:
        _missing("no Chromium or no chromedriver on this machine")
    options = Options()
    options.binary_location = str(program)
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        driver = webdriver.Chrome(options=options, service=Service(driver_program))
    except WebDriverException as error:
        _missing(f"Chromium does not start ({str(error).splitlines()[0]})")
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
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    return build_report([make_run(folder / "run")], folder / "report", draws=300)


@pytest.fixture(scope="session")
def edited_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run with every intervention."""
    folder = tmp_path_factory.mktemp("browser_edited")
    return build_report([make_run(folder / "run", images=10, arms=EDITED)], folder / "report", draws=300, cases=4)


@pytest.fixture(scope="session")
def open_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run over open questions."""
    folder = tmp_path_factory.mktemp("browser_open")
    return build_report([make_open_run(folder / "run", images=12)], folder / "report", draws=200)


@pytest.fixture(scope="session")
def cost_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run with a cost card of each kind."""
    folder = tmp_path_factory.mktemp("browser_cost")
    cards = make_cards(folder / "cards")
    run = make_run(folder / "run", images=6)
    return build_report([run], folder / "report", costs=list(cards.values()), draws=300, cases=2)


@pytest.fixture
def opened_cost(browser: WebDriver, cost_page: Path) -> WebDriver:
    return _open(browser, cost_page)


@pytest.fixture
def opened_open(browser: WebDriver, open_page: Path) -> WebDriver:
    return _open(browser, open_page)


@pytest.fixture
def opened_edited(browser: WebDriver, edited_page: Path) -> WebDriver:
    return _open(browser, edited_page)


@pytest.fixture
def opened(browser: WebDriver, page: Path) -> WebDriver:
    return _open(browser, page)


def _open(browser: WebDriver, page: Path) -> WebDriver:
    """The page with every folded section opened: what is in them is to be seen."""
    browser.get(page.as_uri())
    browser.execute_script("for (const one of document.querySelectorAll('.folded > details')) one.open = true")
    return browser
