"""Boxes in a table: CSV, TSV or another delimiter, one text per line, columns named in the first line.

image,text,x1,y1,x2,y2
r1.jpg,Total,10,20,70,34
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from sightline.core.probe import Box
from sightline.errors import SightlineError, located
from sightline.probes.data_rows import DELIMITERS, column_names, decoded, table_rows
from sightline.probes.formats.base import FORMATS, Format, FormatOption
from sightline.probes.formats.pages import extent, number, whole
from sightline.probes.packed_images import PageImages
from sightline.probes.regions import (
    ImageRegions,
    Ingest,
    IngestCounts,
    Order,
    Units,
    box_around,
    corners,
    four_numbers,
    place,
)

IMAGE = ("image", "image_name", "image_path", "image_file", "file_name", "filename", "file", "path", "image_id")
TEXT = ("text", "word", "transcription", "transcript", "utf8_string", "content", "label")
POLYGON = ("polygon", "points", "poly", "quad")
CORNERS = (
    ("x1", "y1", "x2", "y2"),
    ("x_min", "y_min", "x_max", "y_max"),
    ("xmin", "ymin", "xmax", "ymax"),
    ("left", "top", "right", "bottom"),
)
QUADRILATERAL = ("x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4")
SIZED = (("x", "y", "w", "h"), ("x", "y", "width", "height"), ("left", "top", "width", "height"))
IMAGE_SIZE = (("image_width", "image_height"), ("img_width", "img_height"), ("width", "height"))
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class _Columns:
    """Which column holds what."""

    image: str
    text: str
    box: tuple[str, ...]
    order: Order
    size: tuple[str, ...]
    """Width and height of the image; empty where no column says them."""

    @staticmethod
    def of(names: Sequence[str]) -> _Columns | None:
        """The first way to understand a header: polygons before boxes, corners before sizes; None if there is none."""
        image = next((name for name in IMAGE if name in names), None)
        text = next((name for name in TEXT if name in names), None)
        polygons: list[tuple[tuple[str, ...], Order]] = [((name,), "xyxy") for name in POLYGON]
        boxes: list[tuple[tuple[str, ...], Order]] = [(QUADRILATERAL, "xyxy"), *((each, "xyxy") for each in CORNERS)]
        ways = [*polygons, *boxes, *((each, "xywh") for each in SIZED)]
        way = next((way for way in ways if set(way[0]) <= set(names)), None)
        if image is None or text is None or way is None:
            return None
        sizes = (pair for pair in IMAGE_SIZE if set(pair) <= set(names) and not set(pair) & set(way[0]))
        return _Columns(image, text, *way, next(sizes, ()))


@FORMATS.register("csv")
@dataclass(frozen=True)
class BoxTable(Format):
    """Lines of one image need not stand together. Column names are read without case, blanks as underscores."""

    name: ClassVar[str] = "csv"
    description: ClassVar[str] = "a table with columns image, text and a box (x1,y1,x2,y2 or x,y,w,h or points)"
    yields: ClassVar[bool] = True

    units: Annotated[Units, FormatOption("Unit of boxes.", "--units")] = "pixels"
    delimiter: Annotated[str | None, FormatOption("What stands between two columns; seen from the first line.")] = None
    encoding: Annotated[str | None, FormatOption("Seen from a byte-order mark, else utf-8; cp1252, ...")] = None

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _delimiter(start) is not None

    def read(self, path: Path, images: Path | None) -> Ingest:
        beside = PageImages(path, images)
        counts = IngestCounts()
        texts: dict[str, list[tuple[str, Box]]] = {}
        sizes: dict[str, tuple[float, float]] = {}
        found_as: dict[str, str] = {}
        largest = 0.0
        for where, row, columns in self._rows(path):
            with located(where):
                box = _box(row, columns)
                stated = row[columns.image].strip()
                image = found_as.get(stated) or found_as.setdefault(stated, beside.find(stated))
                if image not in sizes:
                    sizes[image] = self._size(row, columns, image, beside)
            largest = max(largest, *(abs(value) for value in box))
            texts.setdefault(image, []).append((row[columns.text], box))
        if texts and self.units == "pixels" and largest <= 1.0:
            raise SightlineError(f"{path}: boxes are read as pixels, but no coordinate exceeds 1 (--units normalised)")
        records = []
        for image, found in texts.items():
            try:
                words = place(found, *sizes[image], counts)
            except SightlineError as problem:
                raise SightlineError(f"{path}: image {image!r}: {problem} (--units)") from None
            width, height = (whole(side) if self.units == "pixels" else None for side in sizes[image])
            if words:
                records.append(ImageRegions(image, image, words, width, height, box_source="annotation"))
        counts.images, counts.images_without_boxes = len(records), len(texts) - len(records)
        return Ingest(tuple(records), counts, images=beside.root)

    def _rows(self, path: Path) -> Iterator[tuple[str, Mapping[str, str], _Columns]]:
        """Place, cells by column name, and what the columns are, for every line that is not empty."""
        text = decoded(path, encoding=self.encoding, hint="; say what it is with --format-option encoding=cp1252")
        delimiter = self.delimiter or _delimiter(text) or ","
        names = column_names(text, delimiter)
        columns = _Columns.of(names)
        if columns is None:
            raise SightlineError(
                f"{path} line 1: needs columns for the image ({', '.join(IMAGE[:3])}, ...), "
                f"the text ({', '.join(TEXT[:3])}, ...) and the box (x1,y1,x2,y2 or x,y,w,h or points); "
                f"found {', '.join(names) or 'none'}"
            )
        for where, row in table_rows(path, text, delimiter):
            yield f"{path} {where}", row, columns

    def _size(self, row: Mapping[str, str], columns: _Columns, image: str, beside: PageImages) -> tuple[float, float]:
        """Width and height of the image in the unit of the boxes."""
        if self.units == "normalised":
            return (1.0, 1.0)
        if columns.size:
            width, height = (extent(row[name]) for name in columns.size)
            if width is None or height is None:
                raise SightlineError(f"{' and '.join(columns.size)} are not the size of an image")
            return (width, height)
        size = beside.size(image)
        if size is None:
            raise SightlineError(
                f"boxes in pixels need the size of {image!r}: give its folder with --images, "
                "or columns image_width and image_height"
            )
        return size


def _delimiter(text: str) -> str | None:
    """The one under which the first line names an image, a text and a box."""
    return next((each for each in DELIMITERS if _Columns.of(column_names(text, each)) is not None), None)


def _box(row: Mapping[str, str], columns: _Columns) -> Box:
    cells = [row[name].strip() for name in columns.box]
    if len(cells) == 1:
        box = box_around([float(found) for found in _NUMBER.findall(cells[0])])
        if box is None:
            raise SightlineError(f"{columns.box[0]} {cells[0]!r} is not a list of points x,y")
        return box
    values = [number(cell) for cell in cells]
    four = four_numbers(values)
    box = box_around(values) if len(values) > 4 else None if four is None else corners(four, columns.order)
    if box is None:
        raise SightlineError(f"{','.join(columns.box)} is {','.join(cells)!r}, which is not all numbers")
    return box
