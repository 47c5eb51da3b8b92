"""Boxes that people drew as rows of the paper's artifact, and back: pixels of the shown image, labels ``role:text``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sightline.annotate.task_kinds import BOXES, REGION, ROLE, STATUS, TEXT
from sightline.annotate.work_items import WorkItem
from sightline.probes.roles import check_roles
from sightline.probes.typed_rows import ANNOTATED, TypedBox, TypedRow, shown_size

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


def annotated_rows(answers: Iterable[tuple[WorkItem, Mapping[str, Any]]]) -> list[TypedRow]:
    """Rows of the answers that are evidence."""
    return [typed_answer(item, fields) for item, fields in answers if fields[STATUS] == ANNOTATED]
