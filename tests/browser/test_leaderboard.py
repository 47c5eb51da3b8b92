"""The documented leaderboard in a browser: it fits a telephone, names everybody, and sorts within panels."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By

from sightline.leaderboard.page import write_leaderboard
from sightline.leaderboard.standings import Record, read_record
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def record() -> Record:
    return read_record(REPOSITORY / "docs/leaderboard.json")


@pytest.fixture(scope="module")
def board(record: Record, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_leaderboard(record, tmp_path_factory.mktemp("board"))


@pytest.fixture
def opened_board(browser: WebDriver, board: Path) -> WebDriver:
    browser.get(board.as_uri())
    return browser


def test_it_fits_a_telephone_and_shows_one_chart_per_budget(opened_board: WebDriver, record: Record) -> None:
    size = {"width": 400, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    opened_board.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert opened_board.execute_script("return document.documentElement.scrollWidth") <= 400
    shown = [chart for chart in opened_board.find_elements(By.CSS_SELECTOR, "svg.chart") if chart.is_displayed()]
    assert len(shown) == len(record["models"]) * len(record["budgets"])
    assert all(chart.rect["x"] + chart.rect["width"] <= 400 for chart in shown)


def test_every_entry_has_its_line_and_nothing_is_fetched(opened_board: WebDriver, record: Record) -> None:
    for line in record["overview"]:
        assert opened_board.find_elements(By.XPATH, f"//table[@id='table-overview']//th[text()='{line['method']}']")
    complaints = [entry for entry in opened_board.get_log("browser") if entry["level"] == "SEVERE"]
    assert complaints == []


def test_sorting_by_name_keeps_panels_apart(opened_board: WebDriver, record: Record) -> None:
    opened_board.find_element(By.CSS_SELECTOR, "#table-overview thead th:first-child button").click()
    bodies = opened_board.find_elements(By.CSS_SELECTOR, "#table-overview tbody:not(.heading)")
    names = [[str(cell.text) for cell in body.find_elements(By.CSS_SELECTOR, "th")] for body in bodies]
    assert names == [sorted(part) for part in names]
    assert sorted(name for part in names for name in part) == sorted(line["method"] for line in record["overview"])
