"""Answers in words beside Full's on the same question: what became of each, and what was left of its evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sightline.answers import normalised
from sightline.statistics.correct_positives import has_no_evidence

UNCHANGED, LOST, GAINED, OTHERWISE = "unchanged", "lost", "gained", "otherwise"
CHANGES = {
    UNCHANGED: "unchanged",
    LOST: "changed to wrong",
    GAINED: "changed to right",
    OTHERWISE: "changed otherwise",
}
"""What became of an answer -> in words. Otherwise: to another answer that is no more and no less right."""
KEPT, PARTLY, NONE, UNTRACED = "kept", "partly", "none", "untraced"
EVIDENCE = {
    KEPT: "evidence kept",
    PARTLY: "kept in part",
    NONE: "none kept",
    UNTRACED: "no region",
}
"""What was left of the evidence -> in words. Kept: of every region at least half. None: not one cell."""
CONFIDENT = 0.25
"""Of the wrong answers of a run, the quarter with the smallest loss counts as confident."""


def with_changes(rows: pd.DataFrame) -> pd.DataFrame:
    """Plain rows of one run with ``change`` (empty where there is no Full to compare with) and ``evidence``.

    ``reference_predicted`` and ``reference_correct`` are Full's. Answers that differ in case, punctuation or blanks
    alone are the same, unless that makes one right and the other wrong.
    """
    known = rows["reference_predicted"].notna()
    said, before = rows["predicted"].map(_words), rows["reference_predicted"].map(_words)
    right = rows["correct"].astype(bool)
    was_right = rows["reference_correct"].fillna(False).astype(bool)
    change = np.select(
        [~known, was_right & ~right, ~was_right & right, said == before], ["", LOST, GAINED, UNCHANGED], OTHERWISE
    )
    bare = rows["n_regions"].fillna(0) == 0
    all_half = rows["all_half"].fillna(False).astype(bool)
    evidence = np.select([bare, all_half, has_no_evidence(rows["ecr"])], [UNTRACED, KEPT, NONE], PARTLY)
    return rows.assign(change=change, evidence=evidence)


def confident_wrong(rows: pd.DataFrame) -> pd.Series[bool]:
    """Per row whether the answer scores nothing although the model was sure of it: among the wrong answers of these
    rows, its loss is in the smallest quarter. A model that says nothing claims nothing, so silence does not count."""
    wrong = (rows["score"] == 0.0) & (rows["predicted"].map(_words) != "")
    if not wrong.any():
        return wrong
    return wrong & (rows["answer_loss"] <= rows.loc[wrong, "answer_loss"].quantile(CONFIDENT))


def _words(answer: Any) -> str:
    return normalised(str(answer))
