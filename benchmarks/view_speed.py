"""How long somebody waits for the viewer, by the browser's own clock, at 10 k, 100 k and 1 M rows under 40 arms.

    python -m benchmarks.view_speed
    python -m benchmarks.view_speed --run FOLDER

A run folder is generated (``benchmarks.large_runs``) or named, the real command serves it, and a headless Chromium
tells when the pages set the marks of its performance timeline: ``page-shown`` after navigation, ``case-drawn`` after a
key.

start: from the command to its address, all rows read. First view: from the navigation to the overview with its table.
Query: from sending a query to its rows. Next case: from the key to four pictures drawn, pressed again as soon as they
are. Any case: from a link to a case far away in the list, of which nothing was read before. Load: processes that wanted
a core meanwhile, per core; beyond 1 the waits are the machine's as much as the viewer's.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

SIZES = (10_000, 100_000, 1_000_000)
BUDGETS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8)
ARMS = ["full", *(f"{selector}:{budget}" for budget in BUDGETS for selector in ("target", "random", "grid"))]
QUERY = 'arm == "target:0.3" and not correct and ecr < 0.5'
CASES = 30
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


@contextmanager
def serving(run: Path) -> Iterator[tuple[str, float]]:
    """The address of a viewer of a run, and the seconds until it was printed."""
    begun = time.perf_counter()
    words = [sys.executable, "-m", "sightline", "view", str(run), "--port", "0", "--no-open"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    found = re.search(r"http://\S+", server.stdout.readline())
    assert found is not None, "the viewer did not start"
    try:
        yield found[0], time.perf_counter() - begun
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


@contextmanager
def chromium() -> Iterator[WebDriver]:
    options = Options()
    options.binary_location = str(shutil.which("chromium") or shutil.which("google-chrome"))
    for flag in FLAGS:
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    browser.set_window_size(1360, 900)
    try:
        yield browser
    finally:
        browser.quit()


def mark(browser: WebDriver, name: str, count: int = 1) -> float:
    """Milliseconds since navigation of the last of at least ``count`` marks of a name."""

    def last(browser: WebDriver) -> Any:
        script = "return performance.getEntriesByName(arguments[0]).map((entry) => entry.startTime)"
        found = browser.execute_script(script, name)
        return found if len(found) >= count else False

    return float(WebDriverWait(browser, 300, poll_frequency=0.02).until(last)[-1])


def measured(run: Path) -> dict[str, float]:
    """Seconds of the start, milliseconds of all else."""
    with serving(run) as (address, start), chromium() as browser:
        base = address.split("?")[0]
        browser.get(address)
        first = mark(browser, "page-shown")
        assert browser.find_elements(By.CSS_SELECTOR, "#table-main tbody tr"), "the overview has no table"
        query = timed(browser, "page-shown", lambda: send(browser, f"#/rows?query={quote(QUERY)}"))
        rows = int(re.sub(r"\D", "", browser.find_element(By.ID, "total").text))
        names = [link.text for link in browser.find_elements(By.CSS_SELECTOR, "table.rows tbody a")]
        browser.get(f"{base}#/case?probe={names[0]}&query={quote(QUERY)}")
        browser.refresh()
        mark(browser, "case-drawn")
        following = [timed(browser, "case-drawn", lambda: press(browser)) for _ in range(min(CASES, rows - 1))]
        far = []
        for offset in range(rows // 2, rows, max(1, rows // 20))[:8]:
            probe = name_at(browser, offset)
            far.append(timed(browser, "case-drawn", partial(send, browser, f"#/case?probe={probe}")))
        return {
            "start": start,
            "first": first,
            "query": query,
            "next": statistics.median(following),
            "next_worst": max(following),
            "any": statistics.median(far),
        }


def send(browser: WebDriver, address: str) -> None:
    browser.execute_script("performance.mark('sent'); location.hash = arguments[0]", address)


def press(browser: WebDriver) -> None:
    """The key for the next case, once the list knows which it is."""
    WebDriverWait(browser, 300, poll_frequency=0.02).until(lambda b: b.find_element(By.ID, "next").is_enabled())
    browser.execute_script(
        "performance.mark('sent'); document.dispatchEvent(new KeyboardEvent('keydown', { key: 'n' }))"
    )


def timed(browser: WebDriver, name: str, act: Callable[[], None]) -> float:
    """Milliseconds from what a person does to the mark that the page sets when it is done."""
    browser.execute_script("performance.clearMarks()")
    act()
    done = mark(browser, name)
    return done - mark(browser, "sent")


def name_at(browser: WebDriver, offset: int) -> str:
    """The probe at a place of the query's list, asked for without reading its case."""
    script = (
        "const done = arguments[2]; fetch(`/api/rows?query=${encodeURIComponent(arguments[0])}&offset=${arguments[1]}"
        "&limit=1`).then((answer) => answer.json()).then((found) => done(found.rows[0].probe_id))"
    )
    return str(browser.execute_async_script(script, QUERY, offset))


def generated(rows: int, folder: Path) -> Path:
    from benchmarks.large_runs import Plan, write_large_run

    return write_large_run(folder / f"rows{rows}", Plan(rows, arms=ARMS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=SIZES, help="Sizes to generate, over all arms.")
    parser.add_argument("--run", type=Path, nargs="*", help="Run folders to measure instead.")
    asked = parser.parse_args()
    print("| run | start | first view | query | next case | slowest next case | any case | load per core |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        runs = asked.run or [generated(rows, Path(folder)) for rows in asked.rows]
        for run in runs:
            found = measured(run)
            cells = [f"{found['start']:.1f} s"]
            cells += [f"{found[name]:.0f} ms" for name in ("first", "query", "next", "next_worst", "any")]
            cells.append(f"{os.getloadavg()[0] / (os.cpu_count() or 1):.1f}")
            print(f"| {run.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
