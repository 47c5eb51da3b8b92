"""FUNSD: one JSON file per scanned form, ``{"form": [{"text", "box", "words", "label", "linking", "id"}, ...]}``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sightline.errors import SightlineError
from sightline.probes.formats.base import FORMATS
from sightline.probes.formats.form_entities import read_document, words_and_entities
from sightline.probes.formats.pages import PageFiles, ScannedPage

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
