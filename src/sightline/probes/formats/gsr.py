"""GSR-Bench: which of two things is left, above, in front? The two-object files of What'sUp, and COCO's boxes.

``coco_qa_two_obj.json`` and ``vg_qa_two_obj.json`` are lists of ``[image id, correct caption, wrong caption, ...]``.
Every caption becomes a yes/no question; the evidence is the box of the subject, then that of the object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError
from sightline.probes.coco_instances import CocoImage, category_of, read_instances
from sightline.probes.formats.base import FORMATS, Format, FormatOption
from sightline.probes.json_lines import open_text
from sightline.probes.page_images import PageImages
from sightline.probes.region_records import ImageRegions, Ingest, IngestCounts, Word
from sightline.probes.relations import Relation, parse_relation

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
    with open_text(path) as stream:
        try:
            rows: Any = json.load(stream)
        except (ValueError, RecursionError) as problem:
            raise SightlineError(f"{path}: not a JSON document: {problem}") from None
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
    boxes: Mapping[str, Box] = {} if scene is None else _boxes(relation, scene, categories)
    right = position == 0
    extra: dict[str, Any] = {
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


def _boxes(relation: Relation, scene: CocoImage, categories: tuple[str, ...]) -> dict[str, Box]:
    """``subject`` and ``object`` -> the largest object of that category; without those that are not found."""
    found: dict[str, Box] = {}
    for role, thing in (("subject", relation.subject), ("object", relation.object)):
        category = category_of(thing, categories)
        largest = None if category is None else scene.largest(category)
        if largest is not None:
            found[role] = largest.box
    return found
