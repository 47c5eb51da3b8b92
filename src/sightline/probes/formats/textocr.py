"""TextOCR annotation files: one JSON document with ``imgs``, ``anns`` and ``imgToAnns``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes.data_rows import open_text
from sightline.probes.fetched_images import check_image_name
from sightline.probes.formats.base import FORMATS, Format, FormatOption
from sightline.probes.regions import (
    ImageRegions,
    Ingest,
    IngestCounts,
    Word,
    clip_to_image,
    corners,
    four_numbers,
    is_storable,
    leaves_image,
    to_fractions,
)

Pairing = Literal["paired", "shifted"]
SmallBoxes = Literal["pixels", "normalised"]

ARTIFACT_NORMALISED_LIMIT = 1.5
"""Largest pixel coordinate up to which the paper's artifact takes a box for a normalised one."""


_BY_DEFINITION = "TextOCR boxes are xywh in pixels by definition."
COCO_TEXT = re.compile(r'"legibility"\s*:|"COCO_(?:train|val)2014_')
"""COCO-Text has the same three objects; it says how legible each word is, and has COCO's images."""
_START = re.compile(r'\s*\{\s*"(?:imgs|anns|imgToAnns|info"\s*:.*"(?:imgs|anns|imgToAnns))"\s*:', re.DOTALL)


@FORMATS.register("textocr")
@dataclass(frozen=True)
class TextOcr(Format):
    """The format as it is chosen on the command line."""

    name: ClassVar[str] = "textocr"
    description: ClassVar[str] = "one JSON document with imgs, anns and imgToAnns; boxes are xywh in pixels"
    artifact: ClassVar[Mapping[str, Any]] = {"pairing": "shifted", "small_boxes": "normalised"}

    order: Annotated[Literal["xywh"], FormatOption(_BY_DEFINITION, "--boxes")] = "xywh"
    units: Annotated[Literal["pixels"], FormatOption(_BY_DEFINITION, "--units")] = "pixels"
    pairing: Annotated[
        Pairing, FormatOption("Each text with its box, or the artifact's shift after an empty text.", "--pairing")
    ] = "paired"
    small_boxes: Annotated[SmallBoxes, FormatOption("What a box is whose coordinates are all at most 1.5.")] = "pixels"
    min_annotation_area: Annotated[
        float, FormatOption("Drop annotations of fewer square pixels.", "--min-annotation-area")
    ] = 1.0

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _START.match(start) is not None and COCO_TEXT.search(start) is None

    def read(self, path: Path, images: Path | None) -> Ingest:
        return read_textocr(
            path,
            pairing=self.pairing,
            small_boxes=self.small_boxes,
            min_annotation_area=self.min_annotation_area,
        )


def read_textocr(
    path: str | Path,
    *,
    pairing: Pairing = "paired",
    small_boxes: SmallBoxes = "pixels",
    min_annotation_area: float = 1.0,
) -> Ingest:
    """Reads a TextOCR v0.1 file: images in ``imgs`` order, words in ``imgToAnns`` order.

    The axis-aligned ``bbox`` (x, y, width, height in pixels) is used; a box that leaves the image is clipped.

    Parameters
    ----------
    pairing: ``paired`` keeps each text with its own box. ``shifted`` is what the paper's artifact does: empty
        transcriptions are dropped before texts meet boxes, so that every later text of that image moves one box ahead.
    small_boxes: ``normalised`` takes a box whose coordinates are all at most 1.5 for fractions, as the artifact does.
    min_annotation_area: annotations with a smaller ``area`` (square pixels; width x height if absent) are dropped.
    """
    return regions_of(load_document(path), path, pairing, small_boxes, min_annotation_area)


def regions_of(
    document: Mapping[str, Mapping[str, Any]],
    path: str | Path,
    pairing: Pairing = "paired",
    small_boxes: SmallBoxes = "pixels",
    min_annotation_area: float = 1.0,
) -> Ingest:
    """The images of a document with ``imgs``, ``anns`` and ``imgToAnns``; ``path`` names it in what is refused."""
    counts = IngestCounts()
    records = []
    for image_id, info in document["imgs"].items():
        annotations = document["imgToAnns"].get(image_id) or []
        try:
            record = _image_regions(
                str(image_id), info, annotations, document["anns"], counts, pairing, small_boxes, min_annotation_area
            )
        except SightlineError as problem:
            raise SightlineError(f"{path}: image {image_id!r}: {problem}") from None
        if record is None:
            counts.images_without_boxes += 1
        else:
            counts.images += 1
            records.append(record)
    return Ingest(tuple(records), counts)


def is_textocr(document: object) -> bool:
    return isinstance(document, dict) and all(
        isinstance(document.get(key), dict) for key in ("imgs", "anns", "imgToAnns")
    )


def load_document(path: str | Path) -> dict[str, dict[str, Any]]:
    """A JSON document that has the three objects."""
    with open_text(path) as stream:
        try:
            document = json.load(stream)
        except (ValueError, RecursionError) as problem:
            raise SightlineError(f"{path}: not a JSON document: {problem}") from None
    if not is_textocr(document):
        raise SightlineError(f"{path}: not a TextOCR or COCO-Text file: it needs the objects imgs, anns and imgToAnns")
    return document  # type: ignore[no-any-return]


def _image_regions(
    image_id: str,
    info: Any,
    annotation_ids: Any,
    annotations: Mapping[str, Any],
    counts: IngestCounts,
    pairing: Pairing,
    small_boxes: SmallBoxes,
    min_annotation_area: float,
) -> ImageRegions | None:
    if not isinstance(info, dict) or not isinstance(annotation_ids, list):
        raise SightlineError("needs an object in imgs and a list in imgToAnns")
    size = _size(info)
    texts: list[str] = []
    boxes: list[Box] = []
    for annotation_id in annotation_ids:
        annotation = annotations.get(str(annotation_id))
        if not isinstance(annotation, dict):
            counts.dropped_missing += 1
            continue
        values = four_numbers(annotation.get("bbox"))
        if values is None:
            counts.dropped_malformed += 1
            continue
        area = _area(annotation.get("area"), values)
        text = str(annotation.get("utf8_string") or "").strip()
        if area is None or not is_storable(text):
            counts.dropped_malformed += 1
            continue
        if area < min_annotation_area:
            counts.dropped_small += 1
            continue
        box = _fractions(corners(values, "xywh"), size, small_boxes)
        clipped = None if box is None else clip_to_image(box)
        if box is None or clipped is None:
            counts.dropped_no_area += 1
            continue
        counts.boxes += 1
        counts.clipped_boxes += leaves_image(box)
        counts.boxes_without_text += not text
        texts.append(text)
        boxes.append(clipped)
    if not boxes:
        return None
    if pairing == "shifted":
        spoken = [text for text in texts if text]
        texts = spoken + [""] * (len(boxes) - len(spoken))
    return ImageRegions(
        image_id=image_id,
        image=check_image_name(info.get("file_name")),
        words=tuple(Word(text, box) for text, box in zip(texts, boxes, strict=True)),
        width=info.get("width"),
        height=info.get("height"),
        split=str(info.get("set") or ""),
        dataset="TextOCR",
        box_source="textocr_word_annotations",
        id_prefix="textocr-",
    )


def _area(stated: Any, values: tuple[float, float, float, float]) -> float | None:
    try:
        return values[2] * values[3] if stated is None else float(stated)
    except (TypeError, ValueError, OverflowError):
        return None


def _size(info: Mapping[str, Any]) -> tuple[float, float] | None:
    try:
        width, height = float(info["width"]), float(info["height"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise SightlineError("has no numeric width and height") from None
    return (width, height) if width > 0 and height > 0 else None


def _fractions(box: Box, size: tuple[float, float] | None, small_boxes: SmallBoxes) -> Box | None:
    if small_boxes == "normalised" and max(abs(value) for value in box) <= ARTIFACT_NORMALISED_LIMIT:
        return box
    return None if size is None else to_fractions(box, *size)
