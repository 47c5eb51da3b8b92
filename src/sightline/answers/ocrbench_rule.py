"""OCRBench's own rule: an accepted answer stands somewhere in what was said."""

from __future__ import annotations

from collections.abc import Iterable

FORMULAS = ("hme100k", "handwritten mathematical expression recognition")
"""The data set, and the question type, in which blanks do not matter and case does."""


def ocrbench(answer: str, accepted: Iterable[str], question_type: str = "") -> bool:
    """Whether an accepted answer is part of the answer: lower case, stripped, line breaks made blanks.

    Of handwritten mathematical expressions all blanks are removed and case is kept, since x is not X. An empty accepted
    answer, which the published rule would find in everything, stands in an empty answer alone.
    """
    form = _formula if question_type.strip().lower() in FORMULAS else _line
    said = form(answer)
    return any(each in said if each else not said for each in map(form, accepted))


def _line(text: str) -> str:
    return text.lower().strip().replace("\n", " ")


def _formula(text: str) -> str:
    return text.strip().replace("\n", " ").replace(" ", "")
