"""Answers in words of methods beside controls that cost the same, and of the question's span beside its focus words."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from sightline.analysis.comparison import ArmPair, Record, Unit, by_model, rows_in_words, score_changes, table_of
from sightline.analysis.open_answer_table import arm_facts_of
from sightline.statistics.bootstrap import SEED
from sightline.statistics.paired_scores import EXAMPLE_DRAWS

FOCUS = "focus"
SPANS = ("question", "target")
"""What Focus is compared with: all words of the question, or the part of it that the probe names."""


def matched_answer_table(
    frame: pd.DataFrame, *, unit: Unit = "example", draws: int = EXAMPLE_DRAWS, seed: int = SEED
) -> pd.DataFrame:
    """Every method against every control of its budget: Random, Grid, the image shown smaller, whatever was run.

    ``change`` is method minus control. ``keep`` and ``reference_keep`` say whether both really cost the same.
    """
    records: list[Record] = []
    for model, rows in by_model(rows_in_words(frame)):
        arms = rows.drop_duplicates("arm")
        budgets = arms.set_index("arm")["budget"].astype(str)
        methods, controls = (arms.loc[arms["role"] == role, "arm"].astype(str) for role in ("method", "control"))
        pairs = [ArmPair(arm, control) for arm in methods for control in controls if budgets[arm] == budgets[control]]
        if not pairs:
            continue
        for record in score_changes(rows, pairs, unit=unit, draws=draws, seed=seed):
            own, other = (arm_facts_of(rows, record[side], record["task"]) for side in ("arm", "reference"))
            records.append({"model": model, **own, "reference_keep": other["keep"], **record})
    return table_of(records, "no budget has a method and a control; run again with --matched-controls")


def focus_table(
    frame: pd.DataFrame, *, unit: Unit = "example", draws: int = EXAMPLE_DRAWS, seed: int = SEED
) -> pd.DataFrame:
    """Focus words against the whole span: arms that differ in their argument ``score`` alone.

    ``p`` is that of a sign-flip test.
    """
    records: list[Record] = []
    for model, rows in by_model(rows_in_words(frame)):
        spans: dict[tuple[str, str, str], dict[str, str]] = {}
        for arm in rows.drop_duplicates("arm").itertuples():
            arguments: dict[str, Any] = json.loads(str(arm.arguments) or "{}")
            if "score" in arguments:
                span = str(arguments.pop("score"))
                key = str(arm.selector), str(arm.budget), json.dumps(arguments, sort_keys=True)
                spans.setdefault(key, {})[span] = str(arm.arm)
        pairs = [
            ArmPair(known[FOCUS], known[span])
            for known in spans.values()
            if FOCUS in known
            for span in SPANS
            if span in known
        ]
        if pairs:
            found = score_changes(rows, pairs, unit=unit, draws=draws, seed=seed, flips=True)
            records += [{"model": model, **record} for record in found]
    return table_of(
        records,
        "no selector was run with both spans; add for example target:0.3:score=focus and target:0.3:score=question",
    )
