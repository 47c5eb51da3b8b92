"""All scores of one answer, and which of them its benchmark goes by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sightline.answers.anls import anls, anls_stripped
from sightline.answers.literal_match import contains, exact
from sightline.answers.ocrbench_rule import ocrbench
from sightline.answers.soft_accuracy import soft_accuracy
from sightline.errors import SightlineError

TASK_RULES = {"textvqa": "soft_accuracy", "docvqa": "anls", "ocrbench": "ocrbench"}
"""Benchmark -> the score that its authors rank by, a field of ``AnswerScores``. Questions from elsewhere: exact."""
ANY_TASK = "exact"


@dataclass(frozen=True)
class AnswerScores:
    """One answer against its accepted answers; every score is between 0 and 1."""

    exact: bool
    contains: bool
    soft_accuracy: float
    anls: float
    anls_stripped: float
    ocrbench: bool
    score: float
    """The one of the question's benchmark."""


def rule_of(task: str) -> str:
    """The score that counts for questions of a benchmark; case does not matter."""
    return TASK_RULES.get(task.lower(), ANY_TASK)


def score_answer(task: str, answer: str, accepted: Sequence[str], question_type: str = "") -> AnswerScores:
    """Every score of a ``cleaned`` answer. ``question_type`` is OCRBench's, which treats formulas in another way."""
    if not accepted:
        raise SightlineError("an answer cannot be scored without an accepted answer")
    scores = AnswerScores(
        exact=exact(answer, accepted),
        contains=contains(answer, accepted),
        soft_accuracy=soft_accuracy(answer, accepted),
        anls=anls(answer, accepted),
        anls_stripped=anls_stripped(answer, accepted),
        ocrbench=ocrbench(answer, accepted, question_type),
        score=math.nan,
    )
    return replace(scores, score=float(getattr(scores, rule_of(task))))
