"""Right answers against surviving evidence, one chart per run, both over budgets, and scores of answers in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from sightline.analysis.comparison import ALL_TASKS, ArmPair, rows_in_words, score_changes
from sightline.arms.arm import MATCHED
from sightline.core.table import Table, TableColumn
from sightline.report.charts import NARROW, WIDE, FrontierPoint, Glyph, budget_curves, curves_by_selector, frontier
from sightline.report.columns import (
    ASSISTED,
    BOX_FREE,
    ORACLES,
    UNKNOWN,
    HandedOver,
    build_table,
    column_of,
    family,
    heading,
    in_panels,
    panel_of,
)
from sightline.report.sections.base import SECTIONS, ChartGroup, Context, Section, SectionMaker, answers_in_words
from sightline.rows.reader import truncation_note
from sightline.rows.source import Audited
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_summary

GLYPHS: dict[str, tuple[Glyph, str]] = {
    BOX_FREE: ("circle", "box-free"),
    ASSISTED: ("square", "detector-assisted"),
    ORACLES: ("triangle", "oracle: reads annotated boxes"),
    UNKNOWN: ("cross", "what it reads is not known"),
}


@SECTIONS.register("frontier")
class Frontier(SectionMaker):
    id = "frontier"
    title = "Frontier"
    order = 20
    lead = (
        "Right answers upwards, surviving evidence to the right, false alarms on near-miss words as colour. The shape "
        "says what an arm was allowed to read: oracles are diagnostics, not a deployable ranking."
    )
    lead_of_words = lead.replace("false alarms on near-miss words", "the share of right answers without any evidence")

    def fill(self, section: Section, context: Context) -> None:
        source, summary = context.source, context.summary
        if not source.yes_or_no:
            section.lead = self.lead_of_words
        full = {audited.full for audited in source.runs}
        for audited in source.runs:
            lines = summary.arms[summary.arms["run"] == audited.name].to_dict("records")
            names = {shown: own for own, shown in audited.shown_arms.items()}
            measures = measures_of(audited.in_words, audited.yes_or_no)
            points = [_point(line, names[line["arm"]], line["arm"] in full, measures) for line in lines]
            if not any(np.isfinite(p.x) and np.isfinite(p.y) for p in points):
                nothing = "no arm has both an accuracy and a coverage: the frontier has no points"
                section.notes.append(audited.said(nothing))
            else:
                arms = summary.arms[summary.arms["run"] == audited.name]
                x, y, colour = (heading(METRICS[name], arms) for name in measures)
                section.charts.append(ChartGroup(audited.name, frontier_charts(points, x, y, colour)))
            if audited.in_words:
                continue  # Scores have a section of their own over budgets.
            curves = _curves([{**line, "selector": curve_name(line)} for line in lines], audited.full)
            if curves:
                section.charts.append(ChartGroup(audited.said("Over budgets"), curves))


def measures_of(in_words: bool, yes_or_no: bool) -> tuple[str, str, str]:
    """The metrics to the right, upwards and as colour."""
    return "pos_ecr", "score" if in_words else "accuracy", "hfpr" if yes_or_no else "unsupported"


def frontier_charts(points: Sequence[FrontierPoint], x: str, y: str, colour: str) -> list[Markup]:
    """For desk and telephone."""
    sizes = {"chart only-wide": WIDE, "chart only-narrow": NARROW}
    return [frontier(points, x, y, colour, size, class_) for class_, size in sizes.items()]


def _point(line: dict[Any, Any], label: str, is_full: bool, measures: tuple[str, str, str]) -> FrontierPoint:
    def interval(metric: str) -> tuple[float, float] | None:
        low, high = line[f"{metric}_low"], line[f"{metric}_high"]
        known = all(end is not None and math.isfinite(float(end)) for end in (low, high))
        return (low, high) if known else None

    coverage, quality, risk = measures
    return FrontierPoint(
        "Full" if is_full else label + (" (oracle)" if line["regime"] == "oracle" else ""),
        line[coverage],
        line[quality],
        line[risk],
        interval(coverage),
        interval(quality),
        *("diamond", "Full") if is_full else GLYPHS[panel_of(line["regime"])],
    )


def curve_name(line: dict[Any, Any]) -> str:
    """Arms that differ in nothing but their budget; an oracle is never joined to what is none."""
    return family(line["arm_name"]) + (" (oracle)" if line["regime"] == "oracle" else "")


def _curves(lines: list[dict[Any, Any]], full: str | None) -> list[Markup]:
    """Accuracy, risk and coverage over the kept fraction, where a selector ran at more than one budget."""
    reference = next((line for line in lines if line["arm"] == full), None)
    pruned = [line for line in lines if line["arm"] != full]
    charts = []
    for metric in ("accuracy", "hfpr", "pos_ecr"):
        curves = curves_by_selector(pruned, metric)
        if curves:
            charts.append(
                budget_curves(curves, METRICS[metric].label, None if reference is None else float(reference[metric]))
            )
    return charts


CONTROLS = (*MATCHED, "resize")
"""Selectors that every method is shown beside at its own budget, where the run has them."""
CHART, NARROW_CHART = (520.0, 310.0), (360.0, 320.0)


@SECTIONS.register("scores")
class ScoreOverBudgets(SectionMaker):
    id = "scores"
    title = "Score over budgets"
    order = 22
    lead = (
        "How much of the score each budget keeps, and whether a method keeps more than dropping tokens blindly, "
        "evenly, or showing the whole image smaller."
    )
    needs = (answers_in_words,)

    def fill(self, section: Section, context: Context) -> None:
        parts = []
        for audited in context.source.in_words:
            section.notes.extend(map(audited.said, truncation_note(audited.frame)))
            lines = pd.concat(_by_task(audited, context), ignore_index=True)
            several = lines["task"].nunique() > 1
            drawn = [
                chart
                for task, own in lines.groupby("task", sort=False)
                for chart in score_charts(own, audited.full, str(task) if several else "")
            ]
            if drawn:
                section.charts.append(ChartGroup(audited.name, drawn))
            parts.append(_beside_controls(audited, lines, context))
        if parts:
            section.add(lambda: scores_table(pd.concat(parts, ignore_index=True), context))


def _by_task(audited: Audited, context: Context) -> Iterator[pd.DataFrame]:
    """``arm_summary`` of every task's rows, with what a curve needs to know of an arm."""
    facts = audited.frame.drop_duplicates("arm").set_index("arm")[["arm_name", "regime", "selector", "budget"]]
    rows = rows_in_words(audited.frame).assign(arm=audited.frame["arm"])
    for task, own in rows.groupby("task", sort=False):
        lines = arm_summary(own, metrics=["keep", "score"], draws=context.draws, seed=context.seed)
        yield lines.assign(task=task).join(facts, on="arm")


def score_charts(lines: pd.DataFrame, full: str | None, task: str) -> list[Markup]:
    """Curves with 95% intervals, Full as the dashed line, for desk and telephone; none where nothing was pruned.

    ``task`` names one of several.
    """
    pruned: list[dict[Any, Any]] = lines[lines["arm"] != full].to_dict("records")
    if not pruned:
        return []
    yardsticks = {curve_name(line) for line in pruned if line["selector"] in CONTROLS}
    named = [{**line, "selector": curve_name(line)} for line in pruned]
    curves = [
        replace(curve, dashed=curve.label in yardsticks) for curve in curves_by_selector(named, "score", intervals=True)
    ]
    reference = lines.loc[lines["arm"] == full, "score"]
    title = METRICS["score"].label + (f", {task}" if task else "")
    level = None if reference.empty else float(reference.iloc[0])
    sizes = {"chart only-wide": CHART, "chart only-narrow": NARROW_CHART}
    return [budget_curves(curves, title, level, size, class_) for class_, size in sizes.items()]


def _beside_controls(audited: Audited, lines: pd.DataFrame, context: Context) -> pd.DataFrame:
    """The lines with ``to_full``, ``to_random``, ``to_grid`` and ``to_resize``: score minus theirs, with intervals.

    Where there are several tasks, a line per arm is added over all of them, each task with the same weight.
    """
    rows = rows_in_words(audited.frame)
    arms = rows.drop_duplicates("arm").set_index("arm")[["selector", "budget"]]
    full = next((str(arm) for arm, fact in arms.iterrows() if fact["selector"] == "full"), None)
    names = audited.shown_arms
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for rival in ("full", *CONTROLS):
        pairs = [pair for arm in arms.index if (pair := _pair(str(arm), rival, arms, full)) is not None]
        if not pairs:
            continue
        for record in score_changes(rows, pairs, unit="image", draws=context.draws, seed=context.seed):
            line = found.setdefault((names[record["arm"]], record["task"]), {})
            line |= {f"to_{rival}{end}": record[f"change{end}"] for end in ("", "_low", "_high")}
    beside = pd.DataFrame.from_dict(found, orient="index")
    if beside.empty:
        return lines
    beside.index = pd.MultiIndex.from_tuples(beside.index, names=["arm", "task"])
    overall = beside[beside.index.get_level_values("task") == ALL_TASKS].reset_index()
    if len(overall):
        own = lines.groupby("arm", sort=False).agg(
            n_probes=("n_probes", "sum"), keep=("keep", "mean"), score=("score", "mean")
        )
        overall = own.join(overall.set_index("arm")).assign(task=ALL_TASKS).reset_index()
    return pd.concat([overall, lines.join(beside, on=["arm", "task"])], ignore_index=True)


def _pair(arm: str, rival: str, arms: pd.DataFrame, full: str | None) -> ArmPair | None:
    """The arm and what it is compared with: Full, or the first arm of a control that has its budget."""
    if arm == full or arms.at[arm, "selector"] == rival:
        return None
    if rival == "full":
        return None if full is None else ArmPair(arm, full)
    same = arms[(arms["selector"] == rival) & (arms["budget"] == arms.at[arm, "budget"])]
    return None if same.empty else ArmPair(arm, str(same.index[0]))


def scores_table(lines: pd.DataFrame, context: Context) -> Table:
    """One line per arm and task: its score, and how far it is from Full and from the controls of its budget."""
    frame = in_panels(lines.drop(columns=["arm_name", "regime"], errors="ignore"), context.summary.facts)
    several = frame["task"].nunique() > 1
    meanings = {"full": "Score minus Full's on the same questions."}
    for rival in CONTROLS:
        meanings[rival] = f"Score minus that of {rival} at the same budget, on the same questions."
    changes = [
        TableColumn(f"to_{rival}", f"− {rival.capitalize()}", "signed", interval=True, help=meaning)
        for rival, meaning in meanings.items()
        if f"to_{rival}" in frame
    ]
    weights = f" In “{ALL_TASKS}” every task has the same weight, however many questions it has." if several else ""
    columns: HandedOver = {"task": ["task"] if several else [], "score": [column_of(METRICS["score"]), *changes]}
    return build_table("scores", frame, columns=columns, weights=weights, filter="task" if several else "")
