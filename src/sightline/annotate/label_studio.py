"""Tasks and answers in Label Studio's JSON: a labelling configuration, tasks with annotations; and back.

Boxes are rectangles in percent of the picture, fields are choices, remarks are text areas. An adjudicated answer is
marked as ground truth, as Label Studio marks what its reviewers settled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from sightline.annotate.artifact_columns import Answer
from sightline.annotate.journal import ADJUDICATION, FIRST, PASSES, SECOND, JournalEntry
from sightline.annotate.readings import ItemReadings
from sightline.annotate.task_folder import TaskFolder
from sightline.annotate.task_kinds import BOXES, REGION, ROLE, TEXT, TaskKind
from sightline.annotate.work_items import WorkItem
from sightline.errors import SightlineError
from sightline.probes.roles import ROLES

ITEM = "sightline_item"
PERCENT = 100.0


def picture_name(number: int) -> str:
    """What a picture of an item is called in the data of a task and in the configuration."""
    return "image" if number == 0 else f"image_{number + 1}"


def label_config(kind: TaskKind, views: int) -> str:
    """The labelling configuration of a project for these tasks."""
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, "Header", value="$question")
    for number in range(views):
        name = picture_name(number)
        ElementTree.SubElement(view, "Image", name=name, value=f"${name}", zoom="true")
    picture = picture_name(0)
    if kind.draws_boxes:
        roles = ElementTree.SubElement(view, "RectangleLabels", name=ROLE, toName=picture)
        for role in ROLES:
            ElementTree.SubElement(roles, "Label", value=role)
        ElementTree.SubElement(view, "TextArea", name=TEXT, toName=picture, perRegion="true")
    for field in kind.fields:
        ElementTree.SubElement(view, "Header", value=field.asks)
        asked = ElementTree.SubElement(
            view, "Choices", name=field.name, toName=picture, choice="single", required="true"
        )
        for answer in field.answers:
            ElementTree.SubElement(asked, "Choice", value=answer)
    for name, says in kind.remarks:
        ElementTree.SubElement(view, "TextArea", name=name, toName=picture, placeholder=says)
    ElementTree.indent(view)
    return ElementTree.tostring(view, encoding="unicode") + "\n"


def label_studio_tasks(kind: TaskKind, readings: Iterable[ItemReadings]) -> list[dict[str, Any]]:
    """Every item as a task, with the confirmed answers of all passes."""
    return [
        {
            "id": number,
            "data": _data(each.item),
            "annotations": [_annotation(kind, each.item, each.given[name]) for name in PASSES if name in each.given],
            "predictions": [],
        }
        for number, each in enumerate(readings, start=1)
    ]


def _data(item: WorkItem) -> dict[str, Any]:
    pictures = {picture_name(number): view.image for number, view in enumerate(item.views)}
    texts = {"question": item.question, "source_text": item.source_text, "target_text": item.target_text}
    return {ITEM: item.id, **pictures, **{name: text for name, text in texts.items() if text}}


def _annotation(kind: TaskKind, item: WorkItem, entry: JournalEntry) -> dict[str, Any]:
    assert entry.fields is not None
    return {
        "id": entry.number,
        "completed_by": {"email": entry.who},
        "created_at": entry.at,
        "was_cancelled": False,
        "ground_truth": entry.pass_ == ADJUDICATION,
        "result": _results(kind, item, entry.fields),
    }


def _results(kind: TaskKind, item: WorkItem, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    width, height = item.views[0].size
    whole = {"original_width": width, "original_height": height, "image_rotation": 0, "to_name": picture_name(0)}
    results: list[dict[str, Any]] = []
    for number, box in enumerate(fields.get(BOXES, ())):
        x1, y1, x2, y2 = (side * PERCENT for side in box[REGION])
        place = {"x": x1, "y": y1, "width": x2 - x1, "height": y2 - y1, "rotation": 0}
        common = {**whole, "id": f"box-{number}"}
        results.append(
            {**common, "from_name": ROLE, "type": "rectanglelabels", "value": {**place, "rectanglelabels": [box[ROLE]]}}
        )
        if box[TEXT]:
            results.append({**common, "from_name": TEXT, "type": "textarea", "value": {**place, "text": [box[TEXT]]}})
    for field in kind.fields:
        chosen = {"choices": [fields[field.name]]}
        results.append(
            {"id": field.name, "from_name": field.name, "to_name": picture_name(0), "type": "choices", "value": chosen}
        )
    for name, _ in kind.remarks:
        if fields.get(name):
            text = {"text": [fields[name]]}
            results.append(
                {"id": name, "from_name": name, "to_name": picture_name(0), "type": "textarea", "value": text}
            )
    return results


def read_label_studio(task: TaskFolder, path: Path) -> dict[str, list[Answer]]:
    """Answers by pass: ground truth is adjudication, of the others the first is the first pass, the next the second."""
    try:
        tasks = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise SightlineError(f"cannot read {path}: {problem}") from None
    found: dict[str, list[Answer]] = {name: [] for name in PASSES}
    if not isinstance(tasks, list):
        raise SightlineError(f"{path} is not a list of tasks as Label Studio exports it (JSON)")
    for number, each in enumerate(tasks, start=1):
        try:
            _read_task(task, each, found)
        except SightlineError as problem:
            raise SightlineError(f"{path} task {number}: {problem}") from None
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as problem:
            raise SightlineError(f"{path} task {number} is not as Label Studio writes it: {problem!r}") from None
    return found


def _read_task(task: TaskFolder, exported: Mapping[str, Any], found: dict[str, list[Answer]]) -> None:
    item = task.item(exported["data"][ITEM])
    plain: list[Answer] = []
    for annotation in exported["annotations"]:
        if annotation.get("was_cancelled"):
            continue
        answer = (item, _fields(task.kind, annotation["result"]), _completed_by(annotation.get("completed_by")))
        if annotation.get("ground_truth"):
            found[ADJUDICATION].append(answer)
        else:
            plain.append(answer)
    if len(plain) > 2:
        raise SightlineError(f"item {item.id!r} has {len(plain)} annotations; a task has one of each of two people")
    for name, answer in zip((FIRST, SECOND), plain, strict=False):
        found[name].append(answer)


def _completed_by(value: Any) -> str:
    """An e-mail address, or the number that Label Studio gives a person."""
    if isinstance(value, dict):
        value = value.get("email") or value.get("id")
    return "" if value is None else str(value)


def _fields(kind: TaskKind, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    boxes: dict[str, dict[str, Any]] = {}
    fields: dict[str, Any] = {}
    for result in results:
        name, value = result["from_name"], result["value"]
        if result["type"] == "rectanglelabels":
            boxes.setdefault(result["id"], {TEXT: ""}).update(
                {REGION: _region(value), ROLE: value["rectanglelabels"][0]}
            )
        elif result["type"] == "textarea" and name == TEXT and kind.draws_boxes:
            boxes.setdefault(result["id"], {})[TEXT] = "\n".join(value["text"])
        elif result["type"] == "textarea":
            fields[name] = "\n".join(value["text"])
        elif result["type"] == "choices":
            fields[name] = value["choices"][0]
    if kind.draws_boxes:
        fields[BOXES] = list(boxes.values())
    return kind.check(fields, confirmed=True)


def _region(value: Mapping[str, Any]) -> list[float]:
    """Percent of the picture -> fractions; what leaves the picture by rounding is brought back."""
    if value.get("rotation"):
        raise SightlineError("has a rotated box; Sightline's boxes are upright")
    x, y, w, h = (float(value[name]) / PERCENT for name in ("x", "y", "width", "height"))
    return [min(max(side, 0.0), 1.0) for side in (x, y, x + w, y + h)]
