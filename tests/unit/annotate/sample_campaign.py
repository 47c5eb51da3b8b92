"""Small tasks for tests: one picture, as many items as wanted, answers in a word."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from sightline.probes.images import image_digest
from sightline.probes.probe_file import canonical
from sightline_annotate.campaign import ITEMS, JOURNAL, RECORD, Campaign, open_campaign
from sightline_annotate.items import (
    EVIDENCE,
    HARD_NEGATIVES,
    TEXT_REPLACEMENT,
    CampaignKind,
    PictureView,
    WorkItem,
    items_digest,
    items_text,
)
from sightline_annotate.journal import Journal
from sightline_annotate.make import SamplingRule, drawn_items
from tests.warm_python import Popen

SIZE = (120, 80)
VIEWS = {TEXT_REPLACEMENT.name: 4}
DIFFICULTIES = ("norm_edit_le_0p10", "norm_edit_gt_0p35", "norm_edit_0p10_to_0p20", "norm_edit_0p20_to_0p35")


def sample_items(folder: Path, count: int, kind: CampaignKind = HARD_NEGATIVES, **changes: Any) -> list[WorkItem]:
    """Items about one picture; ids sort as they come."""
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", SIZE, "white").save(folder / "page.png")
    regions = () if kind.draws_boxes else ((0.25, 0.25, 0.5, 0.5),)
    view = PictureView("The picture", "page.png", SIZE, image_digest(folder / "page.png"), regions)
    return [
        WorkItem(
            id=f"item-{number:03d}",
            image_id=f"image-{number:03d}",
            question=f"Question {number}?",
            views=(view,) * VIEWS.get(kind.name, 1),
            source_text="" if kind.draws_boxes else "word",
            target_text="" if kind.draws_boxes else "ward",
            answers=("42",) if kind.draws_boxes else (),
            task=("docvqa", "textvqa")[number % 2] if kind.draws_boxes else "",
            probes=(f"item-{number:03d}-yes", f"item-{number:03d}"),
            stratum=f"stratum {number % 7}",
            difficulty=DIFFICULTIES[number % 4],
            facts={} if kind.draws_boxes else {"edit_distance": 1, "token_area_rank": number % 9},
            **changes,
        )
        for number in range(count)
    ]


def sample_task(path: Path, count: int = 6, kind: CampaignKind = HARD_NEGATIVES, second: float = 0.5) -> Campaign:
    """A task folder as ``annotate new`` leaves it."""
    items = drawn_items(sample_items(path.parent / "pictures", count, kind), SamplingRule(second=second))
    path.mkdir()
    record = {"sightline_task": 1, "kind": kind.name, "images": "../pictures", "items_digest": items_digest(items)}
    (path / RECORD).write_text(canonical(record), encoding="utf-8")
    (path / ITEMS).write_text(items_text(items), encoding="utf-8")
    Journal.create(path / JOURNAL)
    return open_campaign(path)


def turned_task(folder: Path) -> Campaign:
    """One item about a photograph of which a browser shows the first column on top (EXIF orientation 6)."""
    task = sample_task(folder / "task", 1, EVIDENCE)
    photo = Image.new("RGB", SIZE, "white")
    photo.paste("black", (0, 0, 20, 20))
    mark = Image.Exif()
    mark[0x0112] = 6
    photo.save(folder / "pictures" / "photo.jpg", exif=mark, quality=95)
    view = replace(task.items[0].views[0], image="photo.jpg", digest=image_digest(folder / "pictures" / "photo.jpg"))
    items = [replace(task.items[0], views=(view,))]
    (task.path / ITEMS).write_text(items_text(items), encoding="utf-8")
    (task.path / RECORD).write_text(canonical({**task.record, "items_digest": items_digest(items)}), encoding="utf-8")
    return open_campaign(task.path)


def said(kind: CampaignKind = HARD_NEGATIVES, decision: str = "", **fields: Any) -> dict[str, Any]:
    """A whole answer: what a valid item gets, or another decision with fields that go with it."""
    answer: dict[str, Any] = {field.name: field.valid for field in kind.fields}
    if decision:
        answer |= {field.name: "no" if field.valid == "yes" else "yes" for field in kind.fields}
        answer[kind.decision] = decision
    if kind.draws_boxes:
        answer["boxes"] = [{"region": [0.1, 0.1, 0.5, 0.4], "role": "answer_value", "text": "42"}]
    return answer | fields


def boxed(*boxes: tuple[str, tuple[float, float, float, float]], status: str = "annotated") -> dict[str, Any]:
    """An evidence answer with boxes of these roles."""
    drawn = [{"region": list(region), "role": role, "text": ""} for role, region in boxes]
    return {"boxes": drawn, "status": status}


__all__ = [
    "EVIDENCE", "HARD_NEGATIVES", "TEXT_REPLACEMENT", "boxed", "said", "sample_items", "sample_task", "turned_task",
]  # fmt: skip


class ServedTask(NamedTuple):
    """A server that listens, the address that it printed, and where that is."""

    process: subprocess.Popen[str]
    address: str
    origin: str


@contextmanager
def served(*words: str | Path) -> Iterator[ServedTask]:
    """``sightline annotate WORDS``; killed at the end if it still runs."""
    command = [sys.executable, "-m", "sightline", "annotate", *map(str, words), "--no-open"]
    process = Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    try:
        address = next(line.split()[1] for line in process.stdout if line.startswith("open "))
        yield ServedTask(process, address, address.partition("/?")[0])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
