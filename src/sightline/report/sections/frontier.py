"""Right answers against surviving evidence, one chart per run, and both over budgets."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from markupsafe import Markup

from sightline.report.charts import FrontierPoint, budget_curves, curves_by_selector, frontier
from sightline.report.sections.base import SECTIONS, ChartGroup, Context, Section, SectionMaker
from sightline.statistics.metrics import METRICS


@SECTIONS.register("frontier")
class Frontier(SectionMaker):
    id = "frontier"
    title = "Frontier"
    order = 20
    lead = "Right answers upwards, surviving evidence to the right, false alarms on near-miss words as colour."

    def fill(self, section: Section, context: Context) -> None:
        source, summary = context.source, context.summary
        full = {audited.full for audited in source.runs}
        for audited in source.runs:
            lines = summary.arms[summary.arms["run"] == audited.name].to_dict("records")
            names = dict(zip(audited.frame["arm"], audited.frame["arm_name"], strict=True))
            prefix = f"{audited.name}: " if audited.name else ""
            points = [_point(line, names[line["arm"]], line["arm"] in full) for line in lines]
            if not any(np.isfinite(p.x) and np.isfinite(p.y) for p in points):
                section.notes.append(f"{prefix}no arm has both an accuracy and a coverage: the frontier has no points")
            else:
                chart = frontier(points, *(METRICS[name].label for name in ("pos_ecr", "accuracy", "hfpr")))
                section.charts.append(ChartGroup(audited.name, [chart]))
            curves = _curves([{**line, "selector": family(names[line["arm"]])} for line in lines], audited.full)
            if curves:
                section.charts.append(ChartGroup(f"{prefix}Over budgets", curves))


def _point(line: dict[Any, Any], label: str, is_full: bool) -> FrontierPoint:
    def interval(metric: str) -> tuple[float, float] | None:
        low, high = line[f"{metric}_low"], line[f"{metric}_high"]
        return (low, high) if _finite(low) and _finite(high) else None

    return FrontierPoint(
        "Full" if is_full else label,
        line["pos_ecr"],
        line["accuracy"],
        line["hfpr"],
        interval("pos_ecr"),
        interval("accuracy"),
        is_full,
    )


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


def family(arm_name: str) -> str:
    """An arm without its budget: ``scope:0.4:alpha=0`` and ``scope:0.3:alpha=0`` are both ``scope:alpha=0``."""
    parts = arm_name.split(":")
    if len(parts) > 1 and re.fullmatch(r"[\d.eE+-]+t?", parts[1]):
        del parts[1]
    return ":".join(parts)


def _finite(value: Any) -> bool:
    return value is not None and math.isfinite(float(value))
