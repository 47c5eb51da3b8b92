"""Tokens of the evidence taken out of the mask and put back; evidence kept alone against removed."""

from __future__ import annotations

import math

import pandas as pd

from sightline.analysis.comparison import (
    OF_ANSWERS,
    Record,
    by_model,
    clustered_mean,
    compare_support,
    indexed,
    interval_columns,
    rates,
    table_of,
)
from sightline.core.probe import ORIGINAL
from sightline.interventions import families
from sightline.statistics.bootstrap import DRAWS
from sightline.statistics.intervals import Estimate
from sightline.statistics.plain_rows import UNCHANGED, plain_rows


def deletion_table(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """What removing the evidence costs, and how much of it each restoration brings back.

    recovery = (accuracy - accuracy when removed) / (accuracy of the selection - accuracy when removed), NaN where
    removal cost nothing. ``change`` is accuracy minus the plain arm's, paired by probe.
    """
    records: list[Record] = []
    original = frame[frame["view"] == ORIGINAL]
    for model, rows in by_model(original):
        for arm, own in rows.groupby("plain_arm", sort=False):
            variants = {str(what): indexed(part, f"{arm} {what}") for what, part in own.groupby("intervention")}
            if "remove_evidence" not in variants or UNCHANGED not in variants:
                continue
            selected = variants[UNCHANGED]
            before, after = (rates(variants[name])["accuracy"] for name in (UNCHANGED, "remove_evidence"))
            for name in (UNCHANGED, *map(str, families()["deletion"])):
                if name not in variants:
                    continue
                part = variants[name]
                shared = part.index.intersection(selected.index)
                change = part.loc[shared, "correct"].astype(float) - selected.loc[shared, "correct"].astype(float)
                measured = rates(part)
                moved = clustered_mean(change, selected.loc[shared, "image_id"], draws, OF_ANSWERS)
                if name == UNCHANGED:  # 0 by construction
                    moved = Estimate(moved.value, math.nan, math.nan, kind="certain")
                records.append(
                    {
                        "model": model,
                        "arm": arm,
                        "variant": "selected" if name == UNCHANGED else name,
                        **measured,
                        "change_from_removed": measured["accuracy"] - after,
                        **interval_columns("change", moved),
                        "recovery": (measured["accuracy"] - after) / (before - after) if before != after else math.nan,
                    }
                )
    return table_of(records, "no arm has its evidence removed; run again with --interventions deletion")


def logit_drop_table(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """Target support with the evidence kept, removed, and under every pruning arm of the same budget, by label.

    Needs the arms ``evidence_only`` (kept) and ``anti_evidence`` (removed).
    """
    records: list[Record] = []
    for model, rows in by_model(plain_rows(frame)):
        arms = {str(arm): indexed(part, str(arm)) for arm, part in rows.groupby("plain_arm", sort=False)}
        selector = {arm: str(part["selector"].iloc[0]) for arm, part in arms.items()}
        full = next((arm for arm in arms if selector[arm] == "full"), None)
        for removed in (arm for arm in arms if selector[arm] == "anti_evidence"):
            budget = arms[removed]["budget"].iloc[0]
            peers = [arm for arm in arms if arms[arm]["budget"].iloc[0] == budget]
            kept = next((arm for arm in peers if selector[arm] == "evidence_only"), None)
            if kept is None:
                continue
            pairs = [(kept, removed), *([(full, removed)] if full else [])]
            for arm in peers:
                if selector[arm] not in ("evidence_only", "anti_evidence"):
                    pairs += [(arm, removed), *([(arm, full)] if full else []), (arm, kept)]
            records += [
                {"model": model, "budget": budget, "left": left, "right": right,
                 **compare_support(arms[left], arms[right], draws)}
                for left, right in pairs
            ]  # fmt: skip
    return table_of(records, "no budget has the arms evidence_only and anti_evidence; add both, for example at 0.3")
