"""What reaches the pages of people: files from Label Studio, addresses of the viewer, answers of annotators."""

import json
import shutil
import warnings
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from sightline import SightlineError
from sightline.view.runs import viewed_runs
from sightline.view.server import PageData, viewer
from sightline_annotate.campaign import JOURNAL, Campaign, WorkQueue, read_judgements
from sightline_annotate.files import import_answers
from sightline_annotate.journal import FIRST
from sightline_annotate.label_studio import label_studio_tasks, read_label_studio
from sightline_annotate.server import annotation_app
from tests.fuzz import mutations
from tests.fuzz.subjects.base import FileSubject, Subject
from tests.runs.yes_no import make_run
from tests.unit.annotate.sample_campaign import EVIDENCE, HARD_NEGATIVES, said, sample_task

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient


class LabelStudio(FileSubject, name="label studio", share=8, file_name="export.json"):
    """Exports with regions, choices and texts, imported into a task that nobody has worked on."""

    def prepare(self) -> None:
        self.tasks: list[tuple[Campaign, list[dict[str, Any]]]] = []
        for kind in (EVIDENCE, HARD_NEGATIVES):
            (self.folder / kind.name / "done").mkdir(parents=True)
            done = sample_task(self.folder / kind.name / "done" / "task", 3, kind)
            done.journal.append_all([(FIRST, "ann", item.id, said(kind)) for item in done.items])
            task = sample_task(self.folder / kind.name / "task", 3, kind)
            shutil.copy(task.path / JOURNAL, task.path / "unused")
            self.tasks.append((task, label_studio_tasks(kind, read_judgements(done))))

    def content(self, random: Random) -> bytes:
        self.task, tasks = random.choice(self.tasks)
        return mutations.json_bytes(tasks, random)

    def read(self, given: bytes) -> None:
        for file in self.task.path.glob(f"{JOURNAL}*"):
            file.unlink()
        shutil.copy(self.task.path / "unused", self.task.path / JOURNAL)
        import_answers(self.task, read_label_studio(self.task, self.file), None)


class _Asked(Subject):
    """A server that answers a request, and never with a failure of its own."""

    client: TestClient

    def read(self, given: tuple[str, str, bytes | None]) -> None:
        method, address, body = given
        answer = self.client.request(method, address, content=body)
        if answer.status_code >= 500:
            raise AssertionError(f"status {answer.status_code}")
        if answer.status_code >= 400:
            raise SightlineError(answer.json()["error"])


class Viewed(_Asked, name="viewer", share=6):
    """Addresses of the viewer: every name with parameters that are right, odd or missing."""

    def prepare(self) -> None:
        make_run(self.folder / "run", images=4)
        answers = PageData(viewed_runs([self.folder / "run"], None))
        self.names = [*(name for name in answers.names if name != "overview"), "take", "image"]
        self.client = TestClient(viewer(answers))
        rows = answers.rows({"limit": "1", "columns": "probe_id,image_key,arm"})["rows"][0]
        self.good = {
            "run": "0", "query": "correct == False and margin > 0.5", "sort": "margin", "down": "1", "cases": "1",
            "offset": "0", "limit": "5", "near": rows["probe_id"], "columns": "question,margin_full,arm",
            "probe": rows["probe_id"], "view": "orig", "arms": "full|target:0.3", "key": rows["image_key"],
            "first": "0", "second": "0", "arm": "full", "other": "target:0.3", "outcome": "only_first",
            "format": "csv", "detail": "0", "source": "preview",
        }  # fmt: skip

    def make(self, random: Random) -> tuple[str, str, bytes | None]:
        chosen = {name: self.good[name] for name in random.sample(list(self.good), random.randint(1, 8))}
        for name in random.sample(list(chosen), random.randint(0, min(2, len(chosen)))):
            text = mutations.text_like(chosen[name], random)
            chosen[name] = random.choice((text, random.choice(mutations.ODD_TEXTS)))
        words = urlencode({name: text.encode("utf-8", "surrogatepass") for name, text in chosen.items()})
        return "GET", f"/api/{random.choice(self.names)}?{words}", None


class Annotated(_Asked, name="annotators", share=6):
    """What a page sends about an item."""

    def prepare(self) -> None:
        self.kinds = (EVIDENCE, HARD_NEGATIVES)
        self.clients = []
        for kind in self.kinds:
            (self.folder / kind.name).mkdir(parents=True)
            task = sample_task(self.folder / kind.name / "task", 3, kind)
            self.clients.append(TestClient(annotation_app(WorkQueue(task, "ann"))))

    def make(self, random: Random) -> tuple[str, str, bytes | None]:
        place = random.randrange(2)
        self.client = self.clients[place]
        if random.random() < 0.2:
            where = random.choice(("/item/0", "/picture/0/0", "/picture/1/7", "/next", "/campaign", "/undo"))
            return "GET", "/" + quote(mutations.text_like(where, random).lstrip("/"), safe="/", errors="replace"), None
        fields = said(self.kinds[place], **{self.kinds[place].remarks[-1][0]: "a note"})
        answer = {"number": 0, "fields": fields, "confirmed": random.random() < 0.5, "supersedes": None}
        whole = random.random() < 0.1
        return "POST", "/save", json.dumps(answer).encode() if whole else mutations.json_bytes(answer, random)
