"""Rows that two people drew; in a demonstration those of the drawn pages, and a second person who was less careful."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from sightline.errors import SightlineError
from sightline.paper.case_regions import typed_rows
from sightline.paper.open_cases import TASKS
from sightline.paper.open_data import open_folder
from sightline.probes.regions import ANSWER
from sightline.probes.typed_rows import TypedBox, TypedRow, read_typed_rows

if TYPE_CHECKING:
    from sightline.paper.study import Study

MOVED = 0.3
"""How far the demonstration's second person moves a box, in its sides."""
FORGOTTEN = 0.3
"""How often that person leaves out a region that is not the answer."""


def both_annotators(study: Study) -> tuple[list[TypedRow], list[TypedRow]]:
    """The rows of the first and of the second person; refused in words where one is missing."""
    first, second = (typed_rows(study, name) for name in ("annotations", "second_annotations"))
    if study.options.demo:
        first = first or [row for task in TASKS for row in _drawn(study, task)]
        return first, second or careless(first)
    if not first or not second:
        raise SightlineError("agreement needs rows of two people: give --annotations and --second-annotations")
    return first, second


def _drawn(study: Study, task: str) -> list[TypedRow]:
    return read_typed_rows(open_folder(study, task) / "annotations.jsonl")


def careless(rows: list[TypedRow]) -> list[TypedRow]:
    """The rows as somebody in a hurry might have drawn them: boxes moved, some besides the answer forgotten."""
    rng = random.Random(0)
    found = []
    for row in rows:
        kept = [box for box in row.boxes if box.role == ANSWER or rng.random() >= FORGOTTEN]
        found.append(replace(row, boxes=tuple(_moved(box, rng) for box in kept)))
    return found


def _moved(box: TypedBox, rng: random.Random) -> TypedBox:
    along, down = (rng.uniform(-MOVED, MOVED) for _ in range(2))
    return replace(box, x=max(0.0, box.x + along * box.w), y=max(0.0, box.y + down * box.h))
