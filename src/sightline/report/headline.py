"""What a reader should take away first: one or two sentences per run, made from the numbers alone."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from sightline.report.arm_words import family, listed, share
from sightline.report.by_run import top
from sightline.report.source import Audited, Source
from sightline.report.summary import ReportSummary
from sightline.report.table import format_value

MOST_NAMED = 4
"""Arms that a sentence names; of more it says how many."""


def headlines(source: Source, summary: ReportSummary) -> list[str]:
    """For each run what pruning does to right answers and their evidence, under box-free arms alone.

    Where nothing can be read from a run's answers, that is all that is said of it. Where the numbers show nothing, the
    sentence says so.
    """
    found = []
    for audited in source.runs:
        prefix = f"{audited.name}: " if audited.name else ""
        nothing = summary.says_nothing.get(audited.name)
        found.append(nothing or prefix + " ".join(_sentences(audited, summary)))
    return found


def _sentences(audited: Audited, summary: ReportSummary) -> list[str]:
    lines = summary.arms[summary.arms["run"] == audited.name]
    free = lines[lines["regime"].isin(["box-free method", "box-free control"])]
    pruned = free[free["keep"] < 1.0]
    if pruned.empty:
        return ["No box-free arm prunes anything here: there is nothing to say about what pruning costs."]
    return [*_scores(audited, lines, pruned), *_evidence(audited, summary, lines, pruned)]


def _scores(audited: Audited, lines: pd.DataFrame, pruned: pd.DataFrame) -> list[str]:
    """Of answers in words what the budget with most arms leaves of the score, from the best arm to the worst."""
    if not audited.in_words or audited.full is None:
        return []
    budgets = _budgets(pruned)
    budget = budgets.value_counts().index[0]
    there = pruned[budgets == budget].sort_values("score", ascending=False, kind="stable")
    ends = [there.iloc[0]] if len(there) == 1 else [there.iloc[0], there.iloc[-1]]
    named = [f"{format_value(line['score'], 'score')} ({_pretty(str(line['arm_name']))})" for line in ends]
    full = lines.loc[lines["arm"] == audited.full, "score"].iloc[0]
    reached = " to ".join(named)
    return [f"Of Full's score of {format_value(full, 'score')}, box-free arms that keep {budget} reach {reached}."]


def _evidence(audited: Audited, summary: ReportSummary, lines: pd.DataFrame, pruned: pd.DataFrame) -> list[str]:
    """Which arms are right without the evidence, and whether accuracy or score shows it."""
    known = pruned[pruned["unsupported"].map(math.isfinite)]
    right = "correct yes answer" if audited.yes_or_no else "correct answer"
    if known.empty:
        return [f"No {right} has an annotated region: what it rests on cannot be told."]
    lost = known[known["unsupported_low"] > 0]
    if lost.empty:
        worst = top(known, known["unsupported_high"])
        return [
            f"No box-free arm is shown to answer right without the evidence: of the {right}s of "
            f"{worst['arm_name']}, the least certain, at most {share(worst['unsupported_high'])} have none left."
        ]
    # The budget at which most is lost, and there everybody who is known to lose something.
    budget = share(top(lost, lost["unsupported"])["keep"])
    there = known[_budgets(known) == budget]
    losing = there[there["unsupported_low"] > 0]
    verb = "keeps" if len(losing) == 1 else "keep"
    said = [f"{_named(losing)} {verb} {budget}: {_shares(losing)} of {right}s are unsupported, with no evidence left."]
    measure = "score" if audited.in_words else "accuracy"
    blind = [line for _, line in losing.iterrows() if _hidden(line, summary, measure)]
    if blind:
        names = listed([_pretty(str(line["arm_name"])) for line in blind], MOST_NAMED)
        said.append(f"{measure.capitalize()} does not tell: that of {names} cannot be told from Full's.")
    elif audited.full is not None:
        full = lines.loc[lines["arm"] == audited.full, measure].iloc[0]
        scores = [format_value(value, "score") for value in (losing[measure].min(), losing[measure].max())]
        span = scores[0] if scores[0] == scores[1] else "–".join(scores)
        said.append(f"Their {measure} is {span}, Full's {format_value(full, 'score')}.")
    safe = there[(there["unsupported_low"] <= 0) & (there["unsupported_high"] < losing["unsupported"].min())]
    if not safe.empty:
        said.append(f"{_named(safe)} at the same budget: {_shares(safe)} unsupported.")
    return said


def _budgets(lines: pd.DataFrame) -> pd.Series[str]:
    """The kept share of each arm in whole per cent: arms of one budget are compared with one another."""
    return lines["keep"].map(share)


def _hidden(line: pd.Series[Any], summary: ReportSummary, measure: str) -> bool:
    """Whether the arm's interval of accuracy or score allows no loss against Full."""
    change = summary.difference(str(line["arm"]), measure)
    return change is not None and bool(change["low"] <= 0 <= change["high"])


def _named(lines: pd.DataFrame) -> str:
    return listed([_pretty(str(name)) for name in lines["arm_name"]], MOST_NAMED)


def _pretty(arm_name: str) -> str:
    """``target_grid:0.3`` as a name in a sentence; what has arguments keeps them."""
    name = family(arm_name)
    return name if ":" in name else name.replace("_", " ").capitalize()


def _shares(lines: pd.DataFrame) -> str:
    low, high = share(lines["unsupported"].min()), share(lines["unsupported"].max())
    return low if low == high else f"{low.removesuffix('%')}–{high}"
