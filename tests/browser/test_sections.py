"""Sections of reports that not every run has, and the leaderboard, in a real browser."""

from pathlib import Path
from urllib.parse import parse_qs

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from sightline_leaderboard.page import write_leaderboard
from sightline_leaderboard.standings import read_record
from tests.browser.conftest import SCRIPTS, Opened, every, fits, one, prefer, texts
from tests.browser.test_report import cards, column, header
from tests.conftest import REPOSITORY
from tests.runs.pages import Page

SECTIONS = ("validity", "deletion", "occlusion", "image-dependence", "positions", "interventions")


def test_interventions_are_reached_read_sorted_and_narrowed(opened: Opened, edited: Page) -> None:
    page = opened(edited.path)
    header(page, "deletion", "Accuracy").click()
    values = [float(value) for value in column(page, "deletion", 5)]
    assert values == sorted(values)
    Select(one(page, "select[data-table=table-construct_validity]")).select_by_visible_text("LPP")
    rows = [row for row in every(page, "#table-construct_validity tbody tr") if row.is_displayed()]
    assert {every(row, "td")[1].text for row in rows} == {"LPP"}
    for section in SECTIONS:
        one(page, f"nav a[href='#{section}']").click()
        # The heading must not hide behind the navigation, which takes two lines now.
        below = one(page, "nav").rect["height"]
        top = "return document.getElementById(arguments[0]).getBoundingClientRect().top"
        room = "return document.documentElement.scrollHeight - innerHeight - scrollY"
        if page.execute_script(room) > 1:
            assert page.execute_script(top, f"{section}-title") >= below - 1, section
        assert one(page, f"#{section} table").is_displayed()
        if section != "interventions":
            sentence = one(page, f"#{section} .sentence").text
            assert sentence.endswith(".")
            assert "nan" not in sentence

    assert len(cards(page)) == 6
    cards(page)[0].click()
    plain = ["full", "target:0.3", "random:0.3", "evidence_only:0.3", "anti_evidence:0.3"]
    assert texts(page, "#case .panel h4") == plain, "pictures are of plain arms alone"
    one(page, "#case-close").click()
    assert fits(page, 390)
    assert fits(page, 820)
    assert page.get_log("browser") == []


def test_a_card_of_an_open_question_says_all_about_it_and_opens(opened: Opened, open_report: Page) -> None:
    page = opened(open_report.path)
    card = cards(page)[0]
    assert "?" in one(card, ".quoted").text
    assert one(card, ".accepted").text.startswith("Accepted: “")
    told = one(card, ".facts").text
    for words in ("score", "loss", "Full: “", "cells left", "right without evidence"):  # such answers come first
        assert words in told
    assert set(texts(page, "#gallery svg text")) == {"V", "L", "X", "A"}
    key = [line.replace("\n", " ").split(maxsplit=1) for line in texts(page, "#answers .key li")]
    for meaning in (["V", "the answer's value"], ["L", "label of the field"], ["X", "context"]):
        assert meaning in key
    for cell in every(page, "#table-changed_answers td.n"):
        assert cell.text != "0" or not cell.find_elements(By.TAG_NAME, "a"), "a link to no case"

    page.execute_script("arguments[0].click()", card)
    facts = one(page, "#case-facts").text
    assert facts.startswith("Accepted: “")
    assert "the answer's value" in facts
    assert len(every(page, "#case .panel")) == 10
    one(page, "#case-zoom").click()
    assert every(page, "#case .panel svg text")
    one(page, "#case-close").click()
    assert page.get_log("browser") == []
    for scheme in ("light", "dark"):
        prefer(page, scheme)
        assert fits(page, 400)
        assert one(page, "#scores .only-narrow").is_displayed()
        assert not one(page, "#scores .only-wide").is_displayed()


def test_open_answers_are_ordered_and_narrowed_by_filters_and_by_counts(opened: Opened, open_report: Page) -> None:
    page = opened(open_report.path)
    Select(one(page, "#gallery-order")).select_by_value("loss")
    losses = [float(card.text.split("loss ")[1].split()[0]) for card in cards(page)]
    assert losses == sorted(losses), "the surest answer first"
    one(page, "[data-filter=confident]").click()
    assert cards(page)
    assert all("confident and wrong" in card.text for card in cards(page))
    one(page, "[data-filter=flip]").click()
    assert all("other than Full's" in card.text for card in cards(page))

    links = every(page, "#table-changed_answers a[data-cases*='change=lost']")
    link = next(found for found in links if "evidence=" in str(found.get_attribute("data-cases")))
    page.execute_script("arguments[0].scrollIntoView()", link)
    page.execute_script("arguments[0].click()", link)
    assert 0 < len(cards(page)) <= int(link.text)
    chosen = Select(one(page, "#gallery-arm")).first_selected_option.text
    assert parse_qs(str(link.get_attribute("data-cases")))["arm"] == [chosen]
    assert all(f"— {chosen}" in card.text for card in cards(page))
    assert "changed to wrong" in one(page, "#gallery-found").text
    one(page, "[data-filter=all]").click()
    assert "changed to wrong" not in one(page, "#gallery-found").text


PARTS = "#realised-cost .part"
WARNINGS = ["random weights: times hold, answers do not exist", "no GPU was used: these times say nothing about a GPU"]


def colours(browser: WebDriver, selector: str, name: str) -> set[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => getComputedStyle(e)[arguments[1]])"
    return set(browser.execute_script(script, selector, name))


def test_cost_cards_are_warned_about_drawn_to_scale_and_follow_the_theme(opened: Opened, costs: Page) -> None:
    page = opened(costs.path)
    one(page, "nav a[href='#realised-cost']").click()
    assert len(every(page, PARTS)) == 3
    for part in every(page, PARTS):
        assert [note.text for note in every(part, ".note") if note.is_displayed()] == WARNINGS
        assert one(part, "dl").is_displayed()
        assert one(part, ".sentence").text.endswith(".")
    rows: dict[float, list[tuple[float, float]]] = {}
    for top, left, width in page.execute_script(SCRIPTS["bars"]):
        rows.setdefault(top, []).append((left, width))
    assert len(rows) == 4, "two arms under two executions"
    assert len({pieces[0][0] for pieces in rows.values()}) == 1, "bars start at one place"
    for pieces in rows.values():
        ends = [left + width for left, width in pieces[:-1]]
        assert ends == pytest.approx([left for left, _ in pieces[1:]], abs=0.02), "stages follow each other"
    header(page, "realised_ttft", "Total, ms").click()
    values = [float(value) for value in column(page, "realised_ttft", 5)]
    assert values == sorted(values)
    assert len(values) == 4

    words = f"{PARTS} .chart .name"
    assert colours(page, words, "fill") == {"rgb(28, 29, 32)"}
    prefer(page, "dark")
    assert colours(page, words, "fill") == {"rgb(231, 230, 225)"}
    assert colours(page, f"{PARTS} .whisker", "stroke") == {"rgb(231, 230, 225)"}
    prefer(page, "", "print")
    assert colours(page, words, "fill") == {"rgb(0, 0, 0)"}
    prefer(page, "")
    assert fits(page, 390)
    assert fits(page, 820)
    assert page.get_log("browser") == []


def test_the_leaderboard_has_every_entry_sorts_within_panels_and_fits_a_telephone(
    browser: WebDriver, tmp_path: Path
) -> None:
    record = read_record(REPOSITORY / "docs/leaderboard.json")
    browser.get(write_leaderboard(record, tmp_path).as_uri())
    one(browser, "#table-overview thead th:first-child button").click()
    names = [texts(body, "th") for body in every(browser, "#table-overview tbody:not(.heading)")]
    assert names == [sorted(part) for part in names]
    assert sorted(name for part in names for name in part) == sorted(line["method"] for line in record["overview"])
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == [], "nothing is fetched"
    assert fits(browser, 400)
    shown = [chart for chart in every(browser, "svg.chart") if chart.is_displayed()]
    assert len(shown) == len(record["models"]) * len(record["budgets"]), "one for each budget"
    assert all(chart.rect["x"] + chart.rect["width"] <= 400 for chart in shown)
