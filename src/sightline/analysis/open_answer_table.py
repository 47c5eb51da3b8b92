"""What pruning costs answers in words: every arm against Full, and what a larger budget brings back."""

from __future__ import annotations

import pandas as pd

from sightline.analysis.comparison import (
    ALL_TASKS,
    ArmPair,
    Record,
    Unit,
    by_model,
    full_arm,
    rows_in_words,
    score_changes,
    table_of,
)
from sightline.core.selection import PER_TILE
from sightline.statistics.bootstrap import SEED
from sightline.statistics.paired_scores import EXAMPLE_DRAWS


def open_answer_table(
    frame: pd.DataFrame, *, unit: Unit = "example", draws: int = EXAMPLE_DRAWS, seed: int = SEED
) -> pd.DataFrame:
    """One line per model, benchmark and arm: its score, Full's, the change with its interval, wins, losses, ties.

    Over several benchmarks a line ``all`` gives each the same weight. ``keep`` is the kept share of tokens.
    """
    records: list[Record] = []
    for model, rows in by_model(rows_in_words(frame)):
        full = full_arm(rows)
        pairs = [ArmPair(str(arm), full) for arm in rows["arm"].unique() if arm != full]
        if not pairs:
            continue
        for record in score_changes(rows, pairs, unit=unit, draws=draws, seed=seed):
            own = arm_facts_of(rows, record["arm"], record["task"])
            record["full_score"] = record.pop("reference_score")
            del record["reference"]
            records.append({"model": model, **own, **record})
    return table_of(
        records, "Full is the only arm; amend the run with the arms to compare, for example --arm target:0.3"
    )


def recovery_table(
    frame: pd.DataFrame, *, unit: Unit = "example", draws: int = EXAMPLE_DRAWS, seed: int = SEED
) -> pd.DataFrame:
    """What the largest budget of a selector brings back against each smaller one, with the same arguments.

    Budgets of all tokens and budgets of every tile's own are compared among themselves.
    """
    records: list[Record] = []
    for model, rows in by_model(rows_in_words(frame)):
        arms = rows[(rows["selector"] != "full") & rows["keep_requested"].notna()].drop_duplicates("arm")
        by_tile = arms["budget"].astype(str).str.endswith(PER_TILE)
        for _, family in arms.groupby(["selector", "arguments", by_tile], sort=False):
            ordered = family.sort_values("keep_requested", ascending=False)["arm"].astype(str).tolist()
            pairs = [ArmPair(ordered[0], smaller) for smaller in ordered[1:]]
            if pairs:
                found = score_changes(rows, pairs, unit=unit, draws=draws, seed=seed)
                records += [{"model": model, **record} for record in found]
    return table_of(
        records, "no selector was run at two budgets; amend the run with another, for example --arm target:0.7"
    )


def arm_facts_of(rows: pd.DataFrame, arm: str, task: str) -> Record:
    """Selector, budget and mean kept share of one arm on one benchmark; over all, benchmarks weigh the same."""
    own = rows[rows["arm"] == arm]
    kept = own.groupby("task")["keep"].mean()
    keep = float(kept.mean() if task == ALL_TASKS else kept[task])
    return {"selector": str(own["selector"].iloc[0]), "budget": str(own["budget"].iloc[0]), "keep": keep}
