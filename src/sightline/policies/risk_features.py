"""What risk is learned from, in groups by what has to be done to know it. Right answers and regions are in none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from sightline.policies.base import LevelAnswer, Noticed, Sight
from sightline.policies.token_spread import blocks_of, dispersion

QUESTION = ("question_words", "question_joins", "question_fields")
MASK = ("tokens", "mask_dispersion", "mask_blocks")
STABILITY = ("mask_stability",)
ANSWER = ("confidence", "answer_words", "answer_yes")
GROUPS: Mapping[str, tuple[str, ...]] = {
    "question": QUESTION,
    "mask": MASK,
    "stability": (*MASK, *STABILITY),
    "combined": (*QUESTION, *MASK, *STABILITY),
    "combined and low answer": (*QUESTION, *MASK, *STABILITY, *ANSWER),
}
"""``question``: its words alone. ``mask``: what the selector keeps at the lowest level. ``stability``: also how much of
that the highest level keeps. The last group needs an answer at the lowest level, so that falling back costs twice."""

BLOCKS = 4
"""The image is cut into this many blocks each way."""
_WORD = re.compile(r"[a-z0-9]+")
_JOINS = {"and", "both", "between", "during", "from", "to", "per", "versus", "vs", "respectively"}
_FIELDS = {
    "date", "year", "total", "amount", "number", "value", "price", "address", "organization", "company", "name",
    "invoice", "account", "form", "page", "table",
}  # fmt: skip


def before_answer(sight: Sight) -> dict[str, float]:
    """Everything that question and masks tell."""
    words = _WORD.findall(sight.question.lower())
    lowest, highest = sight.masks[0], sight.masks[-1]
    weights = lowest / max(1, lowest.sum())
    return {
        "question_words": float(len(words)),
        "question_joins": float(any(word in _JOINS for word in words)),
        "question_fields": float(any(word in _FIELDS for word in words)),
        "tokens": float(np.log(len(lowest))),
        "mask_dispersion": dispersion(sight.cells, weights),
        "mask_blocks": len(np.unique(blocks_of(sight.cells, BLOCKS)[lowest])) / BLOCKS**2,
        "mask_stability": float((lowest & highest).sum() / max(1, lowest.sum())),
    }


def from_answer(answered: LevelAnswer) -> dict[str, float]:
    """What the answer at the lowest level tells."""
    return {
        "confidence": answered.confidence or 0.0,
        "answer_words": float(len(answered.answer.split())),
        "answer_yes": float(answered.answer.strip().lower() == "yes"),
    }


def vector(names: Sequence[str], noticed: Noticed, answered: LevelAnswer | None) -> list[float]:
    """The features of these names, in their order."""
    known = {**noticed, **({} if answered is None else from_answer(answered))}
    return [float(known[name]) for name in names]
