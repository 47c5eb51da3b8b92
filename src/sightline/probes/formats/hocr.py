"""hOCR: HTML in which class and title of an element say what part of a page it is and where.

<div class="ocr_page" title='image "scan.png"; bbox 0 0 2480 3508'>
  <span class="ocr_line" title="bbox 200 300 900 350">
    <span class="ocrx_word" title="bbox 200 300 420 350; x_wconf 96">Invoice</span>
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import ClassVar

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes.data_rows import decoded
from sightline.probes.formats.base import FORMATS
from sightline.probes.formats.pages import MAX_XML_BYTES, OcrPages, PageText, ScannedPage, joined, number

_PAGE, _LINE, _WORD = "page", "line", "word"
_PARTS = {
    "ocr_page": _PAGE,
    **dict.fromkeys(("ocr_line", "ocrx_line", "ocr_header", "ocr_footer", "ocr_caption", "ocr_textfloat"), _LINE),
    **dict.fromkeys(("ocrx_word", "ocr_word"), _WORD),
}
"""Class of an element -> the part of a page that it is."""
_EMPTY_TAGS = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
"""Elements that HTML never closes."""
_BOX = re.compile(r"\bbbox\s+(\S+)\s+(\S+)\s+(\S+)\s+([^\s;]+)")
_IMAGE = re.compile(r"""\bimage\s+(?:"([^"]*)"|'([^']*)'|([^;]+))""")
_CONFIDENCE = re.compile(r"\bx_wconf\s+([^\s;]+)")


@FORMATS.register("hocr")
@dataclass(frozen=True)
class Hocr(OcrPages):
    name: ClassVar[str] = "hocr"
    description: ClassVar[str] = "hOCR (HTML of Tesseract, OCRopus, Kraken): one file per page, or a folder of them"
    suffixes: ClassVar[tuple[str, ...]] = (".hocr", ".html", ".htm", ".xhtml")
    begins: ClassVar[str] = r"""class\s*=\s*["'][^"']*\bocr_page\b|\bocr-system\b"""

    def pages(self, file: Path) -> Iterator[ScannedPage]:
        reader = _Reader(file)
        reader.feed(decoded(file, MAX_XML_BYTES))
        reader.close()
        if not reader.found:
            raise SightlineError(f"{file}: has no element of class ocr_page; is it hOCR?")
        return (open_page.page() for open_page in reader.found)


@dataclass
class _OpenPage:
    """A page while its elements are read."""

    image: str
    box: Box | None
    words: list[PageText] = field(default_factory=list)
    lines: list[PageText] = field(default_factory=list)

    def page(self) -> ScannedPage:
        """Boxes are relative to the image, of which the page's own box is usually the whole."""
        width, height = (None, None) if self.box is None else (self.box[2], self.box[3])
        return ScannedPage(self.words, self.lines, self.image, width or None, height or None)


@dataclass
class _Open:
    """An element whose end has not been seen."""

    tag: str
    part: str
    box: Box | None
    confidence: float | None
    first_word: int
    """How many words the page had before it."""
    text: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    """Character references are all that is expanded; a document type is passed over."""

    def __init__(self, file: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.file = file
        self.found: list[_OpenPage] = []
        self._open: list[_Open] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _EMPTY_TAGS:
            return
        said = {name: value or "" for name, value in attrs}
        part = next((_PARTS[name] for name in said.get("class", "").split() if name in _PARTS), "")
        title = said.get("title", "")
        box = self._box(title) if part else None
        if part == _PAGE:
            image = _IMAGE.search(title)
            stated = next(filter(None, image.groups()), "").strip() if image else ""
            self.found.append(_OpenPage(stated, box))
        elif part and not self.found:
            self._refuse(f"a {part} outside of every ocr_page")
        elif part and box is None:
            self._refuse(f"a {part} without 'bbox x1 y1 x2 y2' in its title")
        sure = _CONFIDENCE.search(title)
        words = len(self.found[-1].words) if self.found else 0
        self._open.append(_Open(tag, part, box, number(sure[1]) if sure else None, words))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _EMPTY_TAGS:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        for element in reversed(self._open):
            if element.part in (_WORD, _LINE):
                element.text.append(data)
                return

    def handle_endtag(self, tag: str) -> None:
        if not any(element.tag == tag for element in self._open):
            return
        while True:
            element = self._open.pop()
            self._close(element)
            if element.tag == tag:
                return

    def close(self) -> None:
        super().close()
        while self._open:
            self._close(self._open.pop())

    def _close(self, element: _Open) -> None:
        if element.box is None or element.part == _PAGE:
            return
        page, text = self.found[-1], " ".join("".join(element.text).split())
        if element.part == _WORD:
            page.words.append(PageText(text, element.box, element.confidence))
        elif element.part == _LINE:
            words = page.words[element.first_word :]
            line = joined(words) if words else PageText(text, element.box, element.confidence)
            page.lines.append(line._replace(box=element.box))

    def _box(self, title: str) -> Box | None:
        found = _BOX.search(title)
        if found is None:
            return None
        values = [number(text) for text in found.groups()]
        if None in values:
            self._refuse(f"'{found[0]}' is not four numbers")
        left, upper, right, lower = (value or 0.0 for value in values)
        return (left, upper, right, lower)

    def _refuse(self, what: str) -> None:
        raise SightlineError(f"{self.file} line {self.getpos()[0]}: {what}")
