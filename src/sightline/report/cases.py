"""Which probes are shown as pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import pandas as pd

from sightline.answering.answer_scores import normalised
from sightline.arms.arm import MATCHED
from sightline.rows.source import Audited, Source
from sightline.statistics.arm_rows import BoolArray, are_positives
from sightline.statistics.correct_positives import has_little_evidence, has_no_evidence, unsupported_rows

# Answers in words beside Full's on the same question: what became of each, and what was left of its evidence.

UNCHANGED, LOST, GAINED, OTHERWISE = "unchanged", "lost", "gained", "otherwise"
CHANGES = {UNCHANGED: "unchanged", LOST: "changed to wrong", GAINED: "changed to right", OTHERWISE: "changed otherwise"}
"""What became of an answer -> in words. Otherwise: to another answer that is no more and no less right."""
KEPT, PARTLY, NONE, UNTRACED = "kept", "partly", "none", "untraced"
EVIDENCE = {KEPT: "evidence kept", PARTLY: "kept in part", NONE: "none kept", UNTRACED: "no region"}
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


TOLD_BY_PAIRS = ("probe_id", "arm", "said", "selector", "budget", "regime", "anchor_ecr", "unsupported")
"""Columns of marked rows that two arms of one probe are compared by."""
MARKED_BY = (
    "arm", "probe_id", "label", "score", "selector", "budget", "regime", "predicted", "correct", "ecr", "anchor_ecr",
    "margin", "threshold", "reference_predicted", "reference_margin", "full_ecr",
)  # fmt: skip
"""Columns that marks of answers with yes or no are made from."""
NEARLY_ALIKE = 0.25
"""Margins that differ by no more than this share of the smaller one."""


@dataclass(frozen=True)
class Case:
    """One probe with the arm that makes it worth a look."""

    probe_id: str
    run: int
    featured: str
    """The arm the case was chosen for."""
    beside: str = ""
    """Of a case that tells a story: the arm that gives the same answer with the evidence, or Full, whose answer went
    with it."""


def choose_cases(source: Source, limit: int, *, between_runs: bool = False, also: Sequence[Case] = ()) -> list[Case]:
    """At most ``limit`` probes, arms taking turns: unsupported answers first, then flips, then low coverage.

    Among answers in words, wrong ones that the model was sure of come before those that are other than Full's.

    The first case is a correct answer with zero coverage whenever the runs contain one, if they can with an arm beside
    it that answers alike and kept the evidence; else, among answers in words, one that went with its evidence, beside
    Full's. ``between_runs`` is for a comparison: the arms of the second run lead,
    answers that differ from the first run's come before everything else. ``also`` are cases that stand second.
    """
    if limit < 1:
        return []
    queues: list[list[Case]] = []
    first: tuple[tuple[bool, int, float], Case] | None = None
    told: tuple[tuple[bool, ...], float, Case] | None = None
    for index, audited in enumerate(source.runs):
        if between_runs and index == 0:
            continue
        telling_flag = "flip" if between_runs else "unsupported"
        columns = ["probe_id", "rank", "strength", "seen", "regime", "selector", telling_flag]
        candidates = []
        for arm, rows in marked_arms(audited, flips_first=between_runs):
            if not between_runs:
                candidates.append(pair_candidates(rows))
            if arm == audited.full and len(audited.arms) > 1 and not between_runs:
                continue  # Full loses nothing: it is shown beside the others, never as the point of a case.
            ranked = rows[columns].sort_values(["rank", "strength"], ascending=[True, False], kind="stable")
            # Probes of one arm differ, so that no queue gives more of them than are shown.
            queues.append([Case(str(p), index, str(arm)) for p in ranked["probe_id"].iloc[:limit]])
            telling = ranked[ranked[telling_flag]]
            if not telling.empty:
                best = telling.iloc[0]
                score = (bool(best["seen"]), -standing(best["regime"], best["selector"]), float(best["strength"]))
                if first is None or score > first[0]:
                    first = (score, Case(str(best["probe_id"]), index, str(arm)))
        pair = telling_pair(pd.concat(candidates), index) if candidates else None
        if pair is not None and (told is None or pair[:2] < told[:2]):
            told = pair
    lost = None if told or first or between_runs else lost_pair(source)
    leading = told[2] if told else first[1] if first else lost
    order = chain(
        [leading] if leading else [], also, (c for turn in zip_longest(*queues) for c in turn if c is not None)
    )
    chosen: dict[tuple[str, int], Case] = {}
    for case in order:
        # Runs over the same probes share a case: its panels show the arms of all of them.
        chosen.setdefault((case.probe_id, 0 if source.same_probes else case.run), case)
        if len(chosen) >= limit:
            break
    return list(chosen.values())


def pair_candidates(marked: pd.DataFrame) -> pd.DataFrame:
    """Those of marked rows that may be one of a pair (``telling_pair``), with what pairs are compared by."""
    columns = [name for name in (*TOLD_BY_PAIRS, "margin", "answer_loss") if name in marked]
    right = are_positives(marked) & marked["correct"] & marked["seen"]
    return marked.loc[right & (_kept_it(marked) | _lost_it(marked)), columns]


def _kept_it(rows: pd.DataFrame) -> pd.Series[bool]:
    return (rows["regime"] == "box-free method") & ~has_little_evidence(rows["anchor_ecr"])


def _lost_it(rows: pd.DataFrame) -> pd.Series[bool]:
    return rows["unsupported"] & rows["regime"].isin(["box-free method", "box-free control"])


def telling_pair(right: pd.DataFrame, run: int) -> tuple[tuple[bool, ...], float, Case] | None:
    """The probe on which a method and another box-free arm are right alike, one with the evidence and one without.

    Returns what the best pair is chosen by, smallest first: whether the arm without evidence is other than the
    controls that every method is shown beside, whether the margins (of answers in words: the losses) are far apart,
    whether budgets differ, and how far they are apart relative to the smaller one. None where no probe has such a
    pair.
    """
    measure = next((name for name in ("margin", "answer_loss") if name in right), None)
    pairs = right[_kept_it(right)].merge(right[_lost_it(right)], on="probe_id", suffixes=("_kept", "_gone"))
    pairs = pairs[pairs["said_kept"] == pairs["said_gone"]]
    if pairs.empty:
        return None
    apart = pd.Series(0.0, index=pairs.index)
    if measure is not None:
        both = pairs[[f"{measure}_kept", f"{measure}_gone"]].astype(float)
        apart = ((both.iloc[:, 0] - both.iloc[:, 1]) / both.abs().min(axis=1)).abs().fillna(np.inf)
    pairs = pairs.assign(
        far=apart > NEARLY_ALIKE,
        unmatched=~pairs["selector_gone"].isin(MATCHED),
        unlike=pairs["budget_kept"] != pairs["budget_gone"],
        apart=apart,
    )
    order = ["unmatched", "far", "unlike"]
    best = pairs.sort_values([*order, "apart"], kind="stable").iloc[0]
    case = Case(str(best["probe_id"]), run, str(best["arm_gone"]), str(best["arm_kept"]))
    return tuple(bool(best[name]) for name in order), float(best["apart"]), case


def lost_pair(source: Source) -> Case | None:
    """Among answers in words one that an arm lost with all of its evidence, beside Full's; the surest of box-free arms.

    None where no run has one.
    """
    for index, audited in enumerate(source.runs):
        if not audited.in_words or audited.full is None:
            continue
        marked = mark_words(audited, flips_first=False)
        gone = marked[(marked["change"] == LOST) & (marked["evidence"] == NONE) & marked["seen"]]
        if not gone.empty:
            best = gone.assign(oracle=gone["regime"] == "oracle").sort_values(["oracle", "answer_loss"]).iloc[0]
            return Case(str(best["probe_id"]), index, str(best["arm"]), audited.full)
    return None


def standing(regime: object, selector: str) -> int:
    """Whose case is shown first, smallest: methods, the controls matched to them, other controls, then oracles.

    A selector that is not installed here has no regime and is taken for a method.
    """
    if regime == "box-free control":
        return 1 if selector in MATCHED else 2
    return 3 if regime in ("full", "oracle", "replay") else 0


def marked_arms(audited: Audited, flips_first: bool) -> Iterator[tuple[str, pd.DataFrame]]:
    """``mark_rows`` arm by arm: marks of all rows at once would be most of a report's memory."""
    if audited.in_words:
        yield from ((str(arm), rows) for arm, rows in mark_words(audited, flips_first).groupby("arm", sort=False))
        return
    told = replace(audited, frame=audited.frame[[name for name in MARKED_BY if name in audited.frame]])
    arms = audited.frame["arm"].array
    for arm in audited.arms:
        yield str(arm), mark_rows(told, flips_first, np.asarray(arms == arm))


def mark_rows(audited: Audited, flips_first: bool = False, which: BoolArray | None = None) -> pd.DataFrame:
    """Plain rows with ``unsupported`` (a metric's name), ``low`` coverage, ``flip`` (unlike its reference), ``said``.

    ``rank`` orders rows within an arm by how much they tell, ``strength`` breaks ties by how far the
    margin lies from the threshold. ``which`` rows are meant; all, if it is not given.
    """
    if audited.in_words:
        marked = mark_words(audited, flips_first)
        return marked if which is None else marked[which]
    rows = audited.frame.copy(deep=False) if which is None else audited.frame[which]
    rows["said"] = rows["predicted"]
    rows["unsupported"] = unsupported_rows(rows)
    rows["low"] = are_positives(rows) & has_little_evidence(rows["ecr"])
    known = rows["reference_predicted"].notna()
    rows["flip"] = known & (rows["predicted"] != rows["reference_predicted"])
    margin = rows["margin"] if "margin" in rows else pd.Series(np.nan, index=rows.index)
    beyond = margin - rows["threshold"] if "threshold" in rows else margin
    change = (margin - rows["reference_margin"]).abs().fillna(beyond.abs())
    # Evidence that a crop took away before any pruning is no fault of the selector: it waits behind flips.
    rows["seen"] = ~has_no_evidence(rows["full_ecr"])
    telling = [rows["unsupported"] & rows["seen"], rows["flip"], rows["unsupported"], rows["low"] & rows["correct"]]
    rows["rank"] = np.select(telling, [1, 0, 2, 3] if flips_first else [0, 1, 2, 3], 4).astype(np.int8)
    rows["strength"] = np.where(rows["unsupported"], beyond.abs(), change)
    return rows


def mark_words(audited: Audited, flips_first: bool) -> pd.DataFrame:
    """The same of answers in words, with ``confident`` (sure of a wrong answer), ``change`` and ``evidence``.

    Strength is how sure the model was of what it said, or how far the score fell where the answer only changed, those
    without any evidence first.
    """
    rows = with_changes(audited.frame)
    rows["said"] = rows["predicted"].map(normalised)
    rows["unsupported"] = unsupported_rows(rows)
    rows["low"] = has_little_evidence(rows["ecr"])
    rows["flip"] = ~rows["change"].isin(["", UNCHANGED])
    rows["confident"] = confident_wrong(rows)
    rows["seen"] = ~has_no_evidence(rows["full_ecr"])
    telling = [
        rows["unsupported"] & rows["seen"],
        rows["confident"] & rows["flip"],
        rows["flip"],
        rows["unsupported"] | rows["confident"],  # Full is as blind, or as wrong: no fault of the selector.
        rows["low"] & rows["correct"],
    ]
    rows["rank"] = np.select(telling, [2, 0, 1, 3, 4] if flips_first else [0, 1, 2, 3, 4], 5).astype(np.int8)
    fall = (rows["reference_score"] - rows["score"]).abs().fillna(0.0) + (rows["evidence"] == NONE)
    rows["strength"] = np.where(rows["unsupported"] | rows["confident"], -rows["answer_loss"], fall)
    return rows
