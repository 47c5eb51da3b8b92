"""COCO ``instances_*.json``: where the objects of an image are, looked up by what somebody calls them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes.box_format import clip_to_image, corners, four_numbers, to_fractions
from sightline.probes.json_lines import open_text

ALIASES = {
    "aeroplane": "airplane", "automobile": "car", "bike": "bicycle", "boy": "person", "cellphone": "cell phone",
    "child": "person", "doughnut": "donut", "fridge": "refrigerator", "girl": "person", "hair dryer": "hair drier",
    "hydrant": "fire hydrant", "kid": "person", "lady": "person", "luggage": "suitcase", "man": "person",
    "men": "person", "monitor": "tv", "motorbike": "motorcycle", "people": "person", "phone": "cell phone",
    "plane": "airplane", "plant": "potted plant", "purse": "handbag", "racket": "tennis racket", "sofa": "couch",
    "stoplight": "traffic light", "table": "dining table", "telephone": "cell phone", "television": "tv",
    "woman": "person", "women": "person",
}  # fmt: skip
"""What captions say -> the name of COCO's category."""


@dataclass(frozen=True)
class CocoObject:
    """One object: its category, its box in fractions, the area of its outline in square pixels."""

    category: str
    box: Box
    area: float


@dataclass(frozen=True)
class CocoImage:
    name: str
    width: int
    height: int
    objects: tuple[CocoObject, ...]
    """In file order, without crowds."""

    def largest(self, category: str) -> CocoObject | None:
        """The object of this category with the largest area; the first of equals."""
        found = [each for each in self.objects if each.category == category]
        return max(found, key=lambda each: each.area, default=None)


def read_instances(path: Path, wanted: Iterable[str]) -> tuple[dict[str, CocoImage], tuple[str, ...]]:
    """The images with these ids, by id, and the names of all categories; an id that the file lacks is left out."""
    with open_text(path) as stream:
        try:
            document = json.load(stream)
        except (ValueError, RecursionError) as problem:
            raise SightlineError(f"{path}: not a JSON document: {problem}") from None
    try:
        categories = {entry["id"]: str(entry["name"]) for entry in document["categories"]}
        ids = frozenset(wanted)
        images = {str(entry["id"]): entry for entry in document["images"] if str(entry["id"]) in ids}
        annotations: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for entry in document["annotations"]:
            if str(entry["image_id"]) in images and not entry.get("iscrowd"):
                annotations[str(entry["image_id"])].append(entry)
        found = {key: _image(entry, annotations[key], categories) for key, entry in images.items()}
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        raise SightlineError(f"{path}: not a COCO instances file: missing or odd {problem}") from None
    return found, tuple(categories.values())


def _image(
    entry: Mapping[str, Any], annotations: Iterable[Mapping[str, Any]], categories: Mapping[Any, str]
) -> CocoImage:
    width, height = int(entry["width"]), int(entry["height"])
    objects = []
    for annotation in annotations:
        values = four_numbers(annotation["bbox"])
        box = None if values is None else clip_to_image(to_fractions(corners(values, "xywh"), width, height))
        if values is not None and box is not None:
            area = float(annotation.get("area") or values[2] * values[3])
            objects.append(CocoObject(categories[annotation["category_id"]], box, area))
    return CocoImage(str(entry["file_name"]), width, height, tuple(objects))


def category_of(thing: str, categories: Iterable[str]) -> str | None:
    """The category that a phrase speaks of: its name, an alias, or the longest name that is part of the phrase.

    "potted plant" is that category, "sofa" the couch, "a large teddy bear" the teddy bear and not the bear.
    """
    spoken = " ".join(thing.lower().split())
    known = dict.fromkeys(categories)
    if spoken in known:
        return spoken
    if ALIASES.get(spoken) in known:
        return ALIASES[spoken]
    names = {name: name for name in known} | {alias: name for alias, name in ALIASES.items() if name in known}
    words = f" {spoken} "
    inside = [name for name in names if f" {name} " in words or f" {name}s " in words]
    return names[max(inside, key=len)] if inside else None
