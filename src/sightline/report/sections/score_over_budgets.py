"""Scores of answers in words over budgets: every selector with Full, and beside the controls of its own budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd
from markupsafe import Markup

from sightline.analysis.comparison import ALL_TASKS, ArmPair, rows_in_words, score_changes
from sightline.arms.plan import MATCHED
from sightline.core.table import Table, TableColumn
from sightline.report.charts import budget_curves, curves_by_selector
from sightline.report.columns import in_panels
from sightline.report.sections.base import SECTIONS, ChartGroup, Context, Section, SectionMaker
from sightline.report.sections.frontier import curve_name
from sightline.rows.source import Audited
from sightline.rows.usable import cut_off
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_summary

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

    def fill(self, section: Section, context: Context) -> None:
        parts = []
        for audited in context.source.in_words:
            section.notes.extend(f"{audited.name}: {line}" if audited.name else line for line in cut_off(audited.frame))
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
    told = [f"to_{rival}" for rival in ("full", *CONTROLS) if f"to_{rival}" in frame]
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
        caption += f" In “{ALL_TASKS}” every task has the same weight, however many questions it has."
    return Table(
        "scores", "Scores by budget", caption, columns, frame, filter="task" if several else "", panel="panel",
        unprinted=("regime",),
    )  # fmt: skip


def _title(name: str) -> str:
    return name.removeprefix("to_").capitalize()


def _meaning(name: str) -> str:
    if name == "to_full":
        return "Score minus Full's on the same questions."
    return f"Score minus that of {name.removeprefix('to_')} at the same budget, on the same questions."
