"""Pages as JSON, lines in boxes with words in boxes: FUNSD, XFUND, Microsoft Read, each declared in json_pages.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes.data_rows import read_json
from sightline.probes.formats.base import FORMATS
from sightline.probes.formats.pages import OcrPages, PageFiles, PageText, ScannedPage, extent, percent
from sightline.probes.regions import box_around, four_numbers

_LOW = 50.0
"""What a word of confidence "Low" counts as, from 0 to 100."""


@dataclass(frozen=True)
class JsonPages(PageFiles):
    """Reads by the paths that a format declares; what they are is said in json_pages.toml."""

    suffixes: ClassVar[tuple[str, ...]] = (".json",)
    pages_at: ClassVar[list[str]] = []
    at: ClassVar[dict[str, str]]
    """Everything else that is declared, by name; what is not declared is nowhere."""

    def pages(self, file: Path) -> Iterator[ScannedPage]:
        document = read_json(file)
        listed = (_below(document, path) for path in self.pages_at)
        found: Any = next((each for each in listed if each is not None), None)
        if self.pages_at and (not isinstance(found, list) or not found):
            raise SightlineError(f"{file}: not {self.name}: needs a list of pages under {' or '.join(self.pages_at)}")
        part = str(_below(document, self.at.get("dataset_part", "")) or "")
        dataset = "-".join(filter(None, (self.at.get("dataset", ""), part)))
        for position, page in enumerate(found if self.pages_at else [document]):
            yield self._page(page, f"{file}: page {position}", file, dataset)

    def _page(self, page: Any, where: str, file: Path, dataset: str) -> ScannedPage:
        image = _below(page, self.at.get("image", ""))
        if "image" in self.at and not isinstance(image, str):
            raise SightlineError(f"{where} does not name its image ({self.at['image']})")
        stem = file.name.removesuffix(".gz").removesuffix(".json")
        words: list[PageText] = []
        lines: list[PageText] = []
        for line, here in self._entries(page, "lines", where, needed=True):
            lines.append(self._text(line, here))
            words += [self._text(word, inside) for word, inside in self._entries(line, "words", here)]
        return ScannedPage(
            words,
            lines,
            image=image or self.at.get("image_name", "").format(stem=stem),
            width=extent(str(_below(page, self.at.get("width", "")))),
            height=extent(str(_below(page, self.at.get("height", "")))),
            pixels=_below(page, self.at.get("unit", "")) in (None, "pixel"),
            image_id=str(_below(page, self.at.get("image_id", "")) or ""),
            dataset=dataset,
        )

    def _entries(self, holder: Any, name: str, where: str, *, needed: bool = False) -> Iterator[tuple[Any, str]]:
        """Lines of a page or words of a line, each with its place."""
        found = _below(holder, self.at[name])
        if not isinstance(found, list) and (needed or found is not None):
            raise SightlineError(f"{where} has no list {self.at[name]!r} of {name} with text and box")
        yield from ((each, f"{where} {name[:-1]} {position}") for position, each in enumerate(found or ()))

    def _text(self, entry: Any, where: str) -> PageText:
        text, sure = _below(entry, "text"), _below(entry, self.at.get("confidence", ""))
        if not isinstance(entry, dict) or not isinstance(text, str | int | float | None):
            raise SightlineError(f"{where} is no object with a text")
        confidence = _LOW if sure == "Low" else percent(str(sure)) if isinstance(sure, int | float) else None
        return PageText(str(text or ""), self._box(entry, where), confidence)

    def _box(self, entry: Any, where: str) -> Box:
        key = self.at.get("box") or self.at["outline"]
        box = four_numbers(entry.get(key)) if "box" in self.at else box_around(entry.get(key))
        if box is None:
            wanted = (
                "four numbers (x1, y1, x2, y2 in pixels)" if "box" in self.at else "points x, y, none beyond floats"
            )
            found = entry.get(key)
            shown = "nothing" if found is None else str(found)[:80]
            raise SightlineError(f"{where}: needs {key!r} of {wanted}, found {shown}")
        return box


@dataclass(frozen=True)
class JsonOcrPages(JsonPages, OcrPages):
    """Likewise of a program that says how sure it was."""


def _below(value: Any, path: str) -> Any:
    """What stands at a dotted path of keys; None where nothing does, or no path is declared."""
    for key in path.split(".") if path else ["\0"]:
        value = value.get(key) if isinstance(value, dict) else None
    return value


for _name, _facts in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items():
    _base = JsonOcrPages if "confidence" in _facts else JsonPages
    _own = {name: _facts.pop(name) for name in ("description", "begins", "box_source") if name in _facts}
    _declared = {"name": _name, "pages_at": _facts.pop("pages", []), "at": _facts, **_own}
    FORMATS.add(_name, dataclass(frozen=True)(type(_name, (_base,), _declared)))
