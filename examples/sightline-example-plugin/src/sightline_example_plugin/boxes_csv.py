"""A table of boxes, one word per line: what a spreadsheet exports."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes.data_rows import open_text
from sightline.probes.fetched_images import check_image_name
from sightline.probes.formats import Format, FormatOption
from sightline.probes.regions import (
    BoxFormat,
    ImageRegions,
    Ingest,
    IngestCounts,
    Word,
    clip_to_image,
    contradiction,
    four_numbers,
    leaves_image,
    to_fractions,
)

COLUMNS = ("image", "width", "height", "text", "x1", "y1", "x2", "y2")


@dataclass(frozen=True)
class BoxesCsv(Format):
    """Lines of one image need not stand together; its size is what its first line says."""

    name: ClassVar[str] = "boxes_csv"
    description: ClassVar[str] = f"a table with the columns {','.join(COLUMNS)}; one word per line"

    units: Annotated[Literal["pixels", "normalised"], FormatOption("What x1 to y2 are in.", "--units")] = "pixels"

    @classmethod
    def recognises(cls, start: str) -> bool:
        return start.partition("\n")[0].strip() == ",".join(COLUMNS)

    def read(self, path: Path, images: Path | None) -> Ingest:
        counts = IngestCounts()
        sizes: dict[str, tuple[int, int]] = {}
        words: dict[str, list[Word]] = {}
        with open_text(path) as stream:
            table = csv.DictReader(stream)
            if tuple(table.fieldnames or ()) != COLUMNS:
                raise SightlineError(f"{path}: the first line must be {','.join(COLUMNS)}")
            for line in table:
                try:
                    image, size, word = self._word(line, counts)
                except (SightlineError, TypeError, ValueError) as problem:
                    raise SightlineError(f"{path} line {table.line_num}: {problem}") from None
                sizes.setdefault(image, size)
                words.setdefault(image, []).extend(word)
        records = [
            ImageRegions(image, image, tuple(words[image]), *size, dataset=path.stem, box_source="annotation")
            for image, size in sizes.items()
            if words[image]
        ]
        counts.images, counts.images_without_boxes = len(records), len(sizes) - len(records)
        return Ingest(tuple(records), counts)

    def _word(self, line: Mapping[str, str], counts: IngestCounts) -> tuple[str, tuple[int, int], list[Word]]:
        """Image, its size in pixels, and the line's word; none where no part of its box is in the image."""
        image, (width, height) = check_image_name(line["image"]), (int(line["width"]), int(line["height"]))
        box = self._fractions(line, width, height)
        clipped = clip_to_image(box)
        if clipped is None:
            counts.dropped_no_area += 1
            return image, (width, height), []
        text = line["text"].strip()
        counts.boxes += 1
        counts.clipped_boxes += leaves_image(box)
        counts.boxes_without_text += not text
        return image, (width, height), [Word(text, clipped)]

    def _fractions(self, line: Mapping[str, str], width: int, height: int) -> Box:
        box = four_numbers([float(line[name]) for name in COLUMNS[-4:]])
        if box is None or min(width, height) < 1:
            raise SightlineError(f"{line['x1']},{line['y1']},{line['x2']},{line['y2']} in {width} x {height} is no box")
        fractions = to_fractions(box, width, height) if self.units == "pixels" else box
        reason = contradiction(box, fractions, BoxFormat("xyxy", self.units))
        if reason is not None:
            raise SightlineError(f"box {list(box)} {reason}, so it is not in {self.units} as declared")
        return fractions
