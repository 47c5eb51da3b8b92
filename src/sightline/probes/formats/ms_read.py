"""Text that Microsoft's Read service found, one JSON file per page: the OCR that comes with DocVQA.

{"status": "Succeeded", "recognitionResults": [{"page": 1, "width": 1700, "height": 2200, "unit": "pixel", "lines": [
  {"boundingBox": [x1, y1, ..., x4, y4], "text": "Invoice date:", "words": [
    {"boundingBox": [...], "text": "Invoice"}, {"boundingBox": [...], "text": "date:", "confidence": "Low"}]}]}]}

Later versions of the service call the pages ``analyzeResult.readResults`` and give confidences from 0 to 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes.data_rows import open_text
from sightline.probes.formats.base import FORMATS
from sightline.probes.formats.pages import OcrPages, PageText, ScannedPage, extent, percent
from sightline.probes.regions import hull

_START = re.compile(r'"(?:recognitionResults|readResults)"\s*:')
_LOW = 50.0
"""What a word of confidence "Low" counts as, from 0 to 100."""


@FORMATS.register("ms_read")
@dataclass(frozen=True)
class MicrosoftRead(OcrPages):
    """The image is the one called like the file; DocVQA's, where none is found, is a PNG in ``documents``."""

    name: ClassVar[str] = "ms_read"
    description: ClassVar[str] = "Microsoft Read (the OCR of DocVQA): one JSON file per page, or a folder of them"
    suffixes: ClassVar[tuple[str, ...]] = (".json",)
    box_source: ClassVar[str] = "ocr"

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _START.search(start) is not None

    def pages(self, file: Path) -> Iterator[ScannedPage]:
        with open_text(file) as stream:
            try:
                document: Any = json.load(stream)
            except (ValueError, RecursionError) as problem:
                raise SightlineError(f"{file}: not a JSON document: {problem}") from None
        try:
            for page in _pages(document):
                yield _page(page, f"documents/{file.name.removesuffix('.gz').removesuffix('.json')}.png")
        except SightlineError as problem:
            raise SightlineError(f"{file}: {problem}") from None


def _pages(document: Any) -> list[Any]:
    inner = document.get("analyzeResult", document) if isinstance(document, dict) else None
    found = None
    if isinstance(inner, dict):
        found = inner.get("recognitionResults", inner.get("readResults"))
    if not isinstance(found, list) or not found:
        raise SightlineError("needs a list of pages under 'recognitionResults' or 'analyzeResult.readResults'")
    return found


def _page(page: Any, image: str) -> ScannedPage:
    lines = page.get("lines") if isinstance(page, dict) else None
    if not isinstance(lines, list):
        raise SightlineError("a page has no list of 'lines'")
    texts = [_text(line) for line in lines]
    words = [_text(word) for line in lines for word in _words(line)]
    width, height = (extent(str(page.get(side))) for side in ("width", "height"))
    return ScannedPage(words, texts, image, width, height, pixels=page.get("unit", "pixel") == "pixel")


def _words(line: Mapping[str, Any]) -> list[Any]:
    words = line.get("words")
    return words if isinstance(words, list) else []


def _text(element: Any) -> PageText:
    """A line or a word; its corners are the box around its outline."""
    if not isinstance(element, dict) or not isinstance(element.get("text"), str):
        raise SightlineError("a line or word has no 'text'")
    sure = element.get("confidence")
    confidence = _LOW if sure == "Low" else percent(str(sure)) if isinstance(sure, int | float) else None
    return PageText(element["text"], _box(element.get("boundingBox")), confidence)


def _box(outline: Any) -> Box:
    numbers = isinstance(outline, list) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in outline
    )
    if not numbers or len(outline) < 4 or len(outline) % 2:
        raise SightlineError(f"boundingBox {outline!r} is not a list of points x, y")
    try:
        points = [float(value) for value in outline]
    except OverflowError:
        raise SightlineError("a boundingBox has a coordinate beyond every image") from None
    return hull((x, y, x, y) for x, y in zip(points[::2], points[1::2], strict=True))
