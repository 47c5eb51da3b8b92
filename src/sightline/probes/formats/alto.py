"""ALTO XML, versions 2 to 4: ``String`` elements with CONTENT, HPOS, VPOS, WIDTH and HEIGHT, in lines, on a ``Page``.

Positions are pixels, tenths of a millimetre or 1200ths of an inch (``MeasurementUnit``). The page states its own size
in the same unit, so that fractions of the image need no resolution.
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

UNITS = ("pixel", "mm10", "inch1200")
_PLACE = ("HPOS", "VPOS", "WIDTH", "HEIGHT")


@FORMATS.register("alto")
@dataclass(frozen=True)
class Alto(OcrPages):
    name: ClassVar[str] = "alto"
    description: ClassVar[str] = "ALTO XML, versions 2 to 4: one file per page, or a folder of them"
    suffixes: ClassVar[tuple[str, ...]] = (".xml", ".alto")
    begins: ClassVar[str] = r"<(?:\w+:)?alto[\s>]"

    def pages(self, file: Path) -> Iterator[ScannedPage]:
        root = read_xml(file, "alto")
        unit = (root.findtext("Description/MeasurementUnit") or "pixel").strip()
        if unit not in UNITS:
            raise SightlineError(f"{file}: MeasurementUnit {unit!r} is none of {', '.join(UNITS)}; convert to pixels")
        pages = list(below(root, "Page"))
        stated = (root.findtext("Description/sourceImageInformation/fileName") or "").strip()
        for page in pages:
            width, height = extent(page.get("WIDTH")), extent(page.get("HEIGHT"))
            if unit != "pixel" and (width is None or height is None):
                raise SightlineError(
                    f"{file}: positions are in {unit}, but the Page has no WIDTH and HEIGHT in it; "
                    "add them or convert to pixels"
                )
            words: list[PageText] = []
            lines: list[PageText] = []
            for line in below(page, "TextLine"):
                if inside := [_string(file, string) for string in below(line, "String")]:
                    words += inside
                    whole = joined(inside)
                    lines.append(whole._replace(box=_box(line) or whole.box))
            yield ScannedPage(
                words=words,
                lines=lines,
                image=stated if len(pages) == 1 else "",
                width=width,
                height=height,
                pixels=unit == "pixel",
            )


def _string(file: Path, element: Element) -> PageText:
    box = _box(element)
    if box is None:
        content = element.get("CONTENT", "")
        raise SightlineError(f"{file}: String {content!r} has no {', '.join(_PLACE)} in numbers")
    return PageText(element.get("CONTENT", ""), box, percent(element.get("WC")))


def _box(element: Element) -> Box | None:
    left, upper, width, height = (number(element.get(name)) for name in _PLACE)
    if left is None or upper is None or width is None or height is None:
        return None
    return (left, upper, left + width, upper + height)
