"""The sections of a run with interventions: reached from the top, read in words, sorted and narrowed like any other."""

from __future__ import annotations

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from tests.browser.test_report import cards, column, header, one

SECTIONS = ("validity", "deletion", "occlusion", "image-dependence", "positions", "interventions")


def test_every_section_is_reached_and_says_what_it_found(opened_edited: WebDriver) -> None:
    for section in SECTIONS:
        one(opened_edited, f"nav a[href='#{section}']").click()
        # The heading must not hide behind the navigation, which takes two lines now.
        below = one(opened_edited, "nav").rect["height"]
        top = "return document.getElementById(arguments[0]).getBoundingClientRect().top"
        room = "return document.documentElement.scrollHeight - innerHeight - scrollY"
        if opened_edited.execute_script(room) > 1:
            assert opened_edited.execute_script(top, f"{section}-title") >= below - 1, section
        assert one(opened_edited, f"#{section} table").is_displayed()
        if section != "interventions":
            reading = one(opened_edited, f"#{section} .reading").text
            assert reading.endswith(".")
            assert "nan" not in reading
    assert opened_edited.get_log("browser") == []


def test_intervention_tables_sort_and_narrow(opened_edited: WebDriver) -> None:
    header(opened_edited, "deletion", "Accuracy").click()
    values = [float(value) for value in column(opened_edited, "deletion", 5)]
    assert values == sorted(values)
    Select(one(opened_edited, "select[data-table=table-construct_validity]")).select_by_visible_text("LPP")
    rows = opened_edited.find_elements(By.CSS_SELECTOR, "#table-construct_validity tbody tr")
    shown = {row.find_elements(By.CSS_SELECTOR, "td")[1].text for row in rows if row.is_displayed()}
    assert shown == {"LPP"}


def test_pictures_show_plain_arms_alone(opened_edited: WebDriver) -> None:
    assert len(cards(opened_edited)) == 4
    cards(opened_edited)[0].click()
    titles = [title.text for title in opened_edited.find_elements(By.CSS_SELECTOR, "#case .panel h4")]
    assert titles == ["full", "target:0.3", "random:0.3", "evidence_only:0.3", "anti_evidence:0.3"]
    one(opened_edited, "#case-close").click()


@pytest.mark.parametrize("width", [390, 820])
def test_wide_intervention_tables_scroll_within_themselves(opened_edited: WebDriver, width: int) -> None:
    screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    opened_edited.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    assert opened_edited.execute_script("return document.documentElement.scrollWidth") <= width
