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

from sightline.errors import SightlineError, located
from sightline.places.listing import read_text
from sightline.probes.regions import ROLES
from sightline_annotate.campaign import Campaign, Judgements
from sightline_annotate.items import BOXES, REGION, ROLE, TEXT, Answer, CampaignKind, WorkItem
from sightline_annotate.journal import ADJUDICATION, FIRST, PASSES, SECOND, JournalEntry

ITEM = "sightline_item"
PERCENT = 100.0


def picture_name(number: int) -> str:
    """What a picture of an item is called in the data of a task and in the configuration."""
    return "image" if number == 0 else f"image_{number + 1}"


def label_config(kind: CampaignKind, views: int) -> str:
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
        single = {"name": field.name, "toName": picture, "choice": "single", "required": "true"}
        asked = ElementTree.SubElement(view, "Choices", single)
        for answer in field.answers:
            ElementTree.SubElement(asked, "Choice", value=answer)
    for name, says in kind.remarks:
        ElementTree.SubElement(view, "TextArea", name=name, toName=picture, placeholder=says)
    ElementTree.indent(view)
    return ElementTree.tostring(view, encoding="unicode") + "\n"


def label_studio_tasks(kind: CampaignKind, judgements: Iterable[Judgements]) -> list[dict[str, Any]]:
    """Every item as a task, with the confirmed answers of all passes."""
    return [
        {
            "id": number,
            "data": _data(each.item),
            "annotations": [_annotation(kind, each.item, each.given[name]) for name in PASSES if name in each.given],
            "predictions": [],
        }
        for number, each in enumerate(judgements, start=1)
    ]


def _data(item: WorkItem) -> dict[str, Any]:
    pictures = {picture_name(number): view.image for number, view in enumerate(item.views)}
    texts = {"question": item.question, "source_text": item.source_text, "target_text": item.target_text}
    return {ITEM: item.id, **pictures, **{name: text for name, text in texts.items() if text}}


def _annotation(kind: CampaignKind, item: WorkItem, entry: JournalEntry) -> dict[str, Any]:
    assert entry.fields is not None
    return {
        "id": entry.number,
        "completed_by": {"email": entry.who},
        "created_at": entry.at,
        "was_cancelled": False,
        "ground_truth": entry.pass_ == ADJUDICATION,
        "result": _results(kind, item, entry.fields),
    }


def _results(kind: CampaignKind, item: WorkItem, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    width, height = item.views[0].size
    whole = {"original_width": width, "original_height": height, "image_rotation": 0, "to_name": picture_name(0)}
    results: list[dict[str, Any]] = []
    for number, box in enumerate(fields.get(BOXES, ())):
        x1, y1, x2, y2 = (side * PERCENT for side in box[REGION])
        place = {"x": x1, "y": y1, "width": x2 - x1, "height": y2 - y1, "rotation": 0}
        common = {**whole, "id": f"box-{number}"}
        labelled = {**place, "rectanglelabels": [box[ROLE]]}
        results.append({**common, "from_name": ROLE, "type": "rectanglelabels", "value": labelled})
        if box[TEXT]:
            results.append({**common, "from_name": TEXT, "type": "textarea", "value": {**place, "text": [box[TEXT]]}})
    said = [(field.name, "choices", "choices") for field in kind.fields]
    said += [(name, "textarea", "text") for name, _ in kind.remarks if fields.get(name)]
    for name, type_, key in said:
        value = {key: [fields[name]]}
        results.append({"id": name, "from_name": name, "to_name": picture_name(0), "type": type_, "value": value})
    return results


def read_label_studio(campaign: Campaign, path: Path) -> dict[str, list[Answer]]:
    """Answers by pass: ground truth is adjudication, of the others the first is the first pass, the next the second.

    All that an annotation says is carried, or it is refused by task, item and region: nothing is left out or bent.
    """
    try:
        tasks = json.loads(read_text(path))
    except RecursionError:
        raise SightlineError(f"cannot read {path}: it is nested too deeply to be a list of tasks") from None
    except (OSError, ValueError) as problem:
        raise SightlineError(f"cannot read {path}: {problem}") from None
    found: dict[str, list[Answer]] = {name: [] for name in PASSES}
    if not isinstance(tasks, list):
        raise SightlineError(f"{path} is not a list of tasks as Label Studio exports it (JSON)")
    places: dict[str, int] = {}
    for number, each in enumerate(tasks, start=1):
        other = f"{path} task {number} is not as Label Studio writes it"
        try:
            item = campaign.item(str(each["data"][ITEM]))
            if item.id in places:
                raise SightlineError(f"item {item.id!r} is that of task {places[item.id]} already")
            places[item.id] = number
            _read_task(campaign.kind, item, each["annotations"], found)
        except SightlineError as problem:
            raise SightlineError(f"{path} task {number}: {problem}") from None
        except KeyError as problem:
            raise SightlineError(f"{other}: {problem} is missing; export it anew, as JSON") from None
        except (TypeError, IndexError, AttributeError, ValueError, OverflowError):
            raise SightlineError(f"{other}: a value is of another kind; export it anew, as JSON") from None
    return found


def _read_task(
    kind: CampaignKind, item: WorkItem, annotations: Sequence[Mapping[str, Any]], found: dict[str, list[Answer]]
) -> None:
    plain: list[Answer] = []
    for annotation in annotations:
        if annotation.get("was_cancelled"):
            continue
        with located(f"item {item.id!r}"):
            fields = _fields(kind, item, annotation["result"])
        answer = (item, fields, _completed_by(annotation.get("completed_by")))
        (found[ADJUDICATION] if annotation.get("ground_truth") else plain).append(answer)
    if len(plain) > 2:
        raise SightlineError(f"item {item.id!r} has {len(plain)} annotations; a campaign has one of each of two people")
    for name, answer in zip((FIRST, SECOND), plain, strict=False):
        found[name].append(answer)


def _completed_by(value: Any) -> str:
    """An e-mail address, or the number that Label Studio gives a person."""
    if isinstance(value, dict):
        value = value.get("email") or value.get("id")
    return "" if value is None else str(value)


def _fields(kind: CampaignKind, item: WorkItem, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    boxes: dict[str, dict[str, Any]] = {}
    texts: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for result in results:
        name, type_, region = result.get("from_name"), result["type"], str(result.get("id"))
        if result.get("to_name", picture_name(0)) != picture_name(0):
            raise SightlineError(f"region {region!r} is on {result['to_name']}; answers are about {picture_name(0)}")
        if type_ == "rectanglelabels" and kind.draws_boxes:
            _once(boxes, region, f"region {region!r} is there", _box(result, item, region))
        elif type_ == "textarea" and name == TEXT and kind.draws_boxes:
            _once(texts, region, f"the text of region {region!r} is there", _text(result["value"]["text"]))
        elif type_ == "textarea":
            _once(fields, str(name), f"{name!r} is answered", _text(result["value"]["text"]))
        elif type_ == "choices":
            chosen = _one(result["value"]["choices"], f"{name!r} has", "answers")
            _once(fields, str(name), f"{name!r} is answered", chosen)
        else:
            does = "boxes are upright rectangles" if kind.draws_boxes else "these tasks have no boxes"
            which = f"region {region!r}" if "id" in result else "a result"
            raise SightlineError(f"{which} is of the type {type_!r}, which is not carried over; {does}")
    for region, text in texts.items():
        if region not in boxes:
            raise SightlineError(f"region {region!r} has a text and no box")
        boxes[region][TEXT] = text
    if kind.draws_boxes:
        fields[BOXES] = list(boxes.values())
    return kind.check(fields, confirmed=True)


def _once(among: dict[str, Any], name: str, words: str, value: Any) -> None:
    if name in among:
        raise SightlineError(f"{words} twice; keep one")
    among[name] = value


def _one(values: Any, words: str, what: str) -> str:
    """The only element of a list."""
    if not isinstance(values, list) or len(values) != 1:
        raise SightlineError(f"{words} {len(values) if isinstance(values, list) else 'no'} {what}; keep one")
    return str(values[0])


def _text(value: Any) -> str:
    """Label Studio writes what was typed as a list of lines."""
    return value if isinstance(value, str) else "\n".join(value)


def _box(result: Mapping[str, Any], item: WorkItem, region: str) -> dict[str, Any]:
    """Percent of the picture -> fractions. What leaves it by less than half a pixel, which is rounding, is brought
    back."""
    value, size = result["value"], item.views[0].size
    if value.get("rotation"):
        raise SightlineError(f"region {region!r} is a rotated box; boxes are upright")
    if result.get("image_rotation"):
        raise SightlineError(f"region {region!r} is on the page turned by {result['image_rotation']}; turn it back")
    drawn = tuple(result.get(f"original_{side}", own) for side, own in zip(("width", "height"), size, strict=True))
    if drawn != size:
        raise SightlineError(
            f"region {region!r} is on a picture of {drawn[0]} x {drawn[1]} pixels, the item's has {size[0]} x {size[1]}"
        )
    x, y, w, h = (float(value[name]) / PERCENT for name in ("x", "y", "width", "height"))
    sides = (x, y, x + w, y + h)
    for side, pixels in zip(sides, size * 2, strict=True):
        if not -0.5 <= side * pixels <= pixels + 0.5:
            raise SightlineError(f"region {region!r} lies outside the page: {[round(each, 4) for each in sides]}")
    role = _one(value["rectanglelabels"], f"region {region!r} has", "labels")
    return {REGION: [min(max(side, 0.0), 1.0) for side in sides], ROLE: role, TEXT: ""}
