"""The pages' server: what goes out, what comes in, who is refused, and what survives a kill."""

import io
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from sightline.serving.server import Address, Guard
from sightline_annotate.campaign import Campaign, WorkQueue, open_campaign, read_judgements
from sightline_annotate.journal import ADJUDICATION, FIRST, SECOND
from sightline_annotate.server import LONGEST_BODY, annotation_app
from tests.unit.annotate.sample_campaign import EVIDENCE, said, sample_task, served, turned_task

ORIGIN = "http://127.0.0.1:8000"
TOKEN = "the-token"


@pytest.fixture
def task(tmp_path: Path) -> Campaign:
    return sample_task(tmp_path / "task")


def client(task: Campaign, who: str = "ann", pass_: str = FIRST, **headers: str) -> TestClient:
    """A browser that has come in by the printed address."""
    door = Address(8000, token=TOKEN)
    usual = {"origin": ORIGIN, "cookie": f"{door.cookie}={TOKEN}"}
    guarded = Guard(annotation_app(WorkQueue(task, who, pass_)), door)
    return TestClient(guarded, base_url=ORIGIN, headers=usual | headers, follow_redirects=False)


def save(page: TestClient, number: int, fields: Any, supersedes: int | None = None, *, confirmed: bool = True) -> Any:
    return page.post(
        "/save", json={"number": number, "fields": fields, "confirmed": confirmed, "supersedes": supersedes}
    )


def test_an_item_is_shown_saved_confirmed_and_taken_back(task: Campaign) -> None:
    page = client(task)
    assert page.post("/undo").json() == {"number": None}
    assert page.get("/next").json() == {"number": 0}
    shown = page.get("/item/0").json()
    assert (shown["entry"], shown["place"], shown["before"], shown["after"]) == (None, 1, None, 1)
    draft = save(page, 0, {"qc_decision": "unclear"}, confirmed=False).json()["entry"]
    assert page.get("/item/0").json()["entry"] == draft
    refused = save(page, 0, said(source_bbox_matches_source_text="no"), draft["number"])
    assert (refused.status_code, refused.json()["field"]) == (400, "source_bbox_matches_source_text")
    assert "_" not in refused.json()["error"]
    done = save(page, 0, said(), draft["number"])
    assert (done.status_code, done.json()["progress"]) == (200, {"done": 1, "all": 6})
    assert page.get("/next").json() == {"number": 1}
    save(page, 3, said())
    assert page.post("/undo").json() == {"number": 3}
    assert page.get("/campaign").json()["progress"]["done"] == 1


def test_every_role_has_a_letter(tmp_path: Path) -> None:
    roles = client(sample_task(tmp_path / "evidence", kind=EVIDENCE)).get("/campaign").json()["roles"]
    assert [mark["letter"] for mark in roles.values()] == ["V", "L", "R", "C", "A", "X"]


def test_pictures_are_the_tasks_files(task: Campaign) -> None:
    page = client(task)
    assert page.get("/picture/0/0").content == (task.path.parent / "pictures" / "page.png").read_bytes()
    assert page.get("/picture/0/1").status_code == 400
    assert page.get("/picture/99/0").status_code == 404


def test_what_is_endless_is_refused(task: Campaign) -> None:
    assert client(task).post("/save", content=b" " * (LONGEST_BODY + 1)).status_code == 413
    assert client(task).get("/item/" + "9" * 5000).status_code == 404


def test_boxes_that_are_none_are_refused_in_a_draft_too(tmp_path: Path) -> None:
    evidence = client(sample_task(tmp_path / "evidence", 2, EVIDENCE))
    for region in ([0, 0, 1, 1], 7, None):
        boxes = {"boxes": [{"region": region, "role": [], "text": ""}]}
        assert save(evidence, 0, boxes, confirmed=False).status_code == 400


PATHS = (
    "/picture/../../task.json", "/picture/0/..%2f..%2ftask.json", "/annotate/../task.json",
    "/annotate/..%2f..%2fjournal.py", "/annotate/%2e%2e/annotation_app.py", "/journal.sqlite", "/task.json",
    "/annotate//etc/passwd", "/picture/-1/0", "/item/-1", "/look/../report.py",
)  # fmt: skip
STRANGERS = (
    {"host": "evil.example:8000"}, {"host": "127.0.0.1:9999"}, {"origin": "http://evil.example"},
    {"origin": "null"}, {"origin": "https://127.0.0.1:8000"}, {"cookie": ""}, {"cookie": "sightline-8000=guess"},
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out(task: Campaign, path: str) -> None:
    response = client(task).get(path)
    assert response.status_code in (400, 404)
    assert "sightline_task" not in response.text


def test_strangers_are_refused(task: Campaign) -> None:
    body = {"number": 0, "fields": said(), "confirmed": True, "supersedes": None}
    for headers in STRANGERS:
        for method, path in [("GET", "/item/0"), ("POST", "/save"), ("POST", "/undo")]:
            response = client(task, **headers).request(method, path, json=body if method == "POST" else None)
            assert response.status_code == 403, (headers, path)
            assert "Question" not in response.text
    assert task.journal.entries() == []


NO_ANSWERS = (
    b"", b"[]", b"{", b'{"number": 99}', b'{"number": true, "fields": {}}', b'{"number": "0", "fields": {}}',
    b'{"number": 0, "fields": 7}', b'{"number": 0, "fields": {}, "supersedes": "x"}', b"[" * 20_000,
    b'{"number": 0, "fields": {"qc_decision": ["unclear"]}}', b'{"number": 0, "fields": {}, "supersedes": 12345}',
    b'{"number": 0, "fields": {"qc_decision": {}}}', b"\xff\xfe", b'{"number": 1e400, "fields": {}}',
    b'{"number": 0, "fields": {}, "supersedes": 1000000000000000000000000000000}',
    b'{"number": 0, "fields": {"annotator_notes": "\\ud800"}}', b'{"number": 0, "fields": {"qc_decision": [[]]}}',
)  # fmt: skip


def test_what_is_no_answer_is_refused_in_one_line(task: Campaign) -> None:
    for body in NO_ANSWERS:
        response = client(task).post("/save", content=body)
        assert response.status_code == 400, body
        assert response.json()["error"]
        assert "\n" not in response.json()["error"]
    assert task.journal.entries() == []


def test_two_windows_do_not_overwrite_each_other(task: Campaign) -> None:
    one, two = client(task), client(task)
    first = save(one, 0, {"qc_decision": "unclear"}, confirmed=False).json()["entry"]["number"]
    assert save(two, 0, said(), first).status_code == 200
    late = save(one, 0, {"qc_decision": "invalid_bad_box"}, first, confirmed=False)
    assert (late.status_code, "nothing was saved" in late.json()["error"]) == (409, True)
    assert read_judgements(task)[0].fields(FIRST) == said()


def test_nobody_sees_what_another_said_and_the_adjudicator_sees_both_without_names(task: Campaign) -> None:
    number = next(number for number, item in enumerate(task.items) if item.second)
    save(client(task), number, said(annotator_notes="SECRET"))
    bob = client(task, "bob", SECOND)
    seen = "".join(bob.get(path).text for path in ("/campaign", "/next", f"/item/{number}", "/"))
    assert "SECRET" not in seen
    assert "ann" not in bob.get(f"/item/{number}").json().values()
    assert client(task, "eve").get(f"/item/{number}").status_code == 400, "taken by another person in this pass"
    save(bob, number, said(qc_decision="unclear"))
    shown = client(task, "carol", ADJUDICATION).get(f"/item/{number}").json()
    assert shown["disagreement"]["differing"] == ["qc_decision"]
    assert len(shown["disagreement"]["readings"]) == 2
    assert not {"ann", "bob"} & set(str(shown).replace("'", " ").split())


@contextmanager
def coming_in(task: Path, who: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A real server, and a client that has opened its address."""
    with (
        served(task, "--as", who) as server,
        httpx.Client(base_url=server.origin, follow_redirects=True, timeout=60) as browser,
    ):
        assert browser.get(server.address).status_code == 200
        browser.headers["origin"] = server.origin
        yield server.process, browser


def test_nothing_that_was_confirmed_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    """Killed without warning, three times, in the middle of a stream of answers."""
    task = sample_task(tmp_path / "task", 12)
    rng = random.Random(5)
    heads: dict[int, int | None] = dict.fromkeys(range(12))
    promised: dict[int, str] = {}
    for _ in range(3):
        with coming_in(task.path, "ann") as (process, browser):
            for number in heads:
                entry = browser.get(f"/item/{number}").json()["entry"]
                heads[number] = None if entry is None else entry["number"]
                if number in promised:
                    assert entry["fields"]["annotator_notes"] == promised[number]
            last = rng.randrange(8, 20)
            for place in range(last + 1):
                number, note = rng.randrange(12), f"note {rng.random()}"
                said_now = said(annotator_notes=note)
                if place == last:
                    process.send_signal(signal.SIGKILL)
                try:
                    answer = save(browser, number, said_now, heads[number])  # type: ignore[arg-type]
                except httpx.HTTPError:
                    promised.pop(number, None)  # it may have arrived or not; nobody was told that it had
                    break
                assert answer.status_code == 200
                heads[number], promised[number] = answer.json()["entry"]["number"], note
    assert len(promised) > 5
    kept = {each.item.id: each.fields(FIRST) for each in read_judgements(open_campaign(task.path))}
    for number, note in promised.items():
        fields = kept[task.items[number].id]
        assert fields is not None
        assert fields["annotator_notes"] == note


def test_two_people_work_at_the_same_time_in_processes_of_their_own(tmp_path: Path) -> None:
    task = sample_task(tmp_path / "task", 8)
    with coming_in(task.path, "ann") as (_, ann), coming_in(task.path, "bob") as (_, bob):
        for browser in (ann, bob) * 4:
            number = browser.get("/next").json()["number"]
            assert browser.get(f"/item/{number}").status_code == 200
            assert save(browser, number, said()).status_code == 200  # type: ignore[arg-type]
        assert ann.get("/next").json() == bob.get("/next").json() == {"number": None}
    people = [each.given[FIRST].who for each in read_judgements(task)]
    assert people == ["ann", "bob"] * 4


def test_a_photograph_that_asks_to_be_turned_is_shown_as_it_is_stored(tmp_path: Path) -> None:
    """Boxes are fractions of the stored pixels, so the page shows those: no browser turns a PNG without a mark."""
    task = turned_task(tmp_path)
    answer = client(task).get("/picture/0/0")
    assert answer.headers["content-type"] == "image/png"
    with Image.open(io.BytesIO(answer.content)) as shown:
        assert shown.size == task.items[0].views[0].size
        assert shown.getexif().get(0x0112, 1) == 1
        gray = np.asarray(shown.convert("L"))
    assert gray[2, 2] < 64
    assert gray[2, -2] > 192, "where it would be if it were turned"
