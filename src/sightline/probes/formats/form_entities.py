"""Forms as lists of entities, each a text in a box with its words: what FUNSD and XFUND have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.probes.box_format import four_numbers
from sightline.probes.formats.pages import PageText
from sightline.probes.raw_text import encoding_of, read_bytes


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
