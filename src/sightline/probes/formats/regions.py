"""Regions as JSON lines, one image per line: our own dialect, and the one of the paper's artifact.

    {"sightline_regions": 1, "boxes": "xywh", "units": "pixels"}
    {"image_id": "r1", "image": "r1.jpg", "width": 900, "height": 1600,
     "words": [{"text": "Total", "box": [10, 20, 60, 14]}]}

The header is optional; a record may repeat ``boxes`` and ``units``. Somewhere they have to be declared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar

from sightline.core.probe import Box
from sightline.errors import SightlineError, located
from sightline.probes.data_rows import read_objects, write_text
from sightline.probes.dialects import Dialect
from sightline.probes.fetched_images import check_image_name, resolve_image, strip_image_prefix
from sightline.probes.formats.base import FORMATS, Format, FormatOption
from sightline.probes.regions import (
    BoxFormat,
    ImageRegions,
    Ingest,
    IngestCounts,
    Order,
    Units,
    Word,
    contradiction,
    corners,
    four_numbers,
    is_storable,
    to_fractions,
)

SizeOf = Callable[[str], tuple[int, int]]

HEADER = "sightline_regions"
_OWN_KEY = re.compile(r'"(sightline_regions|words|ocr_tokens)"\s*:')
_HEADER_KEYS = {HEADER, "boxes", "units", "dataset"}
_RECORD_KEYS = {"image_id", "image", "width", "height", "split", "words", "boxes", "units", "dataset"}
_ARTIFACT_FORMAT = BoxFormat("xyxy", "normalised")


@FORMATS.register("regions")
@dataclass(frozen=True)
class Regions(Format):
    name: ClassVar[str] = "regions"
    description: ClassVar[str] = "JSON lines, one image each, with declared boxes; also the artifact's region files"
    yields: ClassVar[bool] = True

    order: Annotated[
        Order | None, FormatOption("Order of the four numbers, where the file does not say.", "--boxes")
    ] = None
    units: Annotated[Units | None, FormatOption("Unit of boxes, where the file does not say.", "--units")] = None

    @classmethod
    def recognises(cls, start: str) -> bool:
        """The first line holds an object with a header's or a record's own key."""
        first_line = start.lstrip().partition("\n")[0]
        return first_line.startswith("{") and _OWN_KEY.search(first_line) is not None

    def read(self, path: Path, images: Path | None) -> Ingest:
        from sightline.probes.images import image_size

        size_of: SizeOf | None = None if images is None else lambda name: image_size(resolve_image(images, name))
        return read_regions(path, order=self.order, units=self.units, size_of=size_of)


def read_regions(
    path: str | Path,
    *,
    order: str | None = None,
    units: str | None = None,
    image_prefix: str | None = None,
    size_of: SizeOf | None = None,
) -> Ingest:
    """Reads region records; a record whose boxes contradict the declared format is refused, naming line and box.

    Parameters
    ----------
    order, units: the declaration (``xywh`` or ``xyxy``; ``pixels`` or ``normalised``) for records without their own.
    image_prefix: folder to strip from the front of image names.
    size_of: gives (width, height) of an image name, for pixel records that do not say their size.
    """
    counts = IngestCounts()
    records: list[ImageRegions] = []
    line_of: dict[str, int] = {}
    declared: dict[str, Any] = {"boxes": order, "units": units, "dataset": ""}
    largest_pixel: float | None = None
    for number, row in read_objects(path):
        with located(f"{path} line {number}"):
            if HEADER in row:
                _read_header(row, declared, first=not line_of)
                continue
            record, largest = _read_record(row, declared, counts, image_prefix, size_of)
        if record.image_id in line_of:
            raise SightlineError(
                f"{path} line {number}: image id {record.image_id!r} was already on line {line_of[record.image_id]}"
            )
        line_of[record.image_id] = number
        if largest is not None:
            largest_pixel = max(largest, largest_pixel or 0.0)
        if record.words:
            counts.images += 1
            records.append(record)
        else:
            counts.images_without_boxes += 1
    if largest_pixel is not None and largest_pixel <= 1.0:
        raise SightlineError(f"{path}: boxes are declared as pixels, but no coordinate in the file exceeds 1 (--units)")
    return Ingest(tuple(records), counts)


def _read_header(row: dict[str, Any], declared: dict[str, Any], *, first: bool) -> None:
    if row[HEADER] != 1 or not first:
        raise SightlineError("a header must be the first line and say version 1")
    _refuse_unknown(row, _HEADER_KEYS)
    for key in ("boxes", "units"):
        if declared[key] is not None and row.get(key, declared[key]) != declared[key]:
            raise SightlineError(f"the header declares {key} {row[key]!r}, the command line {declared[key]!r}")
    declared.update({key: value for key, value in row.items() if key != HEADER})


def _read_record(
    row: dict[str, Any],
    declared: dict[str, Any],
    counts: IngestCounts,
    image_prefix: str | None,
    size_of: SizeOf | None,
) -> tuple[ImageRegions, float | None]:
    """The record, and the largest pixel coordinate in it (None if it has no pixel boxes)."""
    artifact = "ocr_tokens" in row and "words" not in row
    if artifact:
        # The artifact writes corners in fractions and nothing else, so its dialect is the declaration.
        form = _ARTIFACT_FORMAT
        if declared["boxes"] not in (None, form.order) or declared["units"] not in (None, form.units):
            raise SightlineError("ocr_tokens are xyxy and normalised by definition; leave out --boxes and --units")
        words, box_key = row["ocr_tokens"], "bbox"
    else:
        _refuse_unknown(row, _RECORD_KEYS)
        form = BoxFormat.declared(row.get("boxes", declared["boxes"]), row.get("units", declared["units"]))
        words, box_key = row.get("words"), "box"
    if not isinstance(words, list) or not all(isinstance(word, dict) for word in words):
        raise SightlineError("'words' must be a list of objects with text and box")
    image = row.get("image")
    if image_prefix and isinstance(image, str):
        image = strip_image_prefix(image, image_prefix)
    image = check_image_name(image)
    image_id = row.get("image_id", image)
    if not isinstance(image_id, str | int) or not str(image_id):
        raise SightlineError(f"image_id {image_id!r} is empty or not text")
    width, height = row.get("width"), row.get("height")
    if form.units == "pixels" and (width is None or height is None) and size_of is not None:
        width, height = size_of(image)
    if form.units == "pixels" and not all(isinstance(side, int | float) and side > 0 for side in (width, height)):
        raise SightlineError("boxes in pixels need the image's width and height, both above 0")
    found: list[Word] = []
    largest: float | None = None
    for position, word in enumerate(words):
        values = four_numbers(word.get(box_key))
        if values is None:
            raise SightlineError(f"word {position}: {box_key} {word.get(box_key)!r} is not four finite numbers")
        box = corners(values, form.order)
        if form.units == "pixels" and width is not None and height is not None:
            largest = max(largest or 0.0, *(abs(value) for value in box))
            fractions = to_fractions(box, float(width), float(height))
        else:
            fractions = box
        text = str(word.get("text") or "").strip()
        if not is_storable(text):
            raise SightlineError(f"word {position}: text {text!r} holds half of a surrogate pair")
        if artifact:
            # Its rows hold what its own ingest clipped; anything else is left for the builder to judge, as it does.
            counts.boxes += 1
            found.append(Word(text, box))
            continue
        reason = contradiction(box, fractions, form)
        if reason:
            raise SightlineError(
                f"word {position}: box {list(values)} {reason}, so it is not {form.order} in {form.units} as declared"
            )
        clipped = counts.clipped(fractions, text)
        if clipped is not None:
            found.append(Word(text, clipped))
    record = ImageRegions(
        image_id=str(image_id),
        image=image,
        words=tuple(found),
        width=width,
        height=height,
        split=str(row.get("split") or ""),
        dataset=str(row.get("source_dataset" if artifact else "dataset") or declared["dataset"] or ""),
        box_source=str(row.get("bbox_source") or "") if artifact else "annotation",
        id_prefix="textocr-" if artifact else "",
    )
    return record, largest


def _refuse_unknown(row: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(set(row) - known)
    if unknown:
        raise SightlineError(f"unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}")


def write_regions(
    path: str | Path, records: Sequence[ImageRegions], *, layout: Dialect = "sightline", image_prefix: str = ""
) -> None:
    """Writes records as JSON lines, in our dialect or byte for byte as the artifact writes them."""
    if layout == "artifact":
        rows = [_artifact_row(record, image_prefix) for record in records]
    else:
        rows = [{HEADER: 1, "boxes": "xyxy", "units": "normalised"}]
        rows += [_own_row(record) for record in records]
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _own_row(record: ImageRegions) -> dict[str, Any]:
    row: dict[str, Any] = {"image_id": record.image_id, "image": record.image}
    for key in ("width", "height", "split", "dataset"):
        if getattr(record, key):
            row[key] = getattr(record, key)
    return row | {"words": [{"text": word.text, "box": list(word.box)} for word in record.words]}


def _artifact_row(record: ImageRegions, image_prefix: str) -> dict[str, Any]:
    boxes: list[Box] = [word.box for word in record.words]
    row = {
        "id": record.record_id,
        "dataset": record.dataset,
        "source_dataset": record.dataset,
        "split": record.split,
        "image": str(PurePosixPath(image_prefix, record.image)),
        "image_id": record.image_id,
        "width": record.width,
        "height": record.height,
        "question": "What text is visible in the image?",
        "answer": " ".join(record.texts[:20]),
        "task_family": "ocr_text",
        "bbox_source": record.box_source,
        "ocr_tokens": [{"text": word.text, "bbox": word.box} for word in record.words if word.text],
        "ocr_regions": boxes,
        "evidence_regions": boxes,
        "evidence_region_count": len(boxes),
    }
    # The artifact's writer leaves out entries without a value.
    return {key: value for key, value in row.items() if value is not None}
