"""Annotating in a browser: every kind of task by keyboard, undo, kill and restart, adjudication, attacks."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from sightline_annotate.campaign import Campaign, read_judgements
from sightline_annotate.items import KINDS, CampaignKind
from sightline_annotate.journal import ADJUDICATION, FIRST, SECOND
from tests.browser.conftest import SCRIPTS, every, fetched, one, prefer
from tests.unit.annotate.sample_campaign import (
    EVIDENCE,
    TEXT_REPLACEMENT,
    boxed,
    said,
    sample_task,
    served,
    turned_task,
)

PATIENCE = 60
"""Seconds; only a page that never gets there fails."""


class Annotator:
    """A person at the page: presses keys, waits until the page says what it did."""

    def __init__(self, browser: WebDriver, address: str) -> None:
        self.browser = browser
        browser.get(address)
        self.until("return document.body.dataset.ready === 'yes'")

    def until(self, script: str) -> Any:
        return WebDriverWait(self.browser, PATIENCE).until(lambda driver: driver.execute_script(script))

    def press(self, *keys: str) -> None:
        ActionChains(self.browser).send_keys(*keys).perform()

    def said(self, words: str) -> None:
        """Waits for a message that begins like this."""
        self.until(f"return document.getElementById('message').textContent.startsWith({words!r})")

    def at(self, place: int) -> None:
        self.until(f"return location.hash === '#{place}' && document.getElementById('question').textContent !== ''")

    def text(self, name: str) -> str:
        return str(one(self.browser, f"#{name}").text)

    def chosen(self) -> list[str]:
        return [str(field.get_attribute("value")) for field in every(self.browser, "#fields input:checked")]

    def hold(self, key: str, other: str) -> None:
        ActionChains(self.browser).key_down(key).send_keys(other).key_up(key).perform()

    def has(self, count: int, css: str = "#pictures .box") -> None:
        """Waits until there are so many of something."""
        self.until(f"return document.querySelectorAll({css!r}).length === {count}")

    def drag(self, start: tuple[int, int], by: tuple[int, int]) -> None:
        """On the first picture, from a place beside its middle."""
        picture = one(self.browser, "#pictures svg")
        moves = ActionChains(self.browser).move_to_element_with_offset(picture, *start).click_and_hold()
        moves.move_by_offset(by[0] // 2, by[1] // 2).move_by_offset(by[0] - by[0] // 2, by[1] - by[1] // 2)
        moves.release().perform()


@contextmanager
def annotator(browser: WebDriver, task: Campaign, who: str = "ann", *words: str) -> Iterator[Annotator]:
    with served(task.path, "--as", who, *words) as server:
        yield Annotator(browser, server.address)
    # What the server refused in words is logged as well, by the network.
    assert [line for line in browser.get_log("browser") if line["source"] != "network"] == []


@pytest.fixture
def negatives(tmp_path: Path) -> Campaign:
    return sample_task(tmp_path / "task")


@pytest.fixture
def evidence(tmp_path: Path) -> Campaign:
    return sample_task(tmp_path / "evidence", 4, EVIDENCE)


def test_hard_negatives_by_keyboard_alone_and_contradictions_are_said(browser: WebDriver, negatives: Campaign) -> None:
    with annotator(browser, negatives) as ann:
        ann.press("2", "2", "1", "1", "1", Keys.ENTER)
        ann.said("you decided 'valid negative', but answered 'no' to 'Can you read the word in the picture?'")
        ann.press("1", "2", "y", "1", "1")  # the mark is where the contradiction is: typed again
        ann.said("draft saved")
        assert ann.chosen() == ["yes", "no", "yes", "yes", "valid_negative"]
        ann.press(Keys.ENTER)
        ann.at(1)
        assert ann.text("count") == "1 of 6 done"
        ann.press("2", "2", Keys.ARROW_UP, "3")
        ann.said("draft saved")
        assert ann.chosen() == ["no", "unclear"]
        ann.press(Keys.ENTER)
        ann.said("'Is it absent even if case and punctuation do not count?' is not answered yet")
        own = browser.current_url.split("#")[0].rsplit("/", 1)[0]
        names = fetched(browser)
        assert names
        assert [name for name in names if not name.startswith(own)] == [], "nothing of another machine"
        assert "token" not in browser.current_url
    first, second, *_ = read_judgements(negatives)
    assert first.fields(FIRST) == said()
    assert second.given == {}, "a draft is no answer"


def test_undo_goes_back_through_a_confirmation(browser: WebDriver, negatives: Campaign) -> None:
    with annotator(browser, negatives) as ann:
        ann.press("1", "2", "1", "1", "1", Keys.ENTER)
        ann.at(1)
        ann.press("u")
        ann.said("undone")
        ann.at(0)
        assert len(ann.chosen()) == 5, "the answers stay, only the confirmation is taken back"
        assert ann.text("count") == "0 of 6 done"
        ann.hold(Keys.CONTROL, "z")
        ann.has(4, "#fields input:checked")
    assert len(negatives.journal.entries()) == 8, "five drafts, a confirmation, two undos"


def test_a_changed_picture_is_said_and_not_shown(browser: WebDriver, negatives: Campaign) -> None:
    with annotator(browser, negatives) as ann:
        Image.new("RGB", (120, 80), "black").save(negatives.images / "page.png")
        ann.press("j")
        ann.said("A picture cannot be shown")


def test_boxes_by_pointer_and_keyboard_none_and_the_way_of_tab(browser: WebDriver, evidence: Campaign) -> None:
    with annotator(browser, evidence) as ann:
        ann.drag((-120, -80), (160, 60))
        ann.said("draft saved")
        ann.has(1)
        ann.press("l", "t", "Total", Keys.ESCAPE, "d", "v", *[Keys.ARROW_RIGHT] * 3)
        ann.has(2)
        ann.hold(Keys.SHIFT, Keys.ARROW_DOWN)
        ann.press("d", Keys.DELETE, Keys.ENTER)
        ann.at(1)
        ann.press("3", Keys.ENTER)
        ann.at(2)
        ann.press("d", "d")
        ann.has(2)
        boxes = "[...document.querySelectorAll('#pictures .box')]"
        chosen = f"return {boxes}.findIndex((box) => box.classList.contains('on'))"
        assert browser.execute_script(chosen) == 1
        ann.hold(Keys.SHIFT, Keys.TAB)
        assert browser.execute_script(chosen) == 0
        ann.press(Keys.TAB, Keys.TAB)
        assert browser.execute_script(chosen) == -1
        assert browser.execute_script("return document.activeElement !== document.body"), "on through the page"
    first, second, *_ = read_judgements(evidence)
    fields = first.fields(FIRST)
    assert fields is not None
    assert [(box["role"], box["text"]) for box in fields["boxes"]] == [("field_label", "Total"), ("answer_value", "")]
    x1, y1, x2, y2 = fields["boxes"][0]["region"]
    assert 0 < x1 < x2 < 1
    assert 0 < y1 < y2 < 1
    assert fields["status"] == "annotated"
    assert second.fields(FIRST) == {"boxes": [], "status": "not_visible"}


def test_a_box_is_moved_sized_and_undone(browser: WebDriver, evidence: Campaign) -> None:
    with annotator(browser, evidence) as ann:
        ann.drag((-100, -60), (120, 60))
        ann.said("draft saved")
        ann.drag((-40, -30), (50, 20))
        ann.said("draft saved")
        ann.press("u")
        ann.said("undone")
        ann.press("u")
        ann.has(0)
    regions = [entry.fields["boxes"][0]["region"] for entry in evidence.journal.entries()[:2] if entry.fields]
    assert regions[0] != regions[1]
    (w1, h1), (w2, h2) = ((r[2] - r[0], r[3] - r[1]) for r in regions)
    assert (w1, h1) == pytest.approx((w2, h2)), "moved, not sized"


def test_kill_and_restart_in_the_middle(browser: WebDriver, evidence: Campaign) -> None:
    with served(evidence.path, "--as", "ann") as server:
        ann = Annotator(browser, server.address)
        ann.drag((-100, -60), (120, 60))
        ann.said("draft saved")
        ann.press(Keys.ENTER)
        ann.at(1)
        ann.drag((-100, -60), (120, 60))
        ann.said("draft saved")
        server.process.kill()
        server.process.wait()
        ann.press("d")
        ann.said("The server does not answer")
    browser.get_log("browser")
    with annotator(browser, evidence) as ann:
        ann.at(1)
        assert ann.text("count") == "1 of 4 done"
        assert len(every(browser, "#pictures .box")) == 1, (
            "the draft is where it was; the box that was not said to be saved is not there"
        )
        ann.press(Keys.ENTER)
        ann.at(2)
    assert [bool(each.given) for each in read_judgements(evidence)] == [True, True, False, False]


def test_when_all_is_done_the_page_says_so_and_lets_look_back(browser: WebDriver, tmp_path: Path) -> None:
    task = sample_task(tmp_path / "task", 1)
    with annotator(browser, task) as ann:
        ann.press("1", "2", "1", "1", "1", Keys.ENTER)
        ann.until("return !document.getElementById('done').hidden")
        assert "All 1 of your items are confirmed" in ann.text("done-words")
        one(browser, "#look-back").click()
        ann.until("return !document.getElementById('work').hidden")
        assert len(ann.chosen()) == 5


def test_the_second_person_sees_nothing_of_the_first_and_a_third_decides_what_they_differ_about(
    browser: WebDriver, negatives: Campaign
) -> None:
    negatives.journal.append_all((FIRST, "ann", item.id, said(annotator_notes="SECRET")) for item in negatives.items)
    with annotator(browser, negatives, "bob", "--second") as bob:
        assert bob.chosen() == []
        assert "SECRET" not in str(browser.page_source)
        assert bob.text("count") == "0 of 3 done"
    disputed = next(item for item in negatives.items if item.second)
    negatives.journal.append_all(
        (SECOND, "bob", item.id, said(qc_decision="unclear" if item is disputed else "valid_negative"))
        for item in negatives.items
        if item.second
    )
    with served("adjudicate", negatives.path, "--as", "carol") as server:
        carol = Annotator(browser, server.address)
        (differing,) = every(browser, "fieldset.differs")
        assert one(differing, "legend").text == "What is this item?"
        assert len(carol.chosen()) == 4, "what two people agree on stands"
        words = one(differing, ".said").text
        assert {"one person", "another"} <= {part.strip().partition(":")[0] for part in words.split("·")}
        carol.press("5", Keys.ENTER)
        carol.until("return !document.getElementById('done').hidden")
    found = next(each for each in read_judgements(negatives) if each.item is disputed)
    assert found.given[ADJUDICATION].who == "carol"
    assert found.final is not None
    assert found.final[1] == "adjudicated"


def test_an_adjudicator_takes_one_persons_boxes(browser: WebDriver, evidence: Campaign) -> None:
    first, other = boxed(("context", (0.1, 0.1, 0.3, 0.3))), boxed(("answer_value", (0.6, 0.6, 0.9, 0.9)))
    evidence.journal.append_all((FIRST, "ann", item.id, first) for item in evidence.items)
    evidence.journal.append_all((SECOND, "bob", item.id, other) for item in evidence.items if item.second)
    with served("adjudicate", evidence.path, "--as", "carol") as server:
        carol = Annotator(browser, server.address)
        assert len(every(browser, "#pictures .reading")) == 2
        carol.press("g", Keys.ENTER)
        carol.until("return document.getElementById('progress').value === 1")
    (decided,) = [each for each in read_judgements(evidence) if ADJUDICATION in each.given]
    assert decided.fields(ADJUDICATION) in (first, other)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_everything_has_a_name_and_nothing_moves(browser: WebDriver, tmp_path: Path, kind: CampaignKind) -> None:
    task = sample_task(tmp_path / "task", 3, kind)
    with annotator(browser, task) as ann:
        browser.execute_script(SCRIPTS["list shifts"])
        ann.press("j")
        ann.at(1)
        ann.press("1", "k")
        ann.at(0)
        ann.until("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        assert sum(browser.execute_script("return window.shifted")) < 0.001
        for element in every(browser, "button, input, select, progress, svg, form, section"):
            if element.is_displayed():
                assert element.accessible_name, element.get_attribute("outerHTML")
        if kind is TEXT_REPLACEMENT:
            assert len(every(browser, "#pictures figcaption")) == 4
            ann.press(*"11111111", "1", Keys.ENTER)
            ann.at(1)
    if kind is TEXT_REPLACEMENT:
        assert read_judgements(task)[0].fields(FIRST) == said(TEXT_REPLACEMENT)


def test_words_stand_out_from_the_paper_in_both_schemes(browser: WebDriver, negatives: Campaign) -> None:
    with annotator(browser, negatives) as ann:
        ann.press("1")
        ann.said("draft saved")
        for scheme in ("light", "dark"):
            prefer(browser, scheme)
            found = browser.execute_script(SCRIPTS["contrast"])
            assert len(found) > 15
            assert [each for each in found if each[0] < 4.5] == []


def test_a_foreign_page_in_the_same_browser_gets_and_changes_nothing(
    browser: WebDriver, negatives: Campaign, tmp_path: Path
) -> None:
    """The annotator's cookie is in the browser; a page of another origin still cannot use it."""
    (tmp_path / "page.html").write_text("<!DOCTYPE html><title>Elsewhere</title><p>Elsewhere", encoding="utf-8")
    foreign = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with (
        served(negatives.path, "--as", "ann") as server,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), foreign) as elsewhere,
    ):
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        ann = Annotator(browser, server.address)
        ann.press("1")
        ann.said("draft saved")
        browser.get(f"http://127.0.0.1:{elsewhere.server_port}/page.html")
        body = '{"number": 1, "fields": {"qc_decision": "unclear"}, "confirmed": false, "supersedes": null}'
        outcome = browser.execute_async_script(SCRIPTS["attack an annotator"], server.origin, body)
        elsewhere.shutdown()
        assert "shown" not in outcome
        assert 200 not in outcome
        assert outcome[0] == outcome[3] == "refused"
    browser.get_log("browser")
    (entry,) = negatives.journal.entries()
    assert (entry.item, entry.fields) == (negatives.items[0].id, {"human_source_text_visible": "yes"})


def test_a_photograph_that_asks_to_be_turned_fills_the_frame_of_its_boxes(browser: WebDriver, tmp_path: Path) -> None:
    task = turned_task(tmp_path)
    with annotator(browser, task) as ann:
        shown = browser.execute_async_script(SCRIPTS["size of the picture"])
        assert tuple(shown) == task.items[0].views[0].size
        assert ann.text("question")
