"""Every arm with an intervention and every other view of the image, beside the plain arm."""

from __future__ import annotations

import math

import pandas as pd

from sightline.core.probe import ORIGINAL
from sightline.core.table import Table
from sightline.report.columns import FEWER_DRAWS, build_table, has_other, metric_columns
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker, any_run_has
from sightline.rows.source import Source
from sightline.statistics.arm_rows import UNCHANGED
from sightline.statistics.metrics import metrics_shown_in
from sightline.statistics.summaries import arm_summary


@SECTIONS.register("interventions")
class AllInterventions(SectionMaker):
    id = "interventions"
    title = "All interventions"
    order = 170
    lead = "Every arm under an intervention and every other view of the image, beside the plain arm."
    needs = (any_run_has(has_other("intervention", UNCHANGED)), any_run_has(has_other("view", ORIGINAL)))

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: interventions_table(context.source, context.draws, context.seed))


def interventions_table(source: Source, draws: int, seed: int) -> Table | None:
    """Rows in which the mask or the image was changed on purpose, each beside the plain rows of its arm."""
    lines, fewer = [], min(draws, FEWER_DRAWS)
    names = [metric.name for metric in metrics_shown_in("interventions")]
    for audited in source.runs:
        if audited.others.empty:
            continue
        others = audited.others.assign(
            what=audited.others["intervention"].where(
                audited.others["intervention"] != UNCHANGED, audited.others["view"]
            )
        )
        for (arm, what), rows in others.groupby(["arm", "what"], sort=False):
            table = arm_summary(rows, metrics=names, draws=fewer, seed=seed).assign(
                arm=str(arm), intervention=str(what)
            )
            plain = audited.frame[(audited.frame["arm"] == arm) & audited.frame["image_id"].isin(rows["image_id"])]
            change = {f"margin_{a}": _mean_margin(rows, a) - _mean_margin(plain, a) for a in ("yes", "no")}
            lines.append(table.assign(arm=str(arm), intervention=str(what), **change))
    if not lines:
        return None
    frame = pd.concat(lines, ignore_index=True)
    metrics = metric_columns("interventions", frame)
    return build_table("interventions", frame, source, columns={"metrics": metrics}, fewer=fewer)


def _mean_margin(rows: pd.DataFrame, label: str) -> float:
    return float(rows.loc[rows["label"] == label, "margin"].mean()) if "margin" in rows else math.nan
