"""GSR-Bench: which of two things is left, above, in front? The two-object files of What'sUp, and COCO's boxes.

``coco_qa_two_obj.json`` and ``vg_qa_two_obj.json`` are lists of ``[image id, correct caption, wrong caption, ...]``.
Every caption becomes a yes/no question; the evidence is the box of the subject, then that of the object.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError, located
from sightline.probes.data_rows import read_json
from sightline.probes.formats.base import FORMATS, Format, FormatOption
from sightline.probes.packed_images import PageImages
from sightline.probes.regions import (
    ImageRegions,
    Ingest,
    IngestCounts,
    Word,
    clip_to_image,
    corners,
    four_numbers,
    to_fractions,
)

# COCO ``instances_*.json``: where the objects of an image are, looked up by what somebody calls them.

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ALIASES: dict[str, str] = _WORDS["aliases"]
"""What captions say -> the name of COCO's category."""
NEEDED = (
    "it needs lists of images (id, file_name, width, height), annotations (image_id, category_id, bbox) and "
    "categories (id, name)"
)
"""Of a file of COCO's objects."""


class CocoObject(NamedTuple):
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
    document = read_json(path)
    try:
        categories = {entry["id"]: str(entry["name"]) for entry in document["categories"]}
        ids = frozenset(wanted)
        images = {str(entry["id"]): entry for entry in document["images"] if str(entry["id"]) in ids}
        annotations: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for entry in document["annotations"]:
            if str(entry["image_id"]) in images and not entry.get("iscrowd"):
                annotations[str(entry["image_id"])].append(entry)
        with located(f"{path}: not a COCO instances file"):
            found = {key: _image(entry, annotations[key], categories) for key, entry in images.items()}
    except KeyError as problem:
        raise SightlineError(f"{path}: not a COCO instances file: {problem} is missing; {NEEDED}") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError):
        raise SightlineError(f"{path}: not a COCO instances file: {NEEDED}") from None
    return found, tuple(categories.values())


def _image(
    entry: Mapping[str, Any], annotations: Iterable[Mapping[str, Any]], categories: Mapping[Any, str]
) -> CocoImage:
    width, height = (_pixels(entry, side) for side in ("width", "height"))
    objects = []
    for annotation in annotations:
        values = four_numbers(annotation["bbox"])
        box = None if values is None else clip_to_image(to_fractions(corners(values, "xywh"), width, height))
        if values is not None and box is not None:
            area = float(annotation.get("area") or values[2] * values[3])
            if annotation["category_id"] not in categories:
                raise SightlineError(f"image {entry['id']} has an object of no category that is listed")
            objects.append(CocoObject(categories[annotation["category_id"]], box, area))
    return CocoImage(str(entry["file_name"]), width, height, tuple(objects))


def _pixels(entry: Mapping[str, Any], side: str) -> int:
    """A side of an image."""
    try:
        pixels = int(entry[side])
    except (TypeError, ValueError, OverflowError):
        pixels = 0
    if not 0 < pixels <= sys.maxsize:
        raise SightlineError(f"the {side} of image {entry['id']} is not a positive number of pixels")
    return pixels


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


# How two things in a caption are related: "A photo of a dog above a bench" -> dog, above, bench.

Family = Literal["left_right", "vertical", "topology", "proximity", "depth", "interaction"]

PHRASES: dict[str, tuple[str, Family]] = {
    phrase: (group[0], family) for family, groups in _WORDS["relations"].items() for group in groups for phrase in group
}
"""Phrase in a caption -> phrase in the question, the first of those that mean the same, and its family."""

_SIDES = {"left", "right", "top", "bottom"}
"""A bench "on the left" is a bench and a side, not two things."""
_PREFIX = re.compile(r"^(?:an?|the)\s+(?:photo|picture|image)\s+of\s+", re.IGNORECASE)
_ARTICLE = re.compile(r"^(?:an?|the|some)\s+", re.IGNORECASE)
# Longest first, so that "on top of" is not taken for "on".
_RELATION = re.compile(
    r"\s+(?:(?:is|are)\s+)?(" + "|".join(sorted(PHRASES, key=lambda phrase: (-len(phrase), phrase))) + r")\s+",
    re.IGNORECASE,
)


class Relation(NamedTuple):
    subject: str
    phrase: str
    object: str
    family: Family

    def __str__(self) -> str:
        return f"the {self.subject} {self.phrase} the {self.object}"

    @property
    def question(self) -> str:
        return f"Is {self}?"


def parse_relation(caption: str) -> Relation | None:
    """The relation of a caption, or None where it has none between two things. The first phrase in it counts."""
    text = _PREFIX.sub("", " ".join(caption.split()).rstrip(". "))
    found = _RELATION.search(text)
    if found is None:
        return None
    subject, thing = _thing(text[: found.start()]), _thing(text[found.end() :])
    if not subject or not thing or thing in _SIDES:
        return None
    phrase, family = PHRASES[found[1].lower()]
    return Relation(subject, phrase, thing, family)


def _thing(text: str) -> str:
    return _ARTICLE.sub("", text.strip())


_START = re.compile(r'\s*\[\s*\[\s*"?\d+"?\s*,\s*"(?:[^"\\]|\\.)*"\s*,\s*"')
_COCO_DIGITS = 12
"""COCO pads the id of an image to so many digits to name its file."""


@FORMATS.register("gsr")
@dataclass(frozen=True)
class Gsr(Format):
    """Brings its own questions; ``kind`` of a probe is the family of its relation, for tables per family."""

    name: ClassVar[str] = "gsr"
    description: ClassVar[str] = "GSR-Bench: What'sUp's two-object captions as questions, with COCO's boxes as evidence"

    instances: Annotated[Path | None, FormatOption("COCO instances_*.json; without it probes have no evidence.")] = None
    rows: Annotated[int, FormatOption("Only so many first rows; the paper's 100 probes are 50. 0 for all.")] = 0

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _START.match(start) is not None

    def read(self, path: Path, images: Path | None) -> Ingest:
        rows = _load(path)[: self.rows or None]
        scenes: dict[str, CocoImage] = {}
        categories: tuple[str, ...] = ()
        if self.instances is not None:
            scenes, categories = read_instances(self.instances, (row[0] for row in rows))
        beside = PageImages(path, images)
        counts = IngestCounts()
        records: dict[str, ImageRegions] = {}
        probes: list[Probe] = []
        for number, (image_id, *captions) in enumerate(rows, start=1):
            scene = scenes.get(image_id)
            if self.instances is not None and scene is None:
                raise SightlineError(
                    f"{path} row {number}: {self.instances.name} has no image {image_id}; "
                    "is it the file of the same year and split?"
                )
            if image_id not in records:
                records[image_id] = _record(image_id, scene, path, beside)
            relations = [parse_relation(caption) for caption in captions]
            counts.captions_without_relation += relations.count(None)
            correct = relations[0]
            if correct is None:  # what is wrong about the others is then not known either
                continue
            for position, relation in enumerate(relations):
                if relation is not None:
                    probe = _probe(number, position, relation, correct, records[image_id], scene, categories)
                    counts.questions_without_both_boxes += len(probe.regions) < 2
                    probes.append(probe)
        if not probes:
            raise SightlineError(f"{path}: no caption relates two things, for example {rows[0][1]!r}")
        counts.images = len(records)
        counts.boxes = sum(len(record.words) for record in records.values())
        return Ingest(tuple(records.values()), counts, images=beside.root, probes=tuple(probes))


def _load(path: Path) -> list[list[str]]:
    rows = read_json(path)
    if not isinstance(rows, list) or not rows:
        raise SightlineError(f"{path}: not a What'sUp file: it needs a list of rows")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) < 3 or not all(isinstance(text, str) for text in row[1:]):
            raise SightlineError(f"{path} row {number}: expected [image id, correct caption, wrong caption, ...]")
    return [[str(row[0]), *row[1:]] for row in rows]


def _record(image_id: str, scene: CocoImage | None, path: Path, beside: PageImages) -> ImageRegions:
    """The image and all its objects, each under the name of its category."""
    if scene is None:
        # Visual Genome names a file after its id alone.
        name = image_id if path.name.startswith("vg") else image_id.zfill(_COCO_DIGITS)
        return ImageRegions(image_id, beside.find(f"{name}.jpg"), (), dataset="GSR-Bench")
    objects = tuple(Word(each.category, each.box) for each in scene.objects)
    name = beside.find(scene.name)
    return ImageRegions(image_id, name, objects, scene.width, scene.height, "", "GSR-Bench", "coco_instances")


def _probe(
    number: int,
    position: int,
    relation: Relation,
    correct: Relation,
    record: ImageRegions,
    scene: CocoImage | None,
    categories: tuple[str, ...],
) -> Probe:
    boxes: dict[str, Box] = {}  # of the largest object of each category, where there is one
    for role, thing in (("subject", relation.subject), ("object", relation.object)):
        category = category_of(thing, categories)
        if scene is not None and category is not None and (largest := scene.largest(category)):
            boxes[role] = largest.box
    right = position == 0
    extra = {
        "source_dataset": record.dataset,
        "bbox_source": record.box_source,
        "subject": relation.subject,
        "relation": relation.phrase,
        "object": relation.object,
        "evidence": list(boxes),
    }
    return Probe(
        id=f"gsr-{number:04d}:{'yes' if right else f'no{position}'}",
        image=record.image,
        image_id=record.image_id,
        question=relation.question,
        label="yes" if right else "no",
        target_text=str(relation),
        source_text=str(correct),
        regions=tuple(boxes.values()),
        kind=relation.family,
        extra=extra,
    )
