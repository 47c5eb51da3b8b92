"""Boxes that people drew as rows of the paper's artifact, and back: pixels of the shown image, labels ``role:text``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sightline.annotate.items import BOXES, REGION, ROLE, STATUS, TEXT, AnswerError, TaskKind, WorkItem
from sightline.annotate.journal import ADJUDICATION, FIRST, SECOND
from sightline.annotate.tasks import TaskFolder
from sightline.annotate.work import ItemReadings
from sightline.errors import SightlineError
from sightline.places import open_file
from sightline.probes.regions import check_roles
from sightline.probes.typed_rows import TypedBox, TypedRow, read_typed_rows, shown_size

_DECIMALS = 2
"""Of a pixel."""


def typed_answer(item: WorkItem, fields: Mapping[str, Any]) -> TypedRow:
    """One person's answer about an item as a row."""
    width, height = shown_size(*item.views[0].size)
    boxes = []
    for box in fields[BOXES]:
        x1, y1, x2, y2 = box[REGION]
        sides = (x1 * width, y1 * height, (x2 - x1) * width, (y2 - y1) * height)
        x, y, w, h = (round(side, _DECIMALS) for side in sides)
        boxes.append(TypedBox(x, y, w, h, f"{box[ROLE]}:{box[TEXT]}"))
    question_id = item.id.partition(":")[2] or item.id
    units, notes = str(fields.get("evidence_units", "")), str(fields.get("notes", ""))
    return TypedRow(item.id, item.task, question_id, units, tuple(boxes), notes, fields[STATUS])


def fields_of_row(item: WorkItem, row: TypedRow) -> dict[str, Any]:
    """The answer that a row stands for. A box that leaves the image by the pixel that rows allow is clipped."""
    width, height = shown_size(*item.views[0].size)
    evidence = row.evidence(width, height) if row.boxes else None
    regions = () if evidence is None else evidence.regions
    roles = check_roles(() if evidence is None else evidence.roles)
    texts = [box.label.partition(":")[2] for box in row.boxes]
    boxes = [
        {REGION: list(region), ROLE: role, TEXT: text} for region, role, text in zip(regions, roles, texts, strict=True)
    ]
    return {BOXES: boxes, STATUS: row.status, "evidence_units": str(row.evidence_units), "notes": row.notes}


# Answers in the columns of the paper's artifact: CSV for decisions about items, JSON lines for boxes; and back.

FINAL = "final"
WHOSE = (FINAL, FIRST, SECOND, ADJUDICATION)
KEYS = ("sample_id", "image_id")
ANNOTATOR = "annotator_id"
UNFINISHED = ("in_progress", "unannotated")

Answer = tuple[WorkItem, dict[str, Any], str]
"""Item, fields, and who said so: a person, or where a final answer comes from."""


def answers_of(readings: Iterable[ItemReadings], whose: str) -> list[Answer]:
    """Confirmed answers of one pass, or the final ones, in the order of items."""
    found: list[Answer] = []
    for each in readings:
        if whose == FINAL:
            final = each.final
            if final is not None:
                found.append((each.item, *final))
        elif (entry := each.given.get(whose)) is not None and entry.fields is not None:
            found.append((each.item, entry.fields, entry.who))
    return found


def artifact_text(kind: TaskKind, answers: Iterable[Answer]) -> str:
    """A whole file."""
    if kind.draws_boxes:
        rows = (asdict(typed_answer(item, fields)) for item, fields, _ in answers)
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return csv_text([{**manifest_row(item), **_columns(kind, fields, who)} for item, fields, who in answers])


def manifest_row(item: WorkItem) -> dict[str, Any]:
    """What the artifact says of an item before anybody has looked at it."""
    return {
        "sample_id": item.id,
        "image_id": item.image_id,
        "image": item.views[0].image,
        "question": item.question,
        "source_text": item.source_text,
        "target_text": item.target_text,
        "target_answer": "no",
        "evidence_regions_json": json.dumps([list(box) for box in item.views[0].regions]),
        "selection_priority": "suspicious" if item.suspicion else item.stratum,
        "auto_suspicion_reason": ";".join(item.suspicion),
        **{name: "" if value is None else value for name, value in item.facts.items()},
    }


def _columns(kind: TaskKind, fields: Mapping[str, Any], who: str) -> dict[str, Any]:
    """The fields, the annotator before the last one (the notes)."""
    said = {name: fields.get(name, "") for name in kind.names}
    *before, notes = said
    return {**{name: said[name] for name in before}, ANNOTATOR: who, notes: said[notes]}


def csv_text(rows: list[dict[str, Any]]) -> str:
    if not rows:
        raise SightlineError("nobody has confirmed an answer of this kind yet, so there is nothing to write")
    text = io.StringIO()
    # Items may know different facts; a column is there if any has it.
    table = csv.DictWriter(
        text, fieldnames=list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n"
    )
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def read_artifact(task: TaskFolder, path: Path) -> list[Answer]:
    """The answers in a file of the artifact; rows that nobody filled in are left out."""
    return _drawn_rows(task, path) if task.kind.draws_boxes else _decided_rows(task, path)


def _drawn_rows(task: TaskFolder, path: Path) -> list[Answer]:
    found = []
    for row in read_typed_rows(path):
        if row.status not in UNFINISHED:
            item = task.item(row.sample_id)
            found.append((item, task.kind.check(fields_of_row(item, row), confirmed=True), ""))
    return found


def _decided_rows(task: TaskFolder, path: Path) -> list[Answer]:
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise SightlineError(f"cannot read {path}: {problem}") from None
    found: list[Answer] = []
    for number, row in enumerate(rows, start=2):
        try:
            item = next((task.by_id[row[key]] for key in KEYS if row.get(key) in task.by_id), None)
            if item is None:
                raise SightlineError(f"has no {' or '.join(KEYS)} of an item of {task.path}")
            fields = {name: (row.get(name) or "").strip() for name in task.kind.names}
            if fields[task.kind.decision]:
                found.append((item, task.kind.check(fields, confirmed=True), (row.get(ANNOTATOR) or "").strip()))
        except SightlineError as problem:
            column = f"column {problem.field}: " if isinstance(problem, AnswerError) else ""
            raise SightlineError(f"{path} line {number}: {column}{problem}") from None
    return found
