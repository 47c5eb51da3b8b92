"""The viewer in a real browser, served by the real command: every flow, and attacks on host, origin and paths."""

import http.client
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pandas as pd
import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from sightline import Budget, load_run
from tests.browser.conftest import SCRIPTS, every, fits, one, prefer, texts
from tests.runs.image_files import SHARP, write_image_files
from tests.runs.yes_no import HOSTILE, grid_cells, make_run
from tests.warm_python import Popen, run_python

PATIENCE_S = 60
"""How long a machine under load may take; nothing passes or fails by it."""


@dataclass
class Served:
    """A running viewer, and the parts of the address that it printed."""

    process: subprocess.Popen[str]
    address: str

    def __post_init__(self) -> None:
        self.base, _, self.token = self.address.partition("?token=")
        self.port = int(urlsplit(self.base).port or 0)


def served(*words: str | Path) -> Served:
    command = [sys.executable, "-m", "sightline", "view", *map(str, words), "--port", "0", "--no-open"]
    process = Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    found = re.search(r"http://\S+", line)
    assert found, line + process.stderr.read()
    assert process.stdout.readline() == "stop with Ctrl-C\n"  # as a line: communicate() does not see what is buffered
    return Served(process, found[0])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("view")
    first = make_run(home / "first", images=12)
    for run in (first, make_run(home / "second", images=12, shift=0.4, manifest={"model": "other"})):
        write_image_files(run, home / "images")
    return home


@pytest.fixture(scope="module")
def viewer(home: Path) -> Iterator[Served]:
    running = served(home / "first", home / "second", "--images", home / "images")
    yield running
    running.process.send_signal(signal.SIGINT)
    output, errors = running.process.communicate()
    assert (running.process.returncode, output, errors) == (0, "stopped\n", "reading rows\n")


@pytest.fixture
def page(browser: WebDriver, viewer: Served) -> Iterator[WebDriver]:
    browser.get(viewer.address)
    browser.get_log("browser")
    yield browser
    severe = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert [entry for entry in severe if "400" not in entry["message"]] == []


def wait(browser: WebDriver, found: Any) -> Any:
    """Pages are rebuilt while they are looked at: an element that is gone is looked for again."""
    return WebDriverWait(browser, PATIENCE_S, ignored_exceptions=[StaleElementReferenceException]).until(found)


def at(browser: WebDriver, css: str) -> WebElement:
    return WebDriverWait(browser, PATIENCE_S).until(lambda b: one(b, css))


def says(browser: WebDriver, css: str, words: str) -> None:
    """Waits until an element has this text."""
    wait(browser, lambda b: at(b, css).text == words)


def press(browser: WebDriver, *keys: str) -> None:
    at(browser, "body").send_keys(*keys)


def rows_of(home: Path, query: str, run: str = "first") -> pd.DataFrame:
    return load_run(home / run).frame().query(query)


def go(browser: WebDriver, viewer: Served, address: str) -> None:
    """To an address of the viewer, as somebody who pastes a link."""
    browser.get("about:blank")
    browser.get(viewer.base + address)


def open_case(browser: WebDriver, viewer: Served, probe: str, rest: str = "") -> list[WebElement]:
    """The pictures of a case, once their pixels are there."""
    go(browser, viewer, f"#/case?probe={quote(probe)}{rest}")
    canvases = "#panels canvas"
    wait(browser, lambda b: 0 < len(every(b, canvases)) == len(every(b, f"{canvases}[data-pixels]")))
    return every(browser, canvases)


def lit(browser: WebDriver, canvas: WebElement) -> np.ndarray:
    """(N,) bool: which cells are not veiled, read from the pixels of the picture.

    The same picture without its veil is drawn once more: what is as bright there was lit.
    """
    cells = grid_cells()
    # Beside the middle of a cell, where no outline runs.
    points = [[float(x1 + 0.3 * (x2 - x1)), float(y1 + 0.3 * (y2 - y1))] for x1, y1, x2, y2 in cells]
    press(browser, "e")
    veiled = np.array(browser.execute_script(SCRIPTS["brightness of places"], canvas, points))
    press(browser, "m")
    bright = np.array(browser.execute_script(SCRIPTS["brightness of places"], canvas, points))
    press(browser, "m", "e")
    found: np.ndarray = veiled > 0.8 * bright
    return found


def test_the_first_page_has_the_headline_and_intervals_come_without_a_shift(page: WebDriver, viewer: Served) -> None:
    go(page, viewer, "#/overview")
    page.execute_script(SCRIPTS["count shifts"])
    wait(page, lambda b: every(b, "#lead[data-state=done]"))
    assert "evidence" in at(page, "#lead .headline").text
    assert len(every(page, "#table-main tbody:not(.heading) tr")) == 8
    assert "–" in at(page, "#table-main tbody tr td:nth-child(3) .range").text
    assert len(every(page, ".frontier .bar")) > 0
    assert page.execute_script("return window.shifted ?? 0") < 0.1  # what browsers call good


CHOICES = [
    ("", 'arm == "full"', "not correct"),
    ("correct and ecr < 0.1", 'correct and ecr < 0.1 and arm == "full"', "ecr < 0.1 and not correct"),
    ('arm == "a and \\"b" and not correct', 'not correct and arm == "full"', 'arm == "a and \\"b"'),
    ("ecr < 0.1 or correct", '(ecr < 0.1 or correct) and arm == "full"', "(ecr < 0.1 or correct) and not correct"),
    ("(correct and ecr > 0)", '(correct and ecr > 0) and arm == "full"', "(correct and ecr > 0) and not correct"),
]
"""(a query, it with an arm chosen, it with a button pressed)"""


def test_choices_menus_and_buttons_write_the_query(page: WebDriver, viewer: Served, home: Path) -> None:
    go(page, viewer, "#/rows")
    for query, *written in CHOICES:
        assert page.execute_async_script(SCRIPTS["clauses"], query, "arm", "full", "not correct") == written
    Select(at(page, "select[data-column=arm]")).select_by_value("target:0.3")
    wait(page, lambda b: at(b, "#query").get_attribute("value") == 'arm == "target:0.3"')
    at(page, "button[data-chip=wrong]").click()
    wait(page, lambda b: at(b, "#query").get_attribute("value") == 'arm == "target:0.3" and not correct')
    frame = rows_of(home, "arm == 'target:0.3' and not correct")
    says(page, "#total", f"{len(frame)} row{'s' * (len(frame) != 1)}")
    assert Select(at(page, "select[data-column=arm]")).first_selected_option.text == "target:0.3"
    assert frame["question"].iloc[0] in at(page, "table.rows tbody .asked").text
    wait(page, lambda b: b.execute_script("return document.querySelector('.thumbnail')?.naturalWidth > 0"))


def test_from_a_point_and_from_a_cell_to_the_cases_behind(page: WebDriver, viewer: Served, home: Path) -> None:
    go(page, viewer, "#/overview")
    points = wait(page, lambda b: every(b, ".frontier a"))
    assert len(points) == 8
    point = next(one for one in points if str(one.get_attribute("aria-label")).startswith("grid:0.3"))
    ActionChains(page).move_to_element(point).click().perform()
    wait(page, lambda b: "24 rows" in at(b, "#total").text)
    assert at(page, "#query").get_attribute("value") == 'arm == "grid:0.3"'
    go(page, viewer, "#/overview")
    at(page, "#table-main tbody:nth-of-type(2) tr:nth-child(3) td:nth-child(4) a").click()  # its false alarms
    frame = rows_of(home, "arm == 'target:0.3' and label == 'no' and predicted == 'yes'")
    says(page, "#total", f"{len(frame)} row{'s' * (len(frame) != 1)}")
    link = at(page, "table.rows tbody a")
    first = link.text
    assert first == frame.sort_values("margin", ascending=False)["probe_id"].iloc[0]
    link.click()
    assert wait(page, lambda b: first in one(b, "main").text and every(b, "canvas"))


def test_a_case_shows_the_file_exactly_the_kept_cells_and_no_markup_of_the_runs(
    page: WebDriver, viewer: Served, home: Path
) -> None:
    canvases = open_case(page, viewer, "img0003:yes", "&panels=0,full|0,target:0.3|0,grid:0.3|0,random:0.5")
    assert [int(str(canvas.get_attribute("data-pixels"))) for canvas in canvases] == [SHARP[0]] * 4
    run = load_run(home / "first")
    for canvas, arm in zip(canvases, ("full", "target:0.3", "grid:0.3", "random:0.5"), strict=True):
        assert (lit(page, canvas) == run.masks(arm)["img0003:yes"]).all()
        assert str(canvas.get_attribute("aria-label")).startswith(f"{arm}: ")
    words, row = at(page, "main").text, run.row("img0003:yes", "target:0.3")
    assert f"coverage {row['ecr']:.2f}" in words
    assert f"margin {row['margin']:.2f}".replace("-", "−") in words
    assert 'Does the image contain the exact text "closed3"?' in words

    open_case(page, viewer, "img0001:yes")
    assert HOSTILE in at(page, "#question").text
    assert page.title != "owned"
    go(page, viewer, f"#/rows?query={quote(HOSTILE)}")
    wait(page, lambda b: "cannot be read" in at(b, "#told").text)
    assert page.title != "owned"


def test_pictures_are_zoomed_together_and_blink_by_key(page: WebDriver, viewer: Served) -> None:
    canvases = open_case(page, viewer, "img0003:yes", "&panels=0,full|0,full")
    drawn = "return [...document.querySelectorAll('#panels canvas')].map((canvas) => canvas.toDataURL())"
    before = page.execute_script(drawn)
    page.execute_script(SCRIPTS["turn the wheel"], canvases[0])
    after = page.execute_script(drawn)
    assert after[0] != before[0]
    assert after[0] == after[1]
    wait(page, lambda b: "zoom=2.6" in b.current_url)
    link = page.current_url
    page.get("about:blank")
    page.get(link)
    wait(page, lambda b: len(every(b, "canvas.zoomed[data-pixels]")) == 2)
    press(page, "0")
    assert every(page, "canvas.zoomed") == []
    press(page, "z")
    assert len(every(page, "canvas.zoomed")) == 2
    ActionChains(page).drag_and_drop_by_offset(one(page, "canvas"), 60, 30).perform()
    wait(page, lambda b: "zoom=" in b.current_url)

    open_case(page, viewer, "img0003:yes", "&panels=0,full|0,target:0.15|0,grid:0.3")

    def shown() -> list[str]:
        return [one(figure, "h2").text for figure in every(page, "figure") if figure.is_displayed()]

    for key, arms in {"": "full target:0.15 grid:0.3", "b": "full", "bb": "target:0.15", "bbb": "full"}.items():
        press(page, key[:1])
        assert shown() == arms.split()
    assert one(page, "#said").get_attribute("textContent") == "full"
    press(page, Keys.ESCAPE)
    assert shown() == ["full", "target:0.15", "grid:0.3"]


def test_hovering_tells_about_a_token_and_the_slider_replays_what_the_method_would_keep(
    page: WebDriver, viewer: Served, home: Path
) -> None:
    page.set_window_size(1360, 1300)  # all of the picture in sight: offsets count from the middle of what is
    (canvas,) = open_case(page, viewer, "img0004:no", "&panels=0,target:0.3")
    run = load_run(home / "first")
    token, size = 47, canvas.size
    x1, y1, x2, y2 = (float(side) for side in grid_cells()[token])
    place = round((x1 + x2 - 1) / 2 * size["width"]), round((y1 + y2 - 1) / 2 * size["height"])
    ActionChains(page).move_to_element_with_offset(canvas, *place).perform()
    keepers = [arm for arm in run.arms if run.masks(arm)["img0004:no"][token]]
    wait(page, lambda b: f"kept by {len(keepers)} of 8 arms: {', '.join(keepers)}" in at(b, "#hover").text)
    scores = np.frombuffer(run.row("img0004:no", "target:0.3")["scores"], "<f4")
    words = at(page, "#hover").text
    assert words.startswith("token 47 of 300 under target:0.3 · cell 0.350, 0.133, 0.400, 0.200")
    assert f"score {scores[token]:.4f}, rank {int((scores > scores[token]).sum()) + 1}" in words

    canvases = open_case(page, viewer, "img0005:yes", "&panels=0,target:0.3|0,random:0.3")
    assert len(every(page, ".slider")) == 1, "only a method that is nothing but its scores"
    slide = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    scores = np.frombuffer(run.row("img0005:yes", "target:0.3")["scores"], "<f4")
    for keep in (0.07, 0.5, 1.0):
        page.execute_script(slide, at(page, ".slider input"), str(keep))
        k = Budget.ratio(keep).resolve(300)
        wanted = np.isin(np.arange(300), np.argsort(-scores, kind="stable")[:k])
        assert f"K {k} at {keep:.2f}" in at(page, ".slider").text
        assert canvases[0].get_attribute("data-replayed") == str(k)
        if keep == 0.5:
            state = page.execute_async_script(SCRIPTS["replay"], scores.tolist(), keep)
            assert (np.array(state, dtype=bool) == wanted).all()
    at(page, ".slider button").click()
    assert "as run" in at(page, ".slider output").text


def test_next_case_by_key_follows_the_list(page: WebDriver, viewer: Served, home: Path) -> None:
    query = 'arm == "target:0.15" and not correct'
    names = rows_of(home, query).sort_values("margin", kind="stable")["probe_id"].tolist()
    open_case(page, viewer, names[0], f"&sort=margin&query={quote(query)}")
    says(page, "#position", f"1 of {len(names)}")
    for place, name in enumerate(names[1:4], start=2):
        press(page, "n")
        says(page, "#position", f"{place} of {len(names)}")
        assert f"probe {name}" in at(page, "main").text
    press(page, Keys.ARROW_LEFT)
    says(page, "#position", f"3 of {len(names)}")


def test_queries_are_answered_mended_saved_and_found_again(page: WebDriver, viewer: Served, home: Path) -> None:
    go(page, viewer, "#/rows")
    at(page, "#total")
    press(page, "/")
    at(page, "#query").send_keys("corect and ecr < 0.1", Keys.ENTER)
    wait(page, lambda b: "did you mean 'correct'?" in at(b, "#told").text)
    box = at(page, "#query")
    box.clear()
    box.send_keys("correct and ecr < 0.1", Keys.ENTER)
    says(page, "#total", f"{len(rows_of(home, 'correct and ecr < 0.1'))} rows")
    page.find_element(By.XPATH, "//thead//button[text()='margin']").click()
    wait(page, lambda b: "sort=margin" in b.current_url and every(b, "[aria-sort=ascending]"))
    margins = [float(text.replace("−", "-")) for text in texts(page, "tbody td:nth-child(8)")]
    assert margins == sorted(margins)
    at(page, "details summary").click()
    assert "Requested kept fraction" in at(page, ".columns-list").text

    go(page, viewer, f"#/rows?query={quote('not correct')}&sort=ecr")
    at(page, "#total")
    at(page, "#view-name").send_keys("wrong ones")
    page.find_element(By.XPATH, "//button[text()='Save view']").click()
    link = page.current_url
    go(page, viewer, "#/rows")
    at(page, "#total")
    Select(at(page, "#saved")).select_by_visible_text("wrong ones")
    wait(page, lambda b: b.current_url == link)


def test_rows_are_copied_as_csv_and_as_a_probe_list(page: WebDriver, viewer: Served) -> None:
    rights = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": viewer.base.rstrip("/")}
    page.execute_cdp_cmd("Browser.grantPermissions", rights)
    query = quote('arm == "full" and label == "yes"')
    read = "const done = arguments[0]; navigator.clipboard.readText().then(done, (error) => done(String(error)))"
    go(page, viewer, f"#/rows?query={query}")
    for button, first, count in (("Copy as CSV", "arm,probe_id", 13), ("Copy as probe list", "img0000:yes", 12)):
        wait(page, lambda b, button=button: b.find_element(By.XPATH, f"//button[text()='{button}']")).click()
        wait(page, lambda b: "copied" in at(b, "#told").text)
        lines = str(page.execute_async_script(read)).splitlines()
        assert lines[0].startswith(first)
        assert len(lines) == count
        page.execute_script("document.getElementById('told').textContent = ''")
    open_case(page, viewer, "img0000:yes")
    page.find_element(By.XPATH, "//button[text()='Make this a Label Studio task']").click()
    wait(page, lambda b: "Label Studio task copied" in at(b, "#told").text)
    assert '"rectanglelabels"' in str(page.execute_async_script(read))


def test_two_runs_are_compared_and_their_pictures_stand_side_by_side(
    page: WebDriver, viewer: Served, home: Path
) -> None:
    go(page, viewer, "#/compare?arm=target:0.3&other=target:0.3")
    frames = [rows_of(home, "arm == 'target:0.3'", run) for run in ("first", "second")]
    right = [frame.set_index("probe_id")["correct"] for frame in frames]
    counts = {"only_first": int((right[0] & ~right[1]).sum()), "only_second": int((~right[0] & right[1]).sum())}
    for outcome, count in counts.items():
        assert at(page, f"[data-outcome={outcome}] b").text == str(count)
    chosen = max(counts, key=lambda outcome: counts[outcome])
    at(page, f"[data-outcome={chosen}]").click()
    wait(page, lambda b: f"outcome={chosen}" in b.current_url)
    wait(page, lambda b: len(every(b, "table.rows tbody tr")) == counts[chosen])
    at(page, "table.rows tbody a").click()
    wait(page, lambda b: len(every(b, "canvas[data-pixels]")) == 2)
    assert texts(page, "figure h2") == ["target:0.3\nfirst", "target:0.3\nsecond"]
    says(page, "#position", f"1 of {counts[chosen]}")


def test_every_page_names_what_is_operated_is_dark_if_asked_and_fits_a_telephone(
    page: WebDriver, viewer: Served
) -> None:
    prefer(page, "dark")
    for address in ("#/overview", "#/rows", "#/case?probe=img0003:yes", "#/compare"):
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        go(page, viewer, address)
        at(page, "table")
        assert page.execute_script(SCRIPTS["nameless in the viewer"]) == []
        assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)"
        assert fits(page, 400)
        page.refresh()
        at(page, "table")
        assert fits(page, 400)


def answer(viewer: Served, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    """What the server says to a request that no browser would make; paths go out as they are."""
    connection = http.client.HTTPConnection("127.0.0.1", viewer.port)
    connection.putrequest(method, path, skip_host="host" in headers, skip_accept_encoding=True)
    for name, value in {"cookie": f"sightline-{viewer.port}={viewer.token}", **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    return response.status, response.read()


TRICKS = (
    "/view/../secret.jpg", "/view/%2e%2e/%2e%2e/secret.jpg", "/look/..%2f..%2fsecret.jpg", "//etc/passwd",
    "/view//etc/passwd", "/api/image?run=99&key=x", "/api/image?run=x&key=x", "/api/case?probe=../../secret.jpg",
    "/api/rows?offset=-9&limit=x",
)  # fmt: skip


def test_attacks_on_host_origin_and_paths_come_to_nothing(viewer: Served, home: Path) -> None:
    assert answer(viewer, "/api/runs")[0] == 200
    for cookie in ("", f"sightline-{viewer.port}={'x' * 32}"):
        assert answer(viewer, "/api/runs", cookie=cookie)[0] == 403
    for host in ("rebound.example", f"rebound.example:{viewer.port}", "127.0.0.1"):
        assert answer(viewer, "/api/runs", host=host)[0] == 403
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{viewer.port + 1}"):
        assert answer(viewer, "/api/runs", origin=origin)[0] == 403
        assert answer(viewer, "/api/runs", "POST", origin=origin)[0] == 403
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert answer(viewer, "/api/runs", method, origin=viewer.base.rstrip("/"))[0] == 405
    (home / "secret.jpg").write_bytes(b"secret")
    keys = ("../secret.jpg", str(home / "secret.jpg"), "img0000.jpg@orig/../../secret.jpg")
    for path in (*TRICKS, *(f"/api/image?key={quote(name)}" for name in keys)):
        status, body = answer(viewer, path)
        assert status in (400, 404), path
        assert b"secret" not in body.replace(b"secret.jpg", b"")
        assert b"root:" not in body


def test_a_page_of_another_origin_gets_nothing_and_the_token_leaves_the_address(
    browser: WebDriver, viewer: Served, tmp_path: Path
) -> None:
    other = tmp_path / "other.html"
    other.write_text("<title>other</title>")
    browser.get(viewer.address)
    browser.get(other.as_uri())
    for way in ("fetch from", "frame"):
        assert browser.execute_async_script(SCRIPTS[f"{way} another origin"], viewer.base) == "blocked"
    browser.get_log("browser")

    browser.execute_cdp_cmd("Network.clearBrowserCookies", {})
    browser.get(viewer.base)
    assert "open the address that the command printed" in one(browser, "body").text
    browser.get(viewer.address + "#/rows?sort=ecr")
    at(browser, "#total")
    assert "token" not in browser.current_url
    assert browser.current_url.endswith("#/rows?sort=ecr")
    assert "sightline" not in str(browser.execute_script("return document.cookie"))


def test_a_run_is_followed_while_it_is_written(browser: WebDriver, home: Path, tmp_path: Path) -> None:
    part = shutil.copytree(home / "first", tmp_path / "part")
    late = sorted((part / "rows").iterdir())[-2:]
    for folder in late:
        folder.rename(tmp_path / folder.name)
    running = served(part)
    try:
        browser.get(running.address)
        lines = "#table-main tbody:not(.heading) tr"
        assert at(browser, "#state").text == "6 files of 8, growing"
        assert len(wait(browser, lambda b: every(b, lines))) == 6
        for folder in late:
            (tmp_path / folder.name).rename(folder)
        says(browser, "#state", "finished")
        wait(browser, lambda b: len(every(b, lines)) == 8)
    finally:
        running.process.send_signal(signal.SIGINT)
        running.process.communicate()


def test_a_bundle_works_from_a_file(browser: WebDriver, home: Path, tmp_path: Path) -> None:
    runs = [str(home / "first"), str(home / "second"), "--images", str(home / "images")]
    words = ["--bundle", str(tmp_path / "site"), "--query", 'label == "yes"', "--most", "5"]
    done = run_python(["-m", "sightline", "view", *runs, *words])
    assert done.stdout == f"bundle: {tmp_path / 'site' / 'index.html'}\n"
    moved = (tmp_path / "site").rename(tmp_path / "elsewhere") / "index.html"
    browser.get("about:blank")  # a page of a viewer that was stopped goes on asking it
    browser.get_log("browser")
    browser.get(moved.as_uri())
    assert "evidence" in at(browser, "#lead .headline").text
    at(browser, "#table-main tbody tr td a").click()
    says(browser, "#total", "5 rows")
    assert "5 of 12 and 5 of 12 cases" in at(browser, "main").text
    at(browser, "table.rows tbody a").click()
    wait(browser, lambda b: len(every(b, f"canvas[data-pixels='{SHARP[0]}']")) == 4)
    says(browser, "#position", "1 of 5")
    press(browser, "n")
    says(browser, "#position", "2 of 5")
    browser.get(f"{moved.as_uri()}#/compare?arm=grid:0.3&other=grid:0.3")
    browser.refresh()
    assert "answered by both" in at(browser, "#list .facts").text
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
