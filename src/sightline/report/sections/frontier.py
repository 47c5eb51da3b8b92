"""Right answers against surviving evidence, one chart per run, and both over budgets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from markupsafe import Markup

from sightline.report.charts import NARROW, FrontierPoint, Glyph, budget_curves, curves_by_selector, frontier
from sightline.report.columns import ASSISTED, BOX_FREE, ORACLES, UNKNOWN, family, heading, panel_of
from sightline.report.sections.base import SECTIONS, ChartGroup, Context, Section, SectionMaker
from sightline.rows.source import Audited
from sightline.statistics.metrics import METRICS

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
            prefix = f"{audited.name}: " if audited.name else ""
            measures = _measures(audited)
            points = [_point(line, names[line["arm"]], line["arm"] in full, measures) for line in lines]
            if not any(np.isfinite(p.x) and np.isfinite(p.y) for p in points):
                section.notes.append(f"{prefix}no arm has both an accuracy and a coverage: the frontier has no points")
            else:
                arms = summary.arms[summary.arms["run"] == audited.name]
                x, y, colour = (heading(METRICS[name], arms) for name in measures)
                wide = frontier(points, x, y, colour, class_="chart only-wide")
                narrow = frontier(points, x, y, colour, size=NARROW, class_="chart only-narrow")
                section.charts.append(ChartGroup(audited.name, [wide, narrow]))
            if audited.in_words:
                continue  # Scores have a section of their own over budgets.
            curves = _curves([{**line, "selector": curve_name(line)} for line in lines], audited.full)
            if curves:
                section.charts.append(ChartGroup(f"{prefix}Over budgets", curves))


def _measures(audited: Audited) -> tuple[str, str, str]:
    """The metrics to the right, upwards and as colour."""
    quality = "score" if audited.in_words else "accuracy"
    return "pos_ecr", quality, "hfpr" if audited.yes_or_no else "unsupported"


def _point(line: dict[Any, Any], label: str, is_full: bool, measures: tuple[str, str, str]) -> FrontierPoint:
    def interval(metric: str) -> tuple[float, float] | None:
        low, high = line[f"{metric}_low"], line[f"{metric}_high"]
        return (low, high) if _finite(low) and _finite(high) else None

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


def _finite(value: Any) -> bool:
    return value is not None and math.isfinite(float(value))
