"""Sections of reports that not every run has, and the leaderboard, in a real browser."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from sightline.leaderboard.page import write_leaderboard
from sightline.leaderboard.standings import Record, read_record
from tests.browser.test_report import cards, column, header, one
from tests.conftest import REPOSITORY

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


def texts(driver: WebDriver, selector: str) -> list[str]:
    return [found.text for found in driver.find_elements(By.CSS_SELECTOR, selector)]


def test_a_card_shows_question_accepted_answers_the_arms_and_fulls(opened_open: WebDriver) -> None:
    card = cards(opened_open)[0]
    assert "?" in card.find_element(By.CSS_SELECTOR, ".quoted").text
    assert card.find_element(By.CSS_SELECTOR, ".accepted").text.startswith("Accepted: “")
    told = card.find_element(By.CSS_SELECTOR, ".facts").text
    assert "score" in told
    assert "loss" in told
    assert "Full: “" in told
    assert "cells left" in told
    assert "right without evidence" in told, "such answers come first"
    assert opened_open.get_log("browser") == []


def test_regions_have_letters_and_the_key_says_what_they_mean(opened_open: WebDriver) -> None:
    letters = set(texts(opened_open, "#gallery svg text"))
    key = texts(opened_open, "#answers .key li")
    assert letters == {"V", "L", "X", "A"}
    for letter, words in (("V", "the answer's value"), ("L", "label of the field"), ("X", "context")):
        assert any(line.replace("\n", " ").split(maxsplit=1) == [letter, words] for line in key), key


def test_filters_narrow_to_confident_wrong_answers(opened_open: WebDriver) -> None:
    one(opened_open, "[data-filter=confident]").click()
    assert cards(opened_open)
    assert all("confident and wrong" in card.text for card in cards(opened_open))
    one(opened_open, "[data-filter=flip]").click()
    assert all("other than Full's" in card.text for card in cards(opened_open))


def test_orders_put_the_surest_answer_first(opened_open: WebDriver) -> None:
    Select(one(opened_open, "#gallery-order")).select_by_value("loss")
    losses = [float(card.text.split("loss ")[1].split()[0]) for card in cards(opened_open)]
    assert losses == sorted(losses)


def test_a_count_leads_to_its_cases(opened_open: WebDriver) -> None:
    links = opened_open.find_elements(By.CSS_SELECTOR, "#table-changed_answers a[data-cases*='change=lost']")
    wanted = {str(found.get_attribute("data-cases")): found for found in links}
    asked, link = next((asked, found) for asked, found in wanted.items() if "evidence=" in asked)
    opened_open.execute_script("arguments[0].scrollIntoView()", link)
    opened_open.execute_script("arguments[0].click()", link)
    shown = cards(opened_open)
    assert 0 < len(shown) <= int(link.text)
    chosen = Select(one(opened_open, "#gallery-arm")).first_selected_option.text
    assert parse_qs(asked)["arm"] == [chosen]
    assert all(f"— {chosen}" in card.text for card in shown)
    assert "changed to wrong" in one(opened_open, "#gallery-found").text
    one(opened_open, "[data-filter=all]").click()
    assert "changed to wrong" not in one(opened_open, "#gallery-found").text


def test_counts_of_which_no_case_is_shown_are_no_links(opened_open: WebDriver) -> None:
    for cell in opened_open.find_elements(By.CSS_SELECTOR, "#table-changed_answers td.n"):
        if cell.text == "0":
            assert not cell.find_elements(By.TAG_NAME, "a")


def test_a_case_opens_with_every_arm_and_the_meaning_of_its_letters(opened_open: WebDriver) -> None:
    opened_open.execute_script("arguments[0].click()", cards(opened_open)[0])
    facts = one(opened_open, "#case-facts").text
    assert facts.startswith("Accepted: “")
    assert "the answer's value" in facts
    assert len(opened_open.find_elements(By.CSS_SELECTOR, "#case .panel")) == 10
    one(opened_open, "#case-zoom").click()
    assert opened_open.find_elements(By.CSS_SELECTOR, "#case .panel svg text")
    one(opened_open, "#case-close").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_shows_no_sideways_page(opened_open: WebDriver, scheme: str) -> None:
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    opened_open.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    opened_open.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert opened_open.execute_script("return document.documentElement.scrollWidth") <= 400
    assert one(opened_open, "#scores .only-narrow").is_displayed()
    assert not one(opened_open, "#scores .only-wide").is_displayed()


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
