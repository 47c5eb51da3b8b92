"""The section of cost cards: reached from the top, warnings in sight, pictures for night, paper and phone."""

from __future__ import annotations

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By

from tests.browser.test_report import column, header, one

PARTS = "#realised-cost .part"


def colours(browser: WebDriver, selector: str, name: str) -> set[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => getComputedStyle(e)[arguments[1]])"
    return set(browser.execute_script(script, selector, name))


def test_the_section_is_reached_and_every_card_is_warned_about(opened_cost: WebDriver) -> None:
    one(opened_cost, "nav a[href='#realised-cost']").click()
    parts = opened_cost.find_elements(By.CSS_SELECTOR, PARTS)
    assert len(parts) == 3
    for part in parts:
        warnings = [note.text for note in part.find_elements(By.CSS_SELECTOR, ".note") if note.is_displayed()]
        assert warnings == [
            "random weights: times hold, answers do not exist",
            "no GPU was used: these times say nothing about a GPU",
        ]
        assert part.find_element(By.CSS_SELECTOR, "dl").is_displayed()
        assert part.find_element(By.CSS_SELECTOR, ".reading").text.endswith(".")
    assert opened_cost.get_log("browser") == []


def test_bars_start_at_one_place_and_stages_follow_each_other(opened_cost: WebDriver) -> None:
    script = """
      return [...document.querySelectorAll('#realised-cost svg.wide rect')].filter((r) => r.querySelector('title'))
        .map((r) => [+r.getAttribute('y'), +r.getAttribute('x'), +r.getAttribute('width')])"""
    rows: dict[float, list[tuple[float, float]]] = {}
    for top, left, width in opened_cost.execute_script(script):
        rows.setdefault(top, []).append((left, width))
    assert len(rows) == 4, "two arms under two executions"
    assert len({pieces[0][0] for pieces in rows.values()}) == 1
    for pieces in rows.values():
        ends = [left + width for left, width in pieces[:-1]]
        assert ends == pytest.approx([left for left, _ in pieces[1:]], abs=0.02)


def test_cost_tables_sort(opened_cost: WebDriver) -> None:
    header(opened_cost, "realised_ttft", "Total, ms").click()
    values = [float(value) for value in column(opened_cost, "realised_ttft", 5)]
    assert values == sorted(values)
    assert len(values) == 4


def test_charts_follow_the_theme(opened_cost: WebDriver) -> None:
    words = f"{PARTS} .chart .name"
    assert colours(opened_cost, words, "fill") == {"rgb(28, 29, 32)"}
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    opened_cost.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": dark})
    assert colours(opened_cost, words, "fill") == {"rgb(231, 230, 225)"}
    assert colours(opened_cost, f"{PARTS} .whisker", "stroke") == {"rgb(231, 230, 225)"}
    opened_cost.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert colours(opened_cost, words, "fill") == {"rgb(0, 0, 0)"}


@pytest.mark.parametrize("width", [390, 820])
def test_wide_parts_scroll_within_themselves(opened_cost: WebDriver, width: int) -> None:
    screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    opened_cost.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    assert opened_cost.execute_script("return document.documentElement.scrollWidth") <= width
