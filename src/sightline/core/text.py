"""Texts: how far apart two are, cells that no spreadsheet takes for formulas, and numbers that JSON has words for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.places.writing import write_whole

if TYPE_CHECKING:
    import pandas as pd


def edit_distance(one: str, other: str) -> int:
    """Levenshtein distance, a column of its table at a time as bits of whole numbers (Myers 1999; Hyyrö 2003).

    Bit i of ``up`` (``down``) says that the table grows (falls) by 1 from line i to line i + 1; ``distance`` follows
    the last line. Every column takes a handful of operations, however long ``one`` is.
    """
    if not one or not other:
        return len(one) + len(other)
    places: dict[str, int] = {}
    for place, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << place
    every, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    up, down, distance = every, 0, len(one)
    for character in other:
        same = places.get(character, 0)
        level = (((same & up) + up) ^ up) | same | down  # no growth along the diagonal
        right_up, right_down = down | (~(level | up) & every), up & level
        distance += bool(right_up & last) - bool(right_down & last)
        right_up, right_down = (right_up << 1 | 1) & every, right_down << 1 & every
        up, down = right_down | (~(level | right_up) & every), right_up & level
    return distance


def finite(value: Any) -> Any:
    """The value with null for every number that JSON has no word for, however deep it lies."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Texts in tables that people open with a spreadsheet: none of them is taken for a formula.

BEGINNINGS = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the start of a formula."""
MARK = "'"
"""What makes a spreadsheet show the rest of the cell as it is."""


def as_text(value: Any) -> Any:
    """A cell: a text that would be a formula gets an apostrophe in front; numbers, also written ones, stay."""
    return f"{MARK}{value}" if isinstance(value, str) and _is_formula(value) else value


def from_text(cell: str) -> str:
    """The text that ``as_text`` made the cell from."""
    return cell[1:] if cell.startswith(MARK) and _is_formula(cell[1:]) else cell


def without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with ``as_text`` of every cell of its text columns, and of their names."""
    texts = [name for name in frame.columns if frame[name].dtype == object or str(frame[name].dtype).startswith("str")]
    cleaned = frame.assign(**{str(name): frame[name].map(as_text, na_action="ignore") for name in texts})
    return cleaned.rename(columns=as_text)


def write_csv(path: Path, frame: pd.DataFrame) -> None:
    """Writes the frame as a CSV file that a spreadsheet opens as it is."""
    write_whole(path, without_formulas(frame).to_csv(index=False, lineterminator="\n").encode())


def _is_formula(text: str) -> bool:
    """Also behind marks of its own, so that what was marked can be told from what began with a mark."""
    bare = text.lstrip(MARK)
    return bare.startswith(BEGINNINGS) and not _is_number(bare)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip()
