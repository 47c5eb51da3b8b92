"""What was saved where, as recorded while auditing."""

from __future__ import annotations

import pandas as pd

from sightline.core.table import Table, TableColumn
from sightline.errors import SightlineError
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.rows.source import Source
from sightline.statistics.summaries import arm_points

STAGES = {
    "preprocess_ms": "Preprocess",
    "vision_ms": "Vision",
    "boxes_ms": "Boxes",
    "signal_ms": "Signals",
    "select_ms": "Select",
    "materialise_ms": "Materialise",
    "language_ms": "Language",
}
READ = (
    "arm", "sequence_full", "sequence_pruned", "device", "keep", "probe_id", "image_id", "label", "correct", *STAGES
)  # fmt: skip
"""Columns that the table is made from."""
HELP = {"boxes_ms": "Text detector, once per image; a dash for arms that read no detected boxes."}


@SECTIONS.register("cost")
class Cost(SectionMaker):
    id = "cost"
    title = "Cost"
    order = 80
    lead = "What was saved where, as recorded while auditing."

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: cost_table(context.source))


def cost_table(source: Source) -> Table:
    """Mean milliseconds of each stage, as recorded by the run on the device it names."""
    records = []
    for audited in source.runs:
        for arm, rows in audited.frame[list(READ)].groupby("arm", sort=False):
            times = {stage: float(rows[stage].astype(float).mean()) for stage in STAGES}
            records.append(
                {
                    "arm": arm,
                    **arm_points(rows, ("keep",)),
                    "sequence_full": float(rows["sequence_full"].mean()),
                    "sequence_pruned": float(rows["sequence_pruned"].mean()),
                    **times,
                    "total": sum(v for v in times.values() if v == v),
                    "device": ", ".join(sorted({str(d) for d in rows["device"].unique()})),
                }
            )
    frame = pd.DataFrame(records)
    if frame[list(STAGES)].isna().all(axis=None):
        raise SightlineError("the run recorded no stage times")
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("keep", "Keep", "score"),
        TableColumn("sequence_full", "Prompt, full", "number", help="Mean tokens of the unpruned prompt."),
        TableColumn("sequence_pruned", "Prompt, pruned", "number", help="Mean tokens of the prompt that was run."),
        *(
            TableColumn(key, title, "number", help=HELP.get(key, ""))
            for key, title in STAGES.items()
            if key != "boxes_ms" or frame[key].notna().any()
        ),
        TableColumn("total", "Total", "number"),
        TableColumn("device", "Device"),
    ]
    devices = ", ".join(sorted(set(frame["device"])))
    caption = (
        f"Mean milliseconds per probe on {devices}, as recorded while auditing: preprocessing, vision and detecting "
        "boxes are paid once per image and shared, language time is a batch divided by its rows. This is bookkeeping, "
        "not a benchmark: exclusive timing needs a fresh process per arm."
    )
    return Table("cost", "Stage times", caption, columns, frame)
