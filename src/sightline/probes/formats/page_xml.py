"""PAGE XML (``PcGts``): words and lines as polygons in pixels, with one or more readings each.

<Page imageFilename="0001.jpg" imageWidth="2480" imageHeight="3508">
  <TextRegion><TextLine><Word><Coords points="200,300 420,300 420,350 200,350"/>
    <TextEquiv index="0" conf="0.96"><Unicode>Invoice</Unicode></TextEquiv></Word></TextLine></TextRegion>
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from xml.etree.ElementTree import Element

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes.formats.base import FORMATS
from sightline.probes.formats.pages import (
    OcrPages,
    PageText,
    ScannedPage,
    below,
    extent,
    joined,
    number,
    percent,
    read_xml,
)


@FORMATS.register("page_xml")
@dataclass(frozen=True)
class PageXml(OcrPages):
    """The format as it is chosen on the command line. Of several readings the one with the lowest index counts."""

    name: ClassVar[str] = "page_xml"
    description: ClassVar[str] = "PAGE XML (Transkribus, OCR-D, eScriptorium): one file per page, or a folder of them"
    suffixes: ClassVar[tuple[str, ...]] = (".xml",)
    begins: ClassVar[str] = r"<(?:\w+:)?PcGts[\s>]"

    def pages(self, file: Path) -> Iterator[ScannedPage]:
        page = read_xml(file, "PcGts").find("Page")
        if page is None:
            raise SightlineError(f"{file}: has no Page element")
        words: list[PageText] = []
        lines: list[PageText] = []
        for line in below(page, "TextLine"):
            inside = [_placed(file, word) for word in line.findall("Word")]
            words += inside
            own = _placed(file, line)
            lines.append(own if own.text or not inside else joined(inside)._replace(box=own.box))
        yield ScannedPage(
            words=words,
            lines=lines,
            image=(page.get("imageFilename") or "").strip(),
            width=extent(page.get("imageWidth")),
            height=extent(page.get("imageHeight")),
        )


def _placed(file: Path, element: Element) -> PageText:
    """The reading of a word or line, in the box around its polygon."""
    readings = element.findall("TextEquiv")
    best = min(readings, key=lambda reading: number(reading.get("index")) or 0.0, default=None)
    text = "" if best is None else best.findtext("Unicode") or ""
    return PageText(text, _box(file, element), None if best is None else percent(best.get("conf")))


def _box(file: Path, element: Element) -> Box:
    coords = element.find("Coords")
    points: list[tuple[float | None, float | None]] = []
    if coords is not None:
        pairs = (pair.partition(",") for pair in coords.get("points", "").split())
        points = [(number(x), number(y)) for x, _, y in pairs]
        # Before 2013 each corner was an element of its own.
        points += [(number(point.get("x")), number(point.get("y"))) for point in coords.findall("Point")]
    across = [x for x, _ in points if x is not None]
    down = [y for _, y in points if y is not None]
    if not points or len(across) < len(points) or len(down) < len(points):
        name = f"{element.tag} {element.get('id', '')!r}"
        raise SightlineError(f'{file}: {name} has no Coords of the form points="x,y x,y ..."')
    return (min(across), min(down), max(across), max(down))
