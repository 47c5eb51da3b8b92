"""What readers can ask the gallery for: filters and orders, by the kind of answers that its cases hold.

The names are those that ``report.js`` knows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gallery:
    """(name, words) of every filter and order; ``{reference}`` in words is what answers are compared with."""

    filters: tuple[tuple[str, str], ...]
    orders: tuple[tuple[str, str], ...]


_CHOSEN, _COVERAGE = ("chosen", "as chosen"), ("ecr", "least coverage first")
_LOW, _WRONG = ("low", "low coverage"), ("wrong", "wrong answers")

YES_OR_NO = Gallery(
    (("all", "all cases"), ("unsupported", "unsupported"), ("flip", "flips vs {reference}"), _LOW, _WRONG),
    (_CHOSEN, _COVERAGE, ("margin", "largest margin first"), ("change", "largest change from {reference} first")),
)
IN_WORDS = Gallery(
    (
        ("all", "all cases"),
        ("unsupported", "right without evidence"),
        ("confident", "confident and wrong"),
        ("flip", "other than {reference}'s"),
        _LOW,
        _WRONG,
    ),
    (_CHOSEN, _COVERAGE, ("loss", "surest answer first"), ("fall", "largest fall of the score first")),
)
BOTH = Gallery(
    (*YES_OR_NO.filters, IN_WORDS.filters[2]),
    (*YES_OR_NO.orders, *IN_WORDS.orders[2:]),
)
