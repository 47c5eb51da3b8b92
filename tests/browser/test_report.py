"""The report in a real browser: panels, thresholds and hostile names work as they are meant to."""

from __future__ import annotations

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
from tests.unit.report.fake_open_run import make_open_run
from tests.unit.report.fake_run import HOSTILE, make_run


def one(browser: WebDriver, selector: str) -> WebElement:
    return browser.find_element(By.CSS_SELECTOR, selector)


def cards(browser: WebDriver) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, "#gallery .card")


def pixels(element: WebElement) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(element.screenshot_as_png)).convert("L"), dtype=float)


def column(browser: WebDriver, table: str, index: int) -> list[str]:
    return [
        str(cell.get_attribute("data-sort"))
        for cell in browser.find_elements(
            By.CSS_SELECTOR, f"#table-{table} tbody:not(.heading) tr > :nth-child({index})"
        )
    ]


def header(browser: WebDriver, table: str, title: str) -> WebElement:
    for button in browser.find_elements(By.CSS_SELECTOR, f"#table-{table} thead button"):
        if button.text == title:
            return button
    raise AssertionError(f"no column {title} in {table}")


def test_nothing_fails_and_nothing_is_fetched(opened: WebDriver) -> None:
    assert opened.get_log("browser") == []
    fetched = opened.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in fetched if not name.startswith(("data:", "blob:"))] == []
    assert opened.title == "Visual-token pruning audit of reader-mini"


def test_hostile_words_are_shown_as_words(opened: WebDriver) -> None:
    shown = [card.find_element(By.CSS_SELECTOR, ".quoted").text for card in cards(opened)]
    assert any(HOSTILE in text for text in shown)
    assert opened.title == "Visual-token pruning audit of reader-mini"


def test_the_first_screen_has_words_numbers_and_a_picture(opened: WebDriver) -> None:
    for selector in ("#verdict .says", "#verdict .shows .picture"):
        assert one(opened, selector).rect["y"] < 900, selector
    assert one(opened, "#verdict").rect["y"] < one(opened, ".headline").rect["y"]
    assert one(opened, ".headline").rect["y"] < one(opened, ".verdicts li").rect["y"]
    assert "The same answer, with and without the evidence." in one(opened, "#hero figcaption").text
    for picture in opened.find_elements(By.CSS_SELECTOR, "#hero .pair > div > svg:not(.inset)"):
        assert (pixels(picture) < 90).mean() > 0.1, "dropped cells are dark"
        assert (pixels(picture) > 150).mean() > 0.1, "kept cells are bright"


def test_sections_are_folded_until_a_link_or_a_printer_opens_them(browser: WebDriver, page: Path) -> None:
    def is_open(section: str) -> bool:
        return bool(browser.execute_script(f"return document.querySelector('#{section} > details').open"))

    browser.get(page.as_uri())
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
    browser.get(f"{page.as_uri()}#geometry")
    assert is_open("geometry")


def test_what_breaks_first_opens_as_a_case(opened: WebDriver) -> None:
    one(opened, "#verdict .shows .card").click()
    assert one(opened, "#case").is_displayed()
    assert one(opened, "#case-title").text


def test_the_magnified_evidence_is_lit_undimmed_and_dark_where_it_was_dropped(opened: WebDriver) -> None:
    kept, gone, undimmed = opened.find_elements(By.CSS_SELECTOR, "#hero .inset")
    shade = {name: float(pixels(inset).mean()) for name, inset in (("gone", gone), ("undimmed", undimmed))}
    assert shade["gone"] < 0.6 * shade["undimmed"]
    assert undimmed.rect["width"] > 1.8 * kept.rect["width"], "the evidence itself is the largest"


def test_a_table_sorts_both_ways_and_says_so(opened: WebDriver) -> None:
    button = header(opened, "main", "Accuracy")
    heading = button.find_element(By.XPATH, "..")
    before = column(opened, "main", 1)
    button.click()
    assert heading.get_attribute("aria-sort") == "ascending"
    rising = [float(v) for v in column(opened, "main", 3)]
    assert rising == sorted(rising)
    button.send_keys(Keys.ENTER)
    assert heading.get_attribute("aria-sort") == "descending"
    falling = [float(v) for v in column(opened, "main", 3)]
    assert falling == sorted(falling, reverse=True)
    header(opened, "main", "Arm").click()
    assert heading.get_attribute("aria-sort") == "none"
    assert column(opened, "main", 1) == sorted(before, key=str.lower)


def test_missing_values_sort_last(opened: WebDriver) -> None:
    Select(one(opened, "select[data-table=table-paired_differences]")).select_by_visible_text("everything")
    button = header(opened, "paired_differences", "McNemar p")
    for _ in range(2):
        button.click()
        values = column(opened, "paired_differences", 11)
        assert values[0] != ""
        assert values[-1] == ""


def test_a_long_table_is_narrowed_by_its_metric(opened: WebDriver) -> None:
    def visible() -> set[str]:
        rows = opened.find_elements(By.CSS_SELECTOR, "#table-paired_differences tbody:not(.heading) tr")
        return {row.find_elements(By.CSS_SELECTOR, "td")[1].text for row in rows if row.is_displayed()}

    assert visible() == {"Accuracy"}
    Select(one(opened, "select[data-table=table-paired_differences]")).select_by_visible_text("PosECR")
    assert visible() == {"PosECR"}


def test_filters_press_and_narrow_the_gallery(opened: WebDriver) -> None:
    everything = len(cards(opened))
    button = one(opened, "[data-filter=unsupported]")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert one(opened, "[data-filter=all]").get_attribute("aria-pressed") == "false"
    unsupported = cards(opened)
    assert 0 < len(unsupported) < everything
    assert all("unsupported" in card.text for card in unsupported)
    assert one(opened, "#gallery-found").text.startswith(f"{len(unsupported)} of {everything} cases")
    one(opened, "[data-filter=flip]").click()
    assert all("flips vs Full" in card.text for card in cards(opened))
    one(opened, "[data-filter=low]").click()
    assert all("low coverage" in card.text or "unsupported" in card.text for card in cards(opened))


def test_arm_and_order(opened: WebDriver) -> None:
    Select(one(opened, "#gallery-arm")).select_by_visible_text("random:0.3")
    Select(one(opened, "#gallery-order")).select_by_visible_text("least coverage first")
    texts = [card.text for card in cards(opened)]
    assert all("random:0.3" in text for text in texts)
    coverage = [float(text.split("coverage ")[1].split()[0]) for text in texts]
    assert coverage == sorted(coverage)
    one(opened, "[data-filter=unsupported]").click()
    Select(one(opened, "#gallery-arm")).select_by_visible_text("full")
    assert cards(opened) == []
    assert "No case matches" in one(opened, "#gallery-found").text


def test_a_case_opens_with_every_arm_and_keys_step_through(opened: WebDriver) -> None:
    card = cards(opened)[0]
    card.send_keys(Keys.ENTER)
    dialog = one(opened, "#case")
    assert dialog.get_attribute("open") is not None
    assert one(opened, "#case-position").text.startswith("Case 1 of")
    panels = opened.find_elements(By.CSS_SELECTOR, "#case .panel")
    assert [panel.find_element(By.CSS_SELECTOR, "h4").text for panel in panels][:2] == ["full", "target:0.15"]
    assert len(panels) == 8
    question = one(opened, "#case-title").text
    assert question.startswith("Does the image contain the exact text")
    ActionChains(opened).send_keys(Keys.ARROW_RIGHT).perform()
    assert one(opened, "#case-position").text.startswith("Case 2 of")
    assert one(opened, "#case-title").text != question
    ActionChains(opened).send_keys(Keys.ARROW_LEFT).send_keys(Keys.ESCAPE).perform()
    assert dialog.get_attribute("open") is None
    assert opened.switch_to.active_element == cards(opened)[0], "focus returns to the card"


def test_full_is_lit_and_pruned_arms_are_dimmed(opened: WebDriver) -> None:
    cards(opened)[0].click()
    pictures = opened.find_elements(By.CSS_SELECTOR, "#case .picture")
    full, pruned = pixels(pictures[0]), pixels(pictures[1])
    assert (full < 90).mean() < 0.15
    assert (pruned < 90).mean() > 0.5
    zoom = one(opened, "#case-zoom")
    zoom.click()
    assert zoom.get_attribute("aria-pressed") == "true"
    width = "return document.querySelector('#case .picture').viewBox.baseVal.width"
    assert opened.execute_script(width) < 400
    one(opened, "#case-close").click()


@pytest.mark.parametrize("width", [390, 820])
def test_narrow_windows_do_not_scroll_sideways(opened: WebDriver, width: int) -> None:
    screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width


def test_on_a_telephone_every_arm_is_on_the_frontier_and_arms_stay_in_view(opened: WebDriver) -> None:
    screen = {"width": 400, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    (chart,) = [c for c in opened.find_elements(By.CSS_SELECTOR, "#frontier svg[class*=only-]") if c.is_displayed()]
    assert chart.rect["x"] >= 0
    assert chart.rect["x"] + chart.rect["width"] <= 400
    shown = {label.text for label in chart.find_elements(By.CSS_SELECTOR, "text.name")}
    assert shown >= {"Full", "target:0.15", "target:0.3", "target:0.5", "random:0.3", "grid:0.3", "visionzip:0.3"}
    holder = one(opened, "[aria-label='Main results']")
    arm = one(opened, "#table-main tbody:not(.heading) th")
    before = arm.rect["x"]
    opened.execute_script("arguments[0].scrollLeft = 300", holder)
    assert opened.execute_script("return arguments[0].scrollLeft", holder) > 100
    left = opened.execute_script("return arguments[0].getBoundingClientRect().x", arm)
    assert abs(left - before) < 2, "the first column does not scroll away"


def test_a_desk_has_one_frontier_and_it_is_the_wide_one(opened: WebDriver) -> None:
    (chart,) = [c for c in opened.find_elements(By.CSS_SELECTOR, "#frontier svg[class*=only-]") if c.is_displayed()]
    assert "only-wide" in str(chart.get_attribute("class"))


def test_dark_mode_is_dark_and_stays_legible(opened: WebDriver) -> None:
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    colours = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
    light_paper, _ = opened.execute_script(colours)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    paper, ink = opened.execute_script(colours)
    assert paper != light_paper
    assert brightness(paper) < 40
    assert brightness(ink) > 200


def brightness(colour: str) -> float:
    return float(np.mean([float(v) for v in colour[colour.index("(") + 1 : -1].split(",")][:3]))


def test_print_leaves_the_controls_away(opened: WebDriver) -> None:
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not one(opened, "nav").is_displayed()
    assert not one(opened, "#gallery-tools").is_displayed()
    assert one(opened, "#hero svg").is_displayed()
    assert one(opened, "#table-main").is_displayed()
    printed: dict[str, Any] = opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_screen_readers_find_names_everywhere(opened: WebDriver) -> None:
    script = """
    const name = (n) => (n.getAttribute("aria-label") || n.textContent || n.getAttribute("title") || "").trim();
    const bad = [];
    for (const n of document.querySelectorAll("button, a, select, svg[role=img]")) {
      const label = n.tagName === "SELECT" ? n.closest("label") : n;
      if (!label || !name(label)) bad.push(n.outerHTML.slice(0, 120));
    }
    for (const t of document.querySelectorAll("table")) {
      if (!t.caption || !t.caption.textContent.trim()) bad.push("table without caption " + t.id);
      for (const h of t.tHead.rows[0].cells) if (h.scope !== "col") bad.push("header without scope in " + t.id);
    }
    for (const s of document.querySelectorAll("section")) {
      if (!document.getElementById(s.getAttribute("aria-labelledby"))) bad.push("section without name " + s.id);
    }
    return bad;
    """
    assert opened.execute_script(script) == []
    assert opened.execute_script("return document.documentElement.lang") == "en"


def test_the_keyboard_shows_where_it_is(opened: WebDriver) -> None:
    opened.execute_script("document.body.tabIndex = -1; document.body.focus()")
    ActionChains(opened).send_keys(Keys.TAB).perform()
    skip = opened.switch_to.active_element
    assert skip.text == "Skip to the results"
    assert skip.rect["x"] >= 0, "the skip link comes into view when it has the focus"
    width = "return getComputedStyle(document.activeElement).outlineWidth"
    assert float(opened.execute_script(width).removesuffix("px")) >= 2


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
    browser.execute_script("for (const one of document.querySelectorAll('.folded > details')) one.open = true")
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
        for card in browser.find_elements(By.CSS_SELECTOR, "#gallery .card")[:4]:
            browser.execute_script("arguments[0].click()", card)
        assert browser.title != OWNED
        assert browser.find_elements(By.CSS_SELECTOR, "img[onerror], svg[onload], [src='x']") == []
        scripts = browser.find_elements(By.TAG_NAME, "script")
        assert all(OWNED not in str(one.get_attribute("src")) for one in scripts)
        every = "return [...document.querySelectorAll('[href]')].map((a) => a.getAttribute('href'))"
        links = browser.execute_script(every)
        assert not [link for link in links if link.lower().startswith("javascript:")]
        fetched = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert [name for name in fetched if not name.startswith(("data:", "blob:"))] == []
        assert browser.get_log("browser") == []


def test_what_is_hostile_is_shown_as_it_is(browser: WebDriver, pages: list[Path]) -> None:
    browser.get(pages[0].as_uri())
    shown = browser.find_element(By.TAG_NAME, "body").text
    assert SCRIPT in shown
    assert browser.title == f"Visual-token pruning audit of {SCRIPT}"
