"""The report and the leaderboard in a real browser: all sections, panels, thresholds and hostile names."""

import base64
import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from sightline.report.build import build_report
from sightline_leaderboard.page import write_leaderboard
from sightline_leaderboard.standings import read_record
from tests.browser.conftest import SCRIPTS, Opened, every, fetched, fits, one, prefer, texts
from tests.conftest import REPOSITORY
from tests.runs.open_questions import make_open_run
from tests.runs.pages import Page
from tests.runs.yes_no import HOSTILE, Edit, make_run


def cards(browser: WebDriver) -> list[WebElement]:
    return every(browser, "#gallery .card")


def pixels(element: WebElement) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(element.screenshot_as_png)).convert("L"), dtype=float)


def column(browser: WebDriver, table: str, index: int) -> list[str]:
    return [
        str(cell.get_attribute("data-sort"))
        for cell in every(browser, f"#table-{table} tbody:not(.heading) tr > :nth-child({index})")
    ]


def header(browser: WebDriver, table: str, title: str) -> WebElement:
    return next(button for button in every(browser, f"#table-{table} thead button") if button.text == title)


def test_the_page_as_it_opens(opened: Opened, report: Page) -> None:
    page = opened(report.path)
    assert page.get_log("browser") == []
    assert fetched(page) == []
    assert any(HOSTILE in text for text in texts(page, "#gallery .card .quoted")), "as words"
    assert page.title == "Visual-token pruning audit of reader-mini"
    assert page.execute_script("return document.documentElement.lang") == "en"
    assert page.execute_script(SCRIPTS["nameless in a report"]) == []

    for selector in ("#verdict .says", "#verdict .shows .picture"):
        assert one(page, selector).rect["y"] < 900, selector
    heights = [one(page, selector).rect["y"] for selector in ("#verdict", ".headline", ".verdicts li")]
    assert heights == sorted(heights)
    assert "The same answer, with and without the evidence." in one(page, "#hero figcaption").text
    for picture in every(page, "#hero .pair > div > svg:not(.inset)"):
        assert (pixels(picture) < 90).mean() > 0.1, "dropped cells are dark"
        assert (pixels(picture) > 150).mean() > 0.1, "kept cells are bright"
    kept, gone, undimmed = every(page, "#hero .inset")
    assert pixels(gone).mean() < 0.6 * pixels(undimmed).mean()
    assert undimmed.rect["width"] > 1.8 * kept.rect["width"], "the evidence itself is the largest"
    assert "only-wide" in str(shown_chart(page).get_attribute("class"))


def shown_chart(page: WebDriver) -> WebElement:
    """The one form of the frontier that suits the screen."""
    (chart,) = [chart for chart in every(page, "#frontier svg[class*=only-]") if chart.is_displayed()]
    return chart


def test_sections_are_folded_until_a_link_or_a_printer_opens_them(browser: WebDriver, report: Page) -> None:
    def is_open(section: str) -> bool:
        return bool(browser.execute_script(f"return document.querySelector('#{section} > details').open"))

    browser.get(report.path.as_uri())
    assert one(browser, "#contract-title").is_displayed(), "the heading is seen"
    assert not any(is_open(section) for section in ("overview", "pictures", "contract"))
    assert one(browser, "#verdict .shows .picture").is_displayed(), "what breaks first is seen without opening anything"
    one(browser, "nav a[href='#contract']").click()
    assert is_open("contract")
    assert one(browser, "#table-contract").is_displayed()
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert is_open("geometry")
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert (is_open("geometry"), is_open("contract")) == (False, True)
    browser.get("about:blank")
    browser.get(f"{report.path.as_uri()}#geometry")
    assert is_open("geometry")


def test_a_case_opens_with_every_arm_and_keys_step_through(opened: Opened, report: Page) -> None:
    page = opened(report.path)
    one(page, "#verdict .shows .card").click()
    assert one(page, "#case").is_displayed()
    assert one(page, "#case-title").text
    one(page, "#case-close").click()

    cards(page)[0].send_keys(Keys.ENTER)
    dialog = one(page, "#case")
    assert dialog.get_attribute("open") is not None
    assert one(page, "#case-position").text.startswith("Case 1 of")
    panels = texts(page, "#case .panel h4")
    assert (panels[:2], len(panels)) == (["full", "target:0.15"], 8)
    question = one(page, "#case-title").text
    assert question.startswith("Does the image contain the exact text")
    ActionChains(page).send_keys(Keys.ARROW_RIGHT).perform()
    assert one(page, "#case-position").text.startswith("Case 2 of")
    assert one(page, "#case-title").text != question
    ActionChains(page).send_keys(Keys.ARROW_LEFT).send_keys(Keys.ESCAPE).perform()
    assert dialog.get_attribute("open") is None
    assert page.switch_to.active_element == cards(page)[0], "focus returns to the card"

    cards(page)[0].click()
    full, pruned = ((pixels(picture) < 90).mean() for picture in every(page, "#case .picture")[:2])
    assert full < 0.15
    assert pruned > 0.5
    zoom = one(page, "#case-zoom")
    zoom.click()
    assert zoom.get_attribute("aria-pressed") == "true"
    width = "return document.querySelector('#case .picture').viewBox.baseVal.width"
    assert page.execute_script(width) < 400
    one(page, "#case-close").click()


def test_tables_are_narrowed_and_sort_both_ways_with_missing_values_last(opened: Opened, report: Page) -> None:
    page = opened(report.path)
    button = header(page, "main", "Accuracy")
    heading = button.find_element(By.XPATH, "..")
    before = column(page, "main", 1)
    for order, press in (("ascending", button.click), ("descending", lambda: button.send_keys(Keys.ENTER))):
        press()
        assert heading.get_attribute("aria-sort") == order
        values = [float(value) for value in column(page, "main", 3)]
        assert values == sorted(values, reverse=order == "descending")
    header(page, "main", "Arm").click()
    assert heading.get_attribute("aria-sort") == "none"
    assert column(page, "main", 1) == sorted(before, key=str.lower)

    def visible() -> set[str]:
        rows = every(page, "#table-paired_differences tbody:not(.heading) tr")
        return {every(row, "td")[1].text for row in rows if row.is_displayed()}

    menu = Select(one(page, "select[data-table=table-paired_differences]"))
    assert visible() == {"Accuracy"}
    menu.select_by_visible_text("PosECR")
    assert visible() == {"PosECR"}
    menu.select_by_visible_text("everything")
    for _ in range(2):
        header(page, "paired_differences", "McNemar p").click()
        printed = column(page, "paired_differences", 11)
        assert printed[0] != ""
        assert printed[-1] == ""


def test_filters_arm_and_order_narrow_the_gallery(opened: Opened, report: Page) -> None:
    page = opened(report.path)
    everything = len(cards(page))
    button = one(page, "[data-filter=unsupported]")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert one(page, "[data-filter=all]").get_attribute("aria-pressed") == "false"
    assert one(page, "#gallery-found").text.startswith(f"{len(cards(page))} of {everything} cases")
    for name, told in {
        "unsupported": ("unsupported",),
        "flip": ("flips vs Full",),
        "low": ("low coverage", "unsupported"),
    }.items():
        one(page, f"[data-filter={name}]").click()
        assert 0 < len(cards(page)) < everything
        assert all(any(words in card.text for words in told) for card in cards(page))
    one(page, "[data-filter=all]").click()
    Select(one(page, "#gallery-arm")).select_by_visible_text("random:0.3")
    Select(one(page, "#gallery-order")).select_by_visible_text("least coverage first")
    listed = texts(page, "#gallery .card")
    assert all("random:0.3" in text for text in listed)
    coverage = [float(text.split("coverage ")[1].split()[0]) for text in listed]
    assert coverage == sorted(coverage)
    one(page, "[data-filter=unsupported]").click()
    Select(one(page, "#gallery-arm")).select_by_visible_text("full")
    assert cards(page) == []
    assert "No case matches" in one(page, "#gallery-found").text


def test_telephones_and_tablets_show_every_arm_and_nothing_scrolls_sideways(opened: Opened, report: Page) -> None:
    page = opened(report.path)
    for width in (390, 820, 400):
        assert fits(page, width)
    chart = shown_chart(page)
    assert chart.rect["x"] >= 0
    assert chart.rect["x"] + chart.rect["width"] <= 400
    arms = {"Full", "target:0.15", "target:0.3", "target:0.5", "random:0.3", "grid:0.3", "visionzip:0.3"}
    assert arms <= set(texts(chart, "text.name"))
    holder = one(page, "[aria-label='Main results']")
    arm = one(page, "#table-main tbody:not(.heading) th")
    before = arm.rect["x"]
    page.execute_script("arguments[0].scrollLeft = 300", holder)
    assert page.execute_script("return arguments[0].scrollLeft", holder) > 100
    left = page.execute_script("return arguments[0].getBoundingClientRect().x", arm)
    assert abs(left - before) < 2, "the first column does not scroll away"


def test_the_keyboard_is_seen_dark_is_dark_and_paper_has_no_controls(opened: Opened, report: Page) -> None:
    page = opened(report.path)
    page.execute_script("document.body.tabIndex = -1; document.body.focus()")
    ActionChains(page).send_keys(Keys.TAB).perform()
    skip = page.switch_to.active_element
    assert skip.text == "Skip to the results"
    assert skip.rect["x"] >= 0, "the skip link comes into view when it has the focus"
    width = "return getComputedStyle(document.activeElement).outlineWidth"
    assert float(page.execute_script(width).removesuffix("px")) >= 2

    colours = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
    light_paper, _ = page.execute_script(colours)
    prefer(page, "dark")
    paper, ink = page.execute_script(colours)
    assert paper != light_paper
    dark, bright = (np.mean([float(part) for part in re.findall(r"[\d.]+", each)[:3]]) for each in (paper, ink))
    assert dark < 40
    assert bright > 200

    prefer(page, "", "print")
    seen = {name: one(page, name).is_displayed() for name in ("nav", "#gallery-tools", "#hero svg", "#table-main")}
    assert seen == {"nav": False, "#gallery-tools": False, "#hero svg": True, "#table-main": True}
    printed: dict[str, Any] = page.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


ARMS = ("full", "protected:0.3", "target:0.3", "random:0.3", "soft_evidence:0.3")
MODELS = ("Qwen3-VL-8B-Instruct", "llava-v1.6-mistral-7b-hf")


def of_model(model: str) -> Edit:
    return lambda row: row.update(model=model)


def test_panels_of_two_models_stay_apart(opened: Opened, tmp_path: Path) -> None:
    runs = [
        make_run(
            tmp_path / model,
            images=8,
            arms=ARMS,
            shift=number / 4,
            manifest={"model": model},
            edit_row=of_model(model),
        )
        for number, model in enumerate(MODELS)
    ]
    page = opened(build_report(runs, tmp_path / "report", draws=200, cases=2))

    def sections() -> list[list[str]]:
        """The arms of each panel, from top to bottom."""
        return [texts(body, "th") for body in every(page, "#table-main tbody:not(.heading)")]

    holder = one(page, "[aria-label='Main results']")
    head = every(holder, "thead th")[-1]
    assert head.text == "Unsupported"
    assert head.rect["x"] + head.rect["width"] <= holder.rect["x"] + holder.rect["width"] + 1
    assert page.execute_script("return arguments[0].scrollWidth <= arguments[0].clientWidth + 1", holder)

    oracles = ["protected:0.3", "soft_evidence:0.3"]
    assert sections() == [["full", "target:0.3", "random:0.3"], oracles] * 2
    one(page, "#table-main thead th:nth-child(1) button").click()
    assert sections() == [["full", "random:0.3", "target:0.3"], oracles] * 2

    Select(one(page, "select[data-table=table-paired_differences]")).select_by_visible_text("PosECR")
    headings = every(page, "#table-paired_differences tbody.heading")
    assert len(headings) == 4
    assert all(heading.is_displayed() for heading in headings)

    assert every(page, "#table-scale_strata th.again")
    one(page, "#table-scale_strata thead th:nth-child(4) button").click()
    assert every(page, "#table-scale_strata th.again") == []


def test_margins_are_told_and_ordered_from_the_threshold(browser: WebDriver, opened: Opened, tmp_path: Path) -> None:
    def high(row: dict[str, Any]) -> None:
        row["margin"] += 2.0

    run = make_run(tmp_path / "run", images=8, arms=("full", "target:0.3"), edit_row=high)
    opened(build_report([run], tmp_path / "out", threshold=2.0, draws=100, cases=8))
    Select(browser.find_element(By.ID, "gallery-order")).select_by_value("margin")
    facts = [card.text for card in every(browser, "#gallery .card .facts")]
    told = [re.search(r"(yes|no), \w+ · margin ([+−][\d.]+) at t = \+2\.000", text) for text in facts]
    margins = [float(found[2].replace("−", "-")) for found in told if found]
    assert len(margins) == len(facts) > 1
    assert [found[1] == "yes" for found in told if found] == [margin >= 2.0 for margin in margins]
    distances = [abs(margin - 2.0) for margin in margins]
    assert distances == sorted(distances, reverse=True)


SCRIPT = "</script><script>document.title='owned'</script>"
IMAGE = "<img src=x onerror=\"document.title='owned'\">"
ADDRESS = "javascript:document.title='owned'"
QUOTES = "\"'><svg onload=document.title='owned'>"


def spoil(run: Path) -> None:
    """Every text of the probes becomes hostile; ids stay, since rows name them."""
    records = [json.loads(line) for line in (run / "probes.jsonl").read_text(encoding="utf-8").split("\n") if line]
    for record in (record for record in records if "id" in record):
        record |= {"question": f"{record['question']} {SCRIPT} {IMAGE} {ADDRESS} {QUOTES}", "source_text": SCRIPT}
        hostile = {"answers": [SCRIPT, IMAGE, ADDRESS]} if record.get("answers") else {"target_text": IMAGE}
        record |= {**hostile, "kind": QUOTES}
    (run / "probes.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")


def test_nothing_hostile_runs_and_nothing_is_fetched(browser: WebDriver, tmp_path: Path) -> None:
    facts = {"model": SCRIPT, "device": IMAGE, "box_source": QUOTES, "created": ADDRESS, "profile": SCRIPT}
    arms = ("full", "target:0.3", f"hostile:0.3,file={SCRIPT.replace('/', '|')}")
    plain = make_run(tmp_path / "run<script>alert(1)<", images=6, arms=arms, manifest=facts)
    spoken = make_open_run(tmp_path / "open")
    for run in (plain, spoken):
        spoil(run)
    for number, runs in enumerate(([spoken], [plain, spoken], [plain])):
        browser.get(build_report(runs, tmp_path / f"page{number}", draws=100).as_uri())
        for card in every(browser, "#gallery .card")[:4]:
            browser.execute_script("arguments[0].click()", card)
        assert browser.title != "owned"
        assert every(browser, "img[onerror], svg[onload], [src='x']") == []
        assert all("owned" not in str(script.get_attribute("src")) for script in every(browser, "script"))
        addresses = "return [...document.querySelectorAll('[href]')].map((a) => a.getAttribute('href'))"
        links = browser.execute_script(addresses)
        assert not [link for link in links if link.lower().startswith("javascript:")]
        assert fetched(browser) == []
        assert browser.get_log("browser") == []
    browser.refresh()
    assert SCRIPT in one(browser, "body").text
    assert browser.title == f"Visual-token pruning audit of {SCRIPT}"


SECTIONS = ("validity", "deletion", "occlusion", "image-dependence", "positions", "interventions")


def test_interventions_are_reached_read_sorted_and_narrowed(opened: Opened, edited: Page) -> None:
    page = opened(edited.path)
    header(page, "deletion", "Accuracy").click()
    values = [float(value) for value in column(page, "deletion", 5)]
    assert values == sorted(values)
    Select(one(page, "select[data-table=table-construct_validity]")).select_by_visible_text("LPP")
    rows = [row for row in every(page, "#table-construct_validity tbody tr") if row.is_displayed()]
    assert {every(row, "td")[1].text for row in rows} == {"LPP"}
    top = "return document.getElementById(arguments[0]).getBoundingClientRect().top"
    room = "return document.documentElement.scrollHeight - innerHeight - scrollY"
    for section in SECTIONS:
        one(page, f"nav a[href='#{section}']").click()
        # The heading must not hide behind the navigation, which takes two lines now.
        if page.execute_script(room) > 1:
            assert page.execute_script(top, f"{section}-title") >= one(page, "nav").rect["height"] - 1, section
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
    key = {line.replace("\n", " ") for line in texts(page, "#answers .key li")}
    assert {"V the answer's value", "L label of the field", "X context"} <= key
    for cell in every(page, "#table-changed_answers td.n"):
        assert cell.text != "0" or not cell.find_elements(By.TAG_NAME, "a"), "a link to no case"

    page.execute_script("arguments[0].click()", card)
    assert re.match("Accepted: “.*the answer's value", one(page, "#case-facts").text, re.DOTALL)
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
    for name, words in (("confident", "confident and wrong"), ("flip", "other than Full's")):
        one(page, f"[data-filter={name}]").click()
        assert cards(page)
        assert all(words in card.text for card in cards(page))
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

    def colours(selector: str, name: str) -> set[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => getComputedStyle(e)[arguments[1]])"
        return set(page.execute_script(script, f"{PARTS} {selector}", name))

    inks = {("light", ""): "rgb(28, 29, 32)", ("dark", ""): "rgb(231, 230, 225)", ("", "print"): "rgb(0, 0, 0)"}
    for medium, ink in inks.items():
        prefer(page, *medium)
        assert colours(".chart .name", "fill") == {ink}
        assert "dark" not in medium or colours(".whisker", "stroke") == {ink}
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
