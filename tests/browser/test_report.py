"""The report in a real browser: panels, thresholds and hostile names work as they are meant to."""

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

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
from tests.browser.conftest import SCRIPTS, Opened, every, fetched, fits, one, prefer, texts
from tests.runs.open_questions import make_open_run
from tests.runs.pages import Page
from tests.runs.yes_no import HOSTILE, make_run


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
    for button in every(browser, f"#table-{table} thead button"):
        if button.text == title:
            return button
    raise AssertionError(f"no column {title} in {table}")


def test_the_page_as_it_opens(opened: Opened, report: Page) -> None:
    page = opened(report.path)
    assert page.get_log("browser") == []
    assert fetched(page) == []
    assert any(HOSTILE in text for text in texts(page, "#gallery .card .quoted")), "as words"
    assert page.title == "Visual-token pruning audit of reader-mini"

    for selector in ("#verdict .says", "#verdict .shows .picture"):
        assert one(page, selector).rect["y"] < 900, selector
    assert one(page, "#verdict").rect["y"] < one(page, ".headline").rect["y"]
    assert one(page, ".headline").rect["y"] < one(page, ".verdicts li").rect["y"]
    assert "The same answer, with and without the evidence." in one(page, "#hero figcaption").text
    for picture in every(page, "#hero .pair > div > svg:not(.inset)"):
        assert (pixels(picture) < 90).mean() > 0.1, "dropped cells are dark"
        assert (pixels(picture) > 150).mean() > 0.1, "kept cells are bright"

    kept, gone, undimmed = every(page, "#hero .inset")
    shade = {name: float(pixels(inset).mean()) for name, inset in (("gone", gone), ("undimmed", undimmed))}
    assert shade["gone"] < 0.6 * shade["undimmed"]
    assert undimmed.rect["width"] > 1.8 * kept.rect["width"], "the evidence itself is the largest"

    (chart,) = [c for c in every(page, "#frontier svg[class*=only-]") if c.is_displayed()]
    assert "only-wide" in str(chart.get_attribute("class"))

    assert page.execute_script(SCRIPTS["nameless in a report"]) == []
    assert page.execute_script("return document.documentElement.lang") == "en"


def test_sections_are_folded_until_a_link_or_a_printer_opens_them(browser: WebDriver, report: Page) -> None:
    def is_open(section: str) -> bool:
        return bool(browser.execute_script(f"return document.querySelector('#{section} > details').open"))

    address = report.path.as_uri()
    browser.get(address)
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
    browser.get(f"{address}#geometry")
    assert is_open("geometry")


def test_a_case_opens_with_every_arm_and_keys_step_through(opened: Opened, report: Page) -> None:
    page = opened(report.path)
    one(page, "#verdict .shows .card").click()
    assert one(page, "#case").is_displayed()
    assert one(page, "#case-title").text
    one(page, "#case-close").click()

    card = cards(page)[0]
    card.send_keys(Keys.ENTER)
    dialog = one(page, "#case")
    assert dialog.get_attribute("open") is not None
    assert one(page, "#case-position").text.startswith("Case 1 of")
    panels = every(page, "#case .panel")
    assert [one(panel, "h4").text for panel in panels][:2] == ["full", "target:0.15"]
    assert len(panels) == 8
    question = one(page, "#case-title").text
    assert question.startswith("Does the image contain the exact text")
    ActionChains(page).send_keys(Keys.ARROW_RIGHT).perform()
    assert one(page, "#case-position").text.startswith("Case 2 of")
    assert one(page, "#case-title").text != question
    ActionChains(page).send_keys(Keys.ARROW_LEFT).send_keys(Keys.ESCAPE).perform()
    assert dialog.get_attribute("open") is None
    assert page.switch_to.active_element == cards(page)[0], "focus returns to the card"

    cards(page)[0].click()
    pictures = every(page, "#case .picture")
    full, pruned = pixels(pictures[0]), pixels(pictures[1])
    assert (full < 90).mean() < 0.15
    assert (pruned < 90).mean() > 0.5
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
    button.click()
    assert heading.get_attribute("aria-sort") == "ascending"
    rising = [float(v) for v in column(page, "main", 3)]
    assert rising == sorted(rising)
    button.send_keys(Keys.ENTER)
    assert heading.get_attribute("aria-sort") == "descending"
    falling = [float(v) for v in column(page, "main", 3)]
    assert falling == sorted(falling, reverse=True)
    header(page, "main", "Arm").click()
    assert heading.get_attribute("aria-sort") == "none"
    assert column(page, "main", 1) == sorted(before, key=str.lower)

    def visible() -> set[str]:
        rows = every(page, "#table-paired_differences tbody:not(.heading) tr")
        return {every(row, "td")[1].text for row in rows if row.is_displayed()}

    assert visible() == {"Accuracy"}
    Select(one(page, "select[data-table=table-paired_differences]")).select_by_visible_text("PosECR")
    assert visible() == {"PosECR"}

    Select(one(page, "select[data-table=table-paired_differences]")).select_by_visible_text("everything")
    button = header(page, "paired_differences", "McNemar p")
    for _ in range(2):
        button.click()
        values = column(page, "paired_differences", 11)
        assert values[0] != ""
        assert values[-1] == ""


def test_filters_arm_and_order_narrow_the_gallery(opened: Opened, report: Page) -> None:
    page = opened(report.path)
    everything = len(cards(page))
    button = one(page, "[data-filter=unsupported]")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert one(page, "[data-filter=all]").get_attribute("aria-pressed") == "false"
    unsupported = cards(page)
    assert 0 < len(unsupported) < everything
    assert all("unsupported" in card.text for card in unsupported)
    assert one(page, "#gallery-found").text.startswith(f"{len(unsupported)} of {everything} cases")
    one(page, "[data-filter=flip]").click()
    assert all("flips vs Full" in card.text for card in cards(page))
    one(page, "[data-filter=low]").click()
    assert all("low coverage" in card.text or "unsupported" in card.text for card in cards(page))
    one(page, "[data-filter=all]").click()

    Select(one(page, "#gallery-arm")).select_by_visible_text("random:0.3")
    Select(one(page, "#gallery-order")).select_by_visible_text("least coverage first")
    told = texts(page, "#gallery .card")
    assert all("random:0.3" in text for text in told)
    coverage = [float(text.split("coverage ")[1].split()[0]) for text in told]
    assert coverage == sorted(coverage)
    one(page, "[data-filter=unsupported]").click()
    Select(one(page, "#gallery-arm")).select_by_visible_text("full")
    assert cards(page) == []
    assert "No case matches" in one(page, "#gallery-found").text


def test_telephones_and_tablets_show_every_arm_and_nothing_scrolls_sideways(opened: Opened, report: Page) -> None:
    page = opened(report.path)
    for width in (390, 820, 400):
        assert fits(page, width)
    (chart,) = [c for c in every(page, "#frontier svg[class*=only-]") if c.is_displayed()]
    assert chart.rect["x"] >= 0
    assert chart.rect["x"] + chart.rect["width"] <= 400
    shown = {label.text for label in every(chart, "text.name")}
    assert shown >= {"Full", "target:0.15", "target:0.3", "target:0.5", "random:0.3", "grid:0.3", "visionzip:0.3"}
    holder = one(page, "[aria-label='Main results']")
    arm = one(page, "#table-main tbody:not(.heading) th")
    before = arm.rect["x"]
    page.execute_script("arguments[0].scrollLeft = 300", holder)
    assert page.execute_script("return arguments[0].scrollLeft", holder) > 100
    left = page.execute_script("return arguments[0].getBoundingClientRect().x", arm)
    assert abs(left - before) < 2, "the first column does not scroll away"


def brightness(colour: str) -> float:
    return float(np.mean([float(v) for v in colour[colour.index("(") + 1 : -1].split(",")][:3]))


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
    assert brightness(paper) < 40
    assert brightness(ink) > 200

    prefer(page, "", "print")
    assert not one(page, "nav").is_displayed()
    assert not one(page, "#gallery-tools").is_displayed()
    assert one(page, "#hero svg").is_displayed()
    assert one(page, "#table-main").is_displayed()
    printed: dict[str, Any] = page.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


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


def test_panels_of_two_models_stay_apart(opened: Opened, page_of_two: Path) -> None:
    page = opened(page_of_two)

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

    menu = Select(one(page, "select[data-table=table-paired_differences]"))
    menu.select_by_visible_text("PosECR")
    headings = every(page, "#table-paired_differences tbody.heading")
    assert len(headings) == 4
    assert all(heading.is_displayed() for heading in headings)

    again = "#table-scale_strata th.again"
    assert len(every(page, again)) > 0
    one(page, "#table-scale_strata thead th:nth-child(4) button").click()
    assert every(page, again) == []


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
OWNED = "owned"


def spoil(run: Path) -> None:
    """Every text of the probes becomes hostile; ids stay, since rows name them."""
    lines = (run / "probes.jsonl").read_text(encoding="utf-8").split("\n")
    spoiled = []
    for line in filter(None, lines):
        record = json.loads(line)
        if "id" in record:
            record["question"] = f"{record['question']} {SCRIPT} {IMAGE} {ADDRESS} {QUOTES}"
            record["source_text"] = SCRIPT
            if record.get("answers"):
                record["answers"] = [SCRIPT, IMAGE, ADDRESS]
            else:
                record["target_text"] = IMAGE
            record["kind"] = QUOTES
        spoiled.append(json.dumps(record))
    (run / "probes.jsonl").write_text("\n".join(spoiled) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("hostile")
    facts = {"model": SCRIPT, "device": IMAGE, "box_source": QUOTES, "created": ADDRESS, "profile": SCRIPT}
    arms = ("full", "target:0.3", f"hostile:0.3,file={SCRIPT.replace('/', '|')}")
    plain = make_run(folder / "run<script>alert(1)<", images=6, arms=arms, manifest=facts)
    spoken = make_open_run(folder / "open")
    for run in (plain, spoken):
        spoil(run)
    built = [build_report([run], folder / f"page{number}", draws=100) for number, run in enumerate((plain, spoken))]
    return [*built, build_report([plain, spoken], folder / "both", draws=100)]


def test_nothing_hostile_runs_and_nothing_is_fetched(browser: WebDriver, pages: list[Path]) -> None:
    for page in pages:
        browser.get(page.as_uri())
        for card in every(browser, "#gallery .card")[:4]:
            browser.execute_script("arguments[0].click()", card)
        assert browser.title != OWNED
        assert every(browser, "img[onerror], svg[onload], [src='x']") == []
        scripts = browser.find_elements(By.TAG_NAME, "script")
        assert all(OWNED not in str(one.get_attribute("src")) for one in scripts)
        addresses = "return [...document.querySelectorAll('[href]')].map((a) => a.getAttribute('href'))"
        links = browser.execute_script(addresses)
        assert not [link for link in links if link.lower().startswith("javascript:")]
        assert fetched(browser) == []
        assert browser.get_log("browser") == []

    browser.get(pages[0].as_uri())
    shown = browser.find_element(By.TAG_NAME, "body").text
    assert SCRIPT in shown
    assert browser.title == f"Visual-token pruning audit of {SCRIPT}"
