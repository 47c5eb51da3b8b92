"""TextOCR and COCO-Text annotation files: one JSON document with ``imgs``, ``anns`` and ``imgToAnns``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from sightline.core.probe import Box
from sightline.errors import SightlineError, located
from sightline.probes.data_rows import read_json
from sightline.probes.fetched_images import check_image_name
from sightline.probes.formats.base import FORMATS, Format, FormatOption
from sightline.probes.regions import (
    ImageRegions,
    Ingest,
    IngestCounts,
    Word,
    corners,
    four_numbers,
    is_storable,
    to_fractions,
)

Pairing = Literal["paired", "shifted"]
SmallBoxes = Literal["pixels", "normalised"]
LeastArea = Annotated[float, FormatOption("Drop annotations of fewer square pixels.", "--min-annotation-area")]
"""Annotations with a smaller ``area`` (square pixels; width x height if absent) are dropped."""

ARTIFACT_NORMALISED_LIMIT = 1.5
"""Largest pixel coordinate up to which the paper's artifact takes a box for a normalised one."""

_OBJECTS = ("imgs", "anns", "imgToAnns")
_BY_DEFINITION = "TextOCR boxes are xywh in pixels by definition."
_COCO_TEXT = re.compile(r'"legibility"\s*:|"COCO_(?:train|val)2014_')
"""COCO-Text has the same three objects; it says how legible each word is, and has COCO's images."""
_TEXTOCR_START = re.compile(r'\s*\{\s*"(?:imgs|anns|imgToAnns|info"\s*:.*"(?:imgs|anns|imgToAnns))"\s*:', re.DOTALL)
_COCO_START = re.compile(r'\s*\{.*?"(?:imgs|anns|imgToAnns)"\s*:', re.DOTALL)


@dataclass(frozen=True)
class ThreeObjects(Format):
    """Images in ``imgs`` order, words in ``imgToAnns`` order, each with its axis-aligned ``bbox`` (xywh in pixels)."""

    dataset: ClassVar[str]
    prefix: ClassVar[str]
    """Of records' ids and, with underscores, of what the boxes' source is called."""

    def text_of(self, annotation: Mapping[str, Any]) -> str:
        return str(annotation.get("utf8_string") or "").strip()

    def fractions(self, box: Box, size: tuple[float, float] | None) -> Box | None:
        """Pixel corners in fractions of an image, where its size is one."""
        return None if size is None else to_fractions(box, *size)

    def paired(self, texts: list[str]) -> list[str]:
        """The texts in the order of the boxes."""
        return texts

    def read(self, path: Path, images: Path | None) -> Ingest:
        document = read_json(path)
        if not isinstance(document, dict) or not all(isinstance(document.get(key), dict) for key in _OBJECTS):
            raise SightlineError(
                f"{path}: not a TextOCR or COCO-Text file: it needs the objects imgs, anns and imgToAnns"
            )
        counts = IngestCounts()
        records = []
        for image_id, info in document["imgs"].items():
            with located(f"{path}: image {image_id!r}"):
                record = self._record(str(image_id), info, document, counts)
            if record is None:
                counts.images_without_boxes += 1
            else:
                counts.images += 1
                records.append(record)
        return Ingest(tuple(records), counts)

    def _record(
        self, image_id: str, info: Any, document: Mapping[str, Any], counts: IngestCounts
    ) -> ImageRegions | None:
        annotation_ids = document["imgToAnns"].get(image_id) or []
        if not isinstance(info, dict) or not isinstance(annotation_ids, list):
            raise SightlineError("needs an object in imgs and a list in imgToAnns")
        size = _size(info)
        texts: list[str] = []
        boxes: list[Box] = []
        for annotation_id in annotation_ids:
            annotation = document["anns"].get(str(annotation_id))
            if not isinstance(annotation, dict):
                counts.dropped_missing += 1
                continue
            values, text = four_numbers(annotation.get("bbox")), self.text_of(annotation)
            area = None if values is None else _area(annotation.get("area"), values)
            if values is None or area is None or not is_storable(text):
                counts.dropped_malformed += 1
                continue
            if area < self.min_annotation_area:  # type: ignore[attr-defined]
                counts.dropped_small += 1
                continue
            box = counts.clipped(self.fractions(corners(values, "xywh"), size), text)
            if box is not None:
                texts.append(text)
                boxes.append(box)
        if not boxes:
            return None
        return ImageRegions(
            image_id=image_id,
            image=check_image_name(info.get("file_name")),
            words=tuple(Word(text, box) for text, box in zip(self.paired(texts), boxes, strict=True)),
            width=info.get("width"),
            height=info.get("height"),
            split=str(info.get("set") or ""),
            dataset=self.dataset,
            box_source=f"{self.prefix.replace('-', '_')}_word_annotations",
            id_prefix=f"{self.prefix}-",
        )


@FORMATS.register("textocr")
@dataclass(frozen=True)
class TextOcr(ThreeObjects):
    """TextOCR v0.1.

    ``pairing``: ``paired`` keeps each text with its own box. ``shifted`` is what the paper's artifact does: empty
    transcriptions are dropped before texts meet boxes, so that every later text of that image moves one box ahead.
    ``small_boxes``: ``normalised`` takes a box whose coordinates are all at most 1.5 for fractions, as the artifact.
    """

    name: ClassVar[str] = "textocr"
    description: ClassVar[str] = "one JSON document with imgs, anns and imgToAnns; boxes are xywh in pixels"
    artifact: ClassVar[Mapping[str, Any]] = {"pairing": "shifted", "small_boxes": "normalised"}
    dataset: ClassVar[str] = "TextOCR"
    prefix: ClassVar[str] = "textocr"

    order: Annotated[Literal["xywh"], FormatOption(_BY_DEFINITION, "--boxes")] = "xywh"
    units: Annotated[Literal["pixels"], FormatOption(_BY_DEFINITION, "--units")] = "pixels"
    pairing: Annotated[
        Pairing, FormatOption("Each text with its box, or the artifact's shift after an empty text.", "--pairing")
    ] = "paired"
    small_boxes: Annotated[SmallBoxes, FormatOption("What a box is whose coordinates are all at most 1.5.")] = "pixels"
    min_annotation_area: LeastArea = 1.0

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _TEXTOCR_START.match(start) is not None and _COCO_TEXT.search(start) is None

    def fractions(self, box: Box, size: tuple[float, float] | None) -> Box | None:
        small = self.small_boxes == "normalised" and max(map(abs, box)) <= ARTIFACT_NORMALISED_LIMIT
        return box if small else super().fractions(box, size)

    def paired(self, texts: list[str]) -> list[str]:
        return texts if self.pairing == "paired" else sorted(texts, key=lambda text: not text)


def read_textocr(
    path: str | Path,
    *,
    pairing: Pairing = "paired",
    small_boxes: SmallBoxes = "pixels",
    min_annotation_area: float = 1.0,
) -> Ingest:
    """Reads a TextOCR v0.1 file; the options are those of the format."""
    reader = TextOcr(pairing=pairing, small_boxes=small_boxes, min_annotation_area=min_annotation_area)
    return reader.read(Path(path), None)


@FORMATS.register("coco_text")
@dataclass(frozen=True)
class CocoText(ThreeObjects):
    """Versions 1 and 2. A word that is not read (illegible, or of another language) stays as a box without text."""

    name: ClassVar[str] = "coco_text"
    description: ClassVar[str] = "COCO-Text: one JSON document with imgs, anns and imgToAnns; boxes are xywh in pixels"
    dataset: ClassVar[str] = "COCO-Text"
    prefix: ClassVar[str] = "coco-text"

    legibility: Annotated[Literal["legible", "any"], FormatOption("Which words count as transcribed.")] = "legible"
    language: Annotated[str, FormatOption("Words of this language only, for example english.")] = ""
    min_annotation_area: LeastArea = 1.0

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _COCO_START.match(start) is not None and _COCO_TEXT.search(start) is not None

    def text_of(self, annotation: Mapping[str, Any]) -> str:
        legible = self.legibility == "any" or annotation.get("legibility", "legible") == "legible"
        wanted = not self.language or annotation.get("language") == self.language
        return super().text_of(annotation) if legible and wanted else ""


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
