"""Scores of answers in words over budgets: every selector with Full, and beside the controls of its own budget."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import pandas as pd
from markupsafe import Markup

from sightline.arms.plan import MATCHED
from sightline.report.charts import budget_curves, curves_by_selector
from sightline.report.panels import in_panels
from sightline.report.sections.base import SECTIONS, ChartGroup, Context, Section, SectionMaker
from sightline.report.sections.frontier import curve_name
from sightline.report.source import Audited
from sightline.report.table import Table, TableColumn
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_summary, paired_differences

ALL_TASKS = "all tasks"
CONTROLS = (*MATCHED, "resize")
"""Selectors that every method is shown beside at its own budget, where the run has them."""
CHART = (560.0, 320.0)
MEASURED = ("keep", "score")

Measured: TypeAlias = tuple[Audited, str, pd.DataFrame, pd.DataFrame]
"""A run, a task of it ("" for its only one), its rows of that task, and their ``arm_summary``."""


@SECTIONS.register("scores")
class ScoreOverBudgets(SectionMaker):
    id = "scores"
    title = "Score over budgets"
    order = 22
    lead = (
        "How much of the score each budget keeps, and whether a method keeps more than dropping tokens blindly, evenly, "
        "or showing the whole image smaller."
    )

    def fill(self, section: Section, context: Context) -> None:
        measured = [
            (audited, task, rows, arm_summary(rows, metrics=MEASURED, draws=context.draws, seed=context.seed))
            for audited in context.source.in_words
            for task, rows in _by_task(audited)
        ]
        for audited, task, _, lines in measured:
            chart = score_chart(lines.join(_facts(audited), on="arm"), audited.full)
            if chart is not None:
                title = " · ".join(part for part in (audited.name, task) if part)
                section.charts.append(ChartGroup(title, [chart]))
        if measured:
            section.add(lambda: scores_table(measured, context))


def _by_task(audited: Audited) -> Iterator[tuple[str, pd.DataFrame]]:
    """All rows of a run, then those of every task where there are several."""
    tasks = [str(task) for task in audited.frame["task"].dropna().unique()]
    yield (ALL_TASKS if len(tasks) > 1 else ""), audited.frame
    if len(tasks) > 1:
        for task in tasks:
            yield task or "no task named", audited.frame[audited.frame["task"] == task]


def _facts(audited: Audited) -> pd.DataFrame:
    """What a curve needs to know of an arm: its own name, regime, selector and budget."""
    return audited.frame.drop_duplicates("arm").set_index("arm")[["arm_name", "regime", "selector", "budget"]]


def score_chart(lines: pd.DataFrame, full: str | None) -> Markup | None:
    """Curves with 95% intervals, Full as the dashed line; None where nothing was pruned."""
    pruned = lines[lines["arm"] != full]
    if pruned.empty:
        return None
    named: list[dict[Any, Any]] = [{**line, "selector": curve_name(line)} for line in pruned.to_dict("records")]
    yardsticks = {curve_name(line) for line in pruned.to_dict("records") if line["selector"] in CONTROLS}
    curves = curves_by_selector(named, "score", intervals=True)
    drawn = [replace(curve, dashed=curve.label in yardsticks) for curve in curves]
    reference = lines.loc[lines["arm"] == full, "score"]
    return budget_curves(drawn, METRICS["score"].label, None if reference.empty else float(reference.iloc[0]), CHART)


def scores_table(measured: list[Measured], context: Context) -> Table:
    """One line per arm and task: its score, and how far it is from Full and from the controls of its budget."""
    parts = [
        lines.join(_distances(rows, audited.full, context), on="arm").assign(task=task or ALL_TASKS)
        for audited, task, rows, lines in measured
    ]
    frame = in_panels(pd.concat(parts, ignore_index=True), context.summary.facts)
    told = [f"to_{name}" for name in ("full", *CONTROLS) if f"to_{name}" in frame and frame[f"to_{name}"].notna().any()]
    several = frame["task"].nunique() > 1
    columns = [
        TableColumn("arm_name", "Arm"),
        *([TableColumn("task", "Task")] if several else []),
        TableColumn("n_probes", "Questions", "count"),
        TableColumn("keep", METRICS["keep"].label, "score"),
        TableColumn("score", METRICS["score"].label, "score", interval=True, help=METRICS["score"].help),
        *(TableColumn(name, f"− {_title(name)}", "signed", interval=True, help=_meaning(name)) for name in told),
    ]
    caption = (
        "Score is each task's own: soft accuracy for textvqa, ANLS for docvqa, OCRBench's rule for ocrbench, exact "
        "match for every other. Differences are paired by question, intervals resample images; a control is the "
        "first arm of its selector with the same budget."
    )
    if several:
        caption += f" In {ALL_TASKS} every question counts alike."
    return Table(
        "scores", "Scores by budget", caption, columns, frame, filter="task" if several else "", panel="panel",
        unprinted=("regime",),
    )  # fmt: skip


def _distances(rows: pd.DataFrame, full: str | None, context: Context) -> pd.DataFrame:
    """By arm: ``to_full``, ``to_random``, ``to_grid``, ``to_resize``, each with ``_low`` and ``_high``."""
    arms = rows.drop_duplicates("arm").set_index("arm")
    found: dict[str, dict[str, float]] = {str(arm): {} for arm in arms.index}

    def compare(name: str, reference: str, members: list[str]) -> None:
        own = rows[rows["arm"].isin([reference, *members])]
        made = paired_differences(own, reference, metrics=["score"], draws=context.draws, seed=context.seed)
        for line in made.to_dict("records"):
            if math.isfinite(line["diff"]):
                ends = {f"to_{name}_low": line["low"], f"to_{name}_high": line["high"]}
                found[line["arm"]] |= {f"to_{name}": line["diff"], **ends}

    others = [arm for arm in found if arm != full]
    if full is not None and others:
        compare("full", full, others)
    for budget in arms.loc[others, "budget"].unique():
        members = [arm for arm in others if arms.loc[arm, "budget"] == budget]
        for name in CONTROLS:
            control = next((arm for arm in members if arms.loc[arm, "selector"] == name), None)
            rivals = [arm for arm in members if arms.loc[arm, "selector"] != name]
            if control is not None and rivals:
                compare(name, control, rivals)
    return pd.DataFrame.from_dict(found, orient="index")


def _title(name: str) -> str:
    return name.removeprefix("to_").capitalize()


def _meaning(name: str) -> str:
    if name == "to_full":
        return "Score minus Full's on the same questions."
    return f"Score minus that of {name.removeprefix('to_')} at the same budget, on the same questions."
