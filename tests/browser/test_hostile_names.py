"""A run in which every text tries to be markup: a page shows all of it, runs none of it and asks for nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By

from sightline.report.build import build_report
from tests.unit.report.fake_open_run import make_open_run
from tests.unit.report.fake_run import make_run

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
