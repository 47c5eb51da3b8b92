"""XFUND: one JSON file per language and split, ``{"documents": [{"id", "img": {"fname", "width", "height"},
"document": [entities as in FUNSD]}, ...]}``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sightline.errors import SightlineError
from sightline.probes.formats.base import FORMATS
from sightline.probes.formats.form_entities import read_document, words_and_entities
from sightline.probes.formats.pages import PageFiles, ScannedPage, extent

_START = re.compile(r'\s*\{(?:\s*"(?:lang|version|split)"\s*:\s*"[^"]*"\s*,)*\s*"documents"\s*:')


@FORMATS.register("xfund")
@dataclass(frozen=True)
class Xfund(PageFiles):
    """Its entities are the lines. Words of Chinese and Japanese forms are single characters: read lines there."""

    name: ClassVar[str] = "xfund"
    description: ClassVar[str] = "XFUND: one JSON file with all forms of a language, boxes as corners in pixels"
    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _START.match(start) is not None

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
