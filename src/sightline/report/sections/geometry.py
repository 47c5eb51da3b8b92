"""Is coverage a fair measure here? Precision beside recall, and coverage by the size of evidence and cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sightline.core.table import Table
from sightline.errors import SightlineError
from sightline.report.columns import fitting_columns, metric_columns, table_column, table_columns
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.report.summary import ReportSummary
from sightline.rows.source import Source
from sightline.statistics.arm_rows import are_positives, looked_up
from sightline.statistics.summaries import arm_points, metric_inputs

STRATA = {
    "evidence_area": "evidence area",
    "median_cell_area": "median cell area",
    "box_cell_ratio": "evidence area / cell area",
}
_TERTILES = ("smallest third", "middle third", "largest third")


@SECTIONS.register("geometry")
class GeometrySection(SectionMaker):
    id = "geometry"
    title = "Geometry"
    order = 70
    lead = "Coverage is only as sharp as the cells: precision and scale say how far to trust it."

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: geometry_table(context.summary))
        section.add(lambda: strata_table(context.source))


def geometry_table(summary: ReportSummary) -> Table:
    if summary.arms["pos_ecr"].isna().all():
        raise SightlineError("no positive probe has a region: there is no geometry to validate")
    columns = table_columns("arm", *metric_columns("geometry", summary.arms))
    caption = (
        "Coverage is recall: coarse cells inflate it. LPP is the share of touching kept cells that lies inside the "
        "regions; Geo-F1 is the mean harmonic mean of both."
    )
    return Table("geometry", "Geometry", caption, columns, summary.arms)


def _thirds(values: pd.Series[float]) -> pd.Series[int] | None:
    """Which third of them each value lies in; None where they are all alike: a fixed raster has a single cell area."""
    if values.empty or values.max() - values.min() <= 1e-12:
        return None
    return pd.Series(np.searchsorted(np.quantile(values, [1 / 3, 2 / 3]), values, side="left"), index=values.index)


def strata_table(source: Source) -> Table:
    """Coverage and accuracy, or score, on positives by tertile of evidence area, cell area and their ratio.

    Boundaries are the 1/3 and 2/3 quantiles over the probes; a value on a boundary belongs to the lower side.
    """
    records: list[dict[str, Any]] = []
    for audited in source.runs:
        sizes = audited.scales
        concerned = (are_positives(audited.frame) & audited.frame["probe_id"].isin(sizes.index)).to_numpy()
        # One index for all three: looking names up in one costs more memory than what is looked up.
        chosen = sizes.loc[sizes.index.isin(audited.frame["probe_id"].array[concerned].unique())]
        thirds = {title: _thirds(chosen[key]) for key, title in STRATA.items()}
        inputs, arms = audited.frame[metric_inputs(audited.frame)], audited.frame["arm"].to_numpy()
        quality = ("score", "accuracy") if audited.in_words else ("accuracy",)
        for arm in audited.arms:  # one after the other: all of them at once would be most of the rows once more
            positive = inputs[concerned & (arms == arm)]
            for title, where in thirds.items():
                if where is None:
                    continue
                for third, rows in positive.groupby(looked_up(positive["probe_id"], where), sort=False):
                    place = int(str(third))
                    records.append(
                        {
                            "arm": arm,
                            "by": title,
                            "stratum": _TERTILES[place],
                            "third": place,
                            "probes": len(rows),
                            **arm_points(rows, (*quality, "pos_ecr", "lpp")),
                        }
                    )
    if not records:
        raise SightlineError("no positive probe has a region: coverage cannot be split by evidence size")
    frame = pd.DataFrame(records)
    order = {arm: i for i, arm in enumerate(source.frame["arm"].unique())}
    frame = frame.sort_values(["arm", "by", "third"], key=lambda c: c.map(order) if c.name == "arm" else c)
    asked = "Positives" if source.yes_or_no else "Questions"
    columns = table_columns(
        "arm by stratum",
        table_column("probes", title=asked),
        *(["score"] if source.in_words else []),
        "accuracy pos_ecr lpp",
    )
    caption = (
        f"{asked} in thirds of equal count. Coverage that rises with cell size alone is inflation by coarse cells; "
        "precision (LPP) falls with it."
    )
    return Table(
        "scale_strata",
        "Coverage by scale",
        caption,
        fitting_columns(source, columns, frame),
        frame.reset_index(drop=True),
        filter="by",
        repeated=("arm", "by"),
    )
