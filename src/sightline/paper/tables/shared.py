"""Columns and measures that several tables share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sightline.errors import SightlineError
from sightline.paper.cut import judged
from sightline.paper.table import Line, Measure, Measured
from sightline.report.table import TableColumn
from sightline.statistics.plain_rows import plain_rows

if TYPE_CHECKING:
    from sightline.paper.study import Study

COUNT = TableColumn("n", "n", "count")


def metrics_of(*names: str) -> Measure:
    """The metrics of the line's arm, at its threshold."""

    def measure(study: Study, line: Line) -> list[Measured]:
        return cells(arm_line(study, line, names), names)

    return measure


def counted_metrics(*names: str) -> Measure:
    """The number of probes, then the metrics of the line's arm."""

    def measure(study: Study, line: Line) -> list[Measured]:
        found = arm_line(study, line, names)
        return [Measured(float(found["n_probes"])), *cells(found, names)]

    return measure


def arm_line(study: Study, line: Line, names: tuple[str, ...]) -> Any:
    """One arm of ``arm_summary`` at the line's threshold; refused where it has not been measured."""
    rows = plain_rows(judged(study, line.model, line.probes, line.cut, line.box_source))
    table = study.summary(rows, names, (line.model, line.probes, line.box_source, line.cut))
    arm = study.arm(line.model, line.arm)
    if arm not in table.index:
        raise SightlineError(f"{line.arm} has not been measured")
    return table.loc[arm]


def cells(found: Any, names: tuple[str, ...]) -> list[Measured]:
    return [Measured(found[name], found[f"{name}_low"], found[f"{name}_high"]) for name in names]
