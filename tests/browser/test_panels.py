"""Two models and oracles on one page: what a reader sees at a desk without scrolling, and what sorting keeps apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from sightline.report.build import build_report
from tests.unit.report.fake_run import make_run

ARMS = ("full", "protected:0.3", "target:0.3", "random:0.3", "soft_evidence:0.3")
MODELS = ("Qwen3-VL-8B-Instruct", "llava-v1.6-mistral-7b-hf")


@pytest.fixture(scope="module")
def page_of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two_models")
    runs = []
    for shift, model in enumerate(MODELS):

        def named(row: dict[str, Any], model: str = model) -> None:
            row["model"] = model

        runs.append(
            make_run(folder / model, images=8, arms=ARMS, shift=shift / 4, manifest={"model": model}, edit_row=named)
        )
    page: Path = build_report(runs, folder / "report", draws=200, cases=2)
    return page


@pytest.fixture
def two_models(browser: WebDriver, page_of_two: Path) -> WebDriver:
    browser.set_window_size(1280, 900)
    browser.get(page_of_two.as_uri())
    return browser


def sections(browser: WebDriver, table: str) -> list[list[str]]:
    """The arms of each panel, from top to bottom."""
    bodies = browser.find_elements(By.CSS_SELECTOR, f"#table-{table} tbody:not(.heading)")
    return [[str(row.text) for row in body.find_elements(By.CSS_SELECTOR, "th")] for body in bodies]


def test_the_key_column_is_visible_without_scrolling(two_models: WebDriver) -> None:
    holder = two_models.find_element(By.CSS_SELECTOR, "[aria-label='Main results']")
    head = holder.find_elements(By.CSS_SELECTOR, "thead th")[-1]
    assert head.text == "Unsupported"
    assert head.rect["x"] + head.rect["width"] <= holder.rect["x"] + holder.rect["width"] + 1
    assert two_models.execute_script("return arguments[0].scrollWidth <= arguments[0].clientWidth + 1", holder)


def test_sorting_never_mixes_panels(two_models: WebDriver) -> None:
    before = sections(two_models, "main")
    assert before == [["full", "target:0.3", "random:0.3"], ["protected:0.3", "soft_evidence:0.3"]] * 2
    two_models.find_element(By.CSS_SELECTOR, "#table-main thead th:nth-child(1) button").click()
    assert (
        sections(two_models, "main")
        == [["full", "random:0.3", "target:0.3"], ["protected:0.3", "soft_evidence:0.3"]] * 2
    )


def test_a_filter_leaves_no_heading_over_nothing(two_models: WebDriver) -> None:
    menu = Select(two_models.find_element(By.CSS_SELECTOR, "select[data-table=table-paired_differences]"))
    menu.select_by_visible_text("PosECR")
    headings = two_models.find_elements(By.CSS_SELECTOR, "#table-paired_differences tbody.heading")
    assert len(headings) == 4
    assert all(heading.is_displayed() for heading in headings)


def test_an_arm_is_named_once_per_group_until_rows_are_sorted(two_models: WebDriver) -> None:
    again = "#table-scale_strata th.again"
    assert len(two_models.find_elements(By.CSS_SELECTOR, again)) > 0
    two_models.find_element(By.CSS_SELECTOR, "#table-scale_strata thead th:nth-child(4) button").click()
    assert two_models.find_elements(By.CSS_SELECTOR, again) == []
