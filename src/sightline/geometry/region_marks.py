"""How regions are told apart in a picture: a colour and a letter for what each is to the question.

The letter says everything that the colour says, so that a picture reads the same without colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class RegionMark(NamedTuple):
    """What is drawn around a region, and what it means."""

    letter: str
    colour: str
    """``#rrggbb``, light enough to stand out from a dimmed image and dark enough on a white page."""
    words: str


UNTYPED = RegionMark("", "#ff8a00", "region with the evidence")
MARKS = {
    "answer_value": RegionMark("V", "#ff8a00", "the answer's value"),
    "field_label": RegionMark("L", "#3b9ede", "label of the field"),
    "row_header": RegionMark("R", "#12b886", "head of the row"),
    "column_header": RegionMark("C", "#e05fb0", "head of the column"),
    "comparison_anchor": RegionMark("A", "#b08cff", "anchor of the comparison"),
    "context": RegionMark("X", "#c9a800", "context"),
}
"""By role."""


def marks_of(roles: Sequence[str], regions: int) -> list[RegionMark]:
    """One mark per region; untyped where nobody said what the regions are. An unknown role keeps its name."""
    if not roles:
        return [UNTYPED] * regions
    return [MARKS.get(role) or RegionMark(role[:1].upper(), UNTYPED.colour, role.replace("_", " ")) for role in roles]
