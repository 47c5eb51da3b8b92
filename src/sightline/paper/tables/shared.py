"""Columns and measures that several tables share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sightline.core.table import TableColumn
from sightline.paper.cut import judged
from sightline.paper.paper_table import Line, Measure, Measured

if TYPE_CHECKING:
    from sightline.paper.study import Study

RANDOM_30, RANDOM_40 = "random:0.3:seed=17", "random:0.4:seed=17"
"""Of the confirmation set: its scripts passed 17 where the artifact's profile would draw with 13."""
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
    """The line's arm in ``arm_summary`` at its threshold; refused where it has not been measured."""
    rows = judged(study, line.model, line.probes, line.cut, line.box_source, line.scorer)
    key = (line.model, line.probes, line.box_source, line.scorer, line.cut)
    return study.summary(rows, study.arm(line.model, line.arm), names, key)


def image_count(study: Study, line: Line) -> int:
    rows = judged(study, line.model, line.probes, line.cut, line.box_source, line.scorer)
    return int(rows["image_id"].nunique())


def cells(found: Any, names: tuple[str, ...]) -> list[Measured]:
    return [Measured(found[name], found[f"{name}_low"], found[f"{name}_high"]) for name in names]
