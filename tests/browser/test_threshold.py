"""Pictures of a page whose answers are at a threshold: margins stand beside it, and are ordered by their distance."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from sightline.report.build import build_report
from tests.unit.report.fake_run import make_run


def test_margins_are_told_and_ordered_from_the_threshold(browser: WebDriver, tmp_path: Path) -> None:
    def high(row: dict[str, Any]) -> None:
        row["margin"] += 2.0

    run = make_run(tmp_path / "run", images=8, arms=("full", "target:0.3"), edit_row=high)
    browser.get(build_report([run], tmp_path / "out", threshold=2.0, draws=100, cases=8).as_uri())
    assert browser.get_log("browser") == []
    Select(browser.find_element(By.ID, "gallery-order")).select_by_value("margin")
    facts = [card.text for card in browser.find_elements(By.CSS_SELECTOR, "#gallery .card .facts")]
    told = [re.search(r"(yes|no), \w+ · margin ([+−][\d.]+) at t = \+2\.000", text) for text in facts]
    margins = [float(found[2].replace("−", "-")) for found in told if found]
    assert len(margins) == len(facts) > 1
    assert [found[1] == "yes" for found in told if found] == [margin >= 2.0 for margin in margins]
    distances = [abs(margin - 2.0) for margin in margins]
    assert distances == sorted(distances, reverse=True)
