"""COCO-Text, versions 1 and 2: TextOCR's three objects, and for every word how legible it is and in which language."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from sightline.probes.formats.base import FORMATS, Format, FormatOption
from sightline.probes.formats.textocr import COCO_TEXT, load_document, regions_of
from sightline.probes.regions import Ingest

_OBJECTS = re.compile(r'\s*\{.*?"(?:imgs|anns|imgToAnns)"\s*:', re.DOTALL)


@FORMATS.register("coco_text")
@dataclass(frozen=True)
class CocoText(Format):
    """A word that is not read (illegible, or of another language) stays as a box without text."""

    name: ClassVar[str] = "coco_text"
    description: ClassVar[str] = "COCO-Text: one JSON document with imgs, anns and imgToAnns; boxes are xywh in pixels"

    legibility: Annotated[Literal["legible", "any"], FormatOption("Which words count as transcribed.")] = "legible"
    language: Annotated[str, FormatOption("Words of this language only, for example english.")] = ""
    min_annotation_area: Annotated[
        float, FormatOption("Drop annotations of fewer square pixels.", "--min-annotation-area")
    ] = 1.0

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _OBJECTS.match(start) is not None and COCO_TEXT.search(start) is not None

    def read(self, path: Path, images: Path | None) -> Ingest:
        document = load_document(path)
        words = {key: self._heard(word) for key, word in document["anns"].items()}
        ingest = regions_of({**document, "anns": words}, path, min_annotation_area=self.min_annotation_area)
        records = (
            replace(record, dataset="COCO-Text", box_source="coco_text_word_annotations", id_prefix="coco-text-")
            for record in ingest.records
        )
        return replace(ingest, records=tuple(records))

    def _heard(self, word: Any) -> Any:
        if not isinstance(word, Mapping):
            return word
        legible = self.legibility == "any" or word.get("legibility", "legible") == "legible"
        wanted = not self.language or word.get("language") == self.language
        return dict(word) if legible and wanted else {**word, "utf8_string": ""}
