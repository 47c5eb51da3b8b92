"""Forms as lists of entities, each a text in a box with its words: what FUNSD and XFUND have in common."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sightline.errors import SightlineError
from sightline.probes.data_rows import encoding_of, read_bytes
from sightline.probes.formats.base import FORMATS
from sightline.probes.formats.pages import PageFiles, PageText, ScannedPage, extent
from sightline.probes.regions import four_numbers


def read_document(file: Path) -> Any:
    """A JSON document, read whole."""
    data = read_bytes(file)
    try:
        return json.loads(data.decode(encoding_of(data)))
    except (ValueError, RecursionError) as problem:
        raise SightlineError(f"{file}: not a JSON document: {problem}") from None


def words_and_entities(entities: Any, where: str) -> tuple[list[PageText], list[PageText]]:
    """All words, and all entities as lines, of one form; ``where`` names it in what is refused."""
    if not isinstance(entities, list):
        raise SightlineError(f"{where} is not a list of entities with text, box and words")
    words: list[PageText] = []
    lines: list[PageText] = []
    for position, entity in enumerate(entities):
        here = f"{where} entity {position}"
        lines.append(_placed(entity, here))
        inside = entity.get("words", [])
        if not isinstance(inside, list):
            raise SightlineError(f"{here}: 'words' is not a list")
        words += [_placed(word, f"{here} word {number}") for number, word in enumerate(inside)]
    return words, lines


def _placed(entry: Any, where: str) -> PageText:
    box = four_numbers(entry.get("box")) if isinstance(entry, dict) else None
    if box is None:
        raise SightlineError(f"{where}: needs a 'box' of four numbers (x1, y1, x2, y2 in pixels)")
    return PageText(str(entry.get("text") or ""), box)


# FUNSD: one JSON file per scanned form, ``{"form": [{"text", "box", "words", "label", "linking", "id"}, ...]}``.

_START = re.compile(r'\s*\{\s*"form"\s*:')


@FORMATS.register("funsd")
@dataclass(frozen=True)
class Funsd(PageFiles):
    """Its entities are the lines. A file does not say how large its image is, so the image has to be there."""

    name: ClassVar[str] = "funsd"
    description: ClassVar[str] = "FUNSD: one JSON file per form, boxes as corners in pixels; usually a folder of them"
    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _START.match(start) is not None

    def pages(self, file: Path) -> Iterator[ScannedPage]:
        document = read_document(file)
        if not isinstance(document, dict) or "form" not in document:
            raise SightlineError(f"{file}: not a FUNSD file: it needs the list 'form'")
        words, lines = words_and_entities(document["form"], f"{file}: form")
        yield ScannedPage(words, lines, dataset="FUNSD")


# XFUND: one JSON file per language and split, ``{"documents": [{"id", "img": {"fname", "width", "height"}, "document":
# [entities as in FUNSD]}, ...]}``.

_XFUND_START = re.compile(r'\s*\{(?:\s*"(?:lang|version|split)"\s*:\s*"[^"]*"\s*,)*\s*"documents"\s*:')


@FORMATS.register("xfund")
@dataclass(frozen=True)
class Xfund(PageFiles):
    """Its entities are the lines. Words of Chinese and Japanese forms are single characters: read lines there."""

    name: ClassVar[str] = "xfund"
    description: ClassVar[str] = "XFUND: one JSON file with all forms of a language, boxes as corners in pixels"
    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _XFUND_START.match(start) is not None

    def pages(self, file: Path) -> Iterator[ScannedPage]:
        document = read_document(file)
        forms = document.get("documents") if isinstance(document, dict) else None
        if not isinstance(forms, list):
            raise SightlineError(f"{file}: not an XFUND file: it needs the list 'documents'")
        language = str(document.get("lang") or "")
        for position, form in enumerate(forms):
            yield _page(form, f"{file}: document {position}", f"XFUND-{language}" if language else "XFUND")


def _page(form: Any, where: str, dataset: str) -> ScannedPage:
    image = form.get("img") if isinstance(form, dict) else None
    if not isinstance(image, dict) or not isinstance(image.get("fname"), str):
        raise SightlineError(f"{where} does not name its image (img.fname)")
    words, lines = words_and_entities(form.get("document"), where)
    return ScannedPage(
        words,
        lines,
        image=image["fname"],
        width=extent(str(image.get("width"))),
        height=extent(str(image.get("height"))),
        image_id=str(form.get("id") or ""),
        dataset=dataset,
    )
