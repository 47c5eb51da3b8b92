"""The report, section by section. A section that cannot be made keeps its place and says in one line why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup

from sightline.errors import SightlineError
from sightline.report.calibration import MOST_DIAGRAMS, flips_table, reliability_charts, thresholds_table
from sightline.report.charts import Point, budget_curves, curves_by_selector, frontier
from sightline.report.contract import contract_table, cost_table, runs_table
from sightline.report.geometry import strata_table
from sightline.report.source import Source
from sightline.report.summary import Summary
from sightline.report.table import Table
from sightline.report.tables import (
    calibration_table,
    differences_table,
    family,
    finite,
    geometry_table,
    provenance_table,
    seeds_table,
)


@dataclass(frozen=True)
class ChartGroup:
    title: str
    figures: list[Markup]


@dataclass(frozen=True)
class Part:
    """One of several things of a kind that a section shows in turn: facts, notes, charts, tables, in this order."""

    title: str
    facts: list[tuple[str, list[tuple[str, str]]]]
    """Named lists of (what, in words)."""
    notes: list[str]
    charts: list[ChartGroup]
    tables: list[Table]


@dataclass
class Section:
    """One heading with what stands under it: a sentence, notes, charts, pictures, tables, parts, in this order."""

    id: str
    title: str
    lead: str = ""
    notes: list[str] = field(default_factory=list)
    charts: list[ChartGroup] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: bool = False
    parts: list[Part] = field(default_factory=list)

    def all_tables(self) -> list[Table]:
        return [*self.tables, *(table for part in self.parts for table in part.tables)]

    def add(self, make: Callable[[], Table | None]) -> None:
        """Appends a table, or the one line that says why there is none."""
        try:
            table = make()
        except SightlineError as error:
            self.notes.append(str(error))
            return
        if table is not None:
            self.tables.append(table)


def contract_section(source: Source) -> Section:
    lead = "What each arm is, exactly: nothing below means anything without it."
    section = Section("contract", "Contract", lead)
    section.add(lambda: contract_table(source))
    section.add(lambda: runs_table(source))
    return section


def frontier_section(source: Source, summary: Summary) -> Section:
    lead = "Right answers upwards, surviving evidence to the right, false alarms on near-miss words as colour."
    section = Section("frontier", "Frontier", lead)
    full = {audited.full for audited in source.runs}
    for audited in source.runs:
        lines = summary.arms[summary.arms["run"] == audited.name].to_dict("records")
        names = dict(zip(audited.frame["arm"], audited.frame["arm_name"], strict=True))
        prefix = f"{audited.name}: " if audited.name else ""
        points = [_point(line, names[line["arm"]], line["arm"] in full) for line in lines]
        if not any(np.isfinite(p.x) and np.isfinite(p.y) for p in points):
            section.notes.append(f"{prefix}no arm has both an accuracy and a coverage: the frontier has no points")
        else:
            chart = frontier(points, "PosECR", "Accuracy", "hFPR")
            section.charts.append(ChartGroup(audited.name, [chart]))
        curves = _curves([{**line, "selector": family(names[line["arm"]])} for line in lines], audited.full)
        if curves:
            section.charts.append(ChartGroup(f"{prefix}Over budgets", curves))
    return section


def _point(line: dict[Any, Any], label: str, is_full: bool) -> Point:
    def interval(metric: str) -> tuple[float, float] | None:
        low, high = line[f"{metric}_low"], line[f"{metric}_high"]
        return (low, high) if finite(low) and finite(high) else None

    return Point(
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
    for metric, title in (("accuracy", "Accuracy"), ("hfpr", "hFPR"), ("pos_ecr", "PosECR")):
        curves = curves_by_selector(pruned, metric)
        if curves:
            charts.append(budget_curves(curves, title, None if reference is None else float(reference[metric])))
    return charts


def differences_section(source: Source, summary: Summary) -> Section:
    section = Section("differences", "Differences", "Each arm against its reference on the same probes.")
    section.add(lambda: differences_table(summary))
    section.notes += [note for note in summary.notes if note not in section.notes]
    section.add(lambda: seeds_table(summary, source))
    return section


def provenance_section(source: Source, draws: int, seed: int) -> Section:
    lead = "When the answer is right, was anything left to read it from?"
    section = Section("provenance", "Provenance", lead)
    section.add(lambda: provenance_table(source, draws, seed))
    return section


def pictures_section() -> Section:
    lead = "The image as the pruned prefix holds it. Filters look at the chosen arm, or at all arms together."
    return Section("pictures", "Pictures", lead, pictures=True)


def calibration_section(source: Source, summary: Summary) -> Section:
    lead = "Does pruning change what the model can tell apart, or only where it draws the line?"
    section = Section("calibration", "Calibration", lead)
    charts = reliability_charts(source)
    title = "Reliability: share of yes labels against p(yes)"
    if len(charts) < source.frame["arm"].nunique():
        title += f", first {MOST_DIAGRAMS} arms"
    section.charts.append(ChartGroup(title, charts))
    section.add(lambda: calibration_table(summary))
    section.add(lambda: thresholds_table(source))
    section.add(lambda: flips_table(source))
    return section


def geometry_section(source: Source, summary: Summary) -> Section:
    lead = "Coverage is only as sharp as the cells: precision and scale say how far to trust it."
    section = Section("geometry", "Geometry", lead)
    section.add(lambda: geometry_table(summary))
    section.add(lambda: strata_table(source))
    return section


def cost_section(source: Source) -> Section:
    section = Section("cost", "Cost", "What was saved where, as recorded while auditing.")
    section.add(lambda: cost_table(source))
    return section
