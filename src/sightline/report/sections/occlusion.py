"""The evidence grayed in the image itself, against as large a box elsewhere."""

from __future__ import annotations

import pandas as pd

from sightline.analysis import interventions as computed
from sightline.core.table import Table, TableColumn
from sightline.report.columns import SUPPORT, amount, collect, first_choice, support_columns
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.rows.source import Source


@SECTIONS.register("occlusion")
class Occlusion(SectionMaker):
    id = "occlusion"
    title = "Occlusion"
    order = 120
    in_overview = True
    lead = "The evidence grayed in the image itself, against as large a box elsewhere."

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: occlusion_table(context.source, context.draws))


def occlusion_table(source: Source, draws: int) -> Table | None:
    """Target support on the original image, with the evidence grayed, and with as large a box grayed elsewhere."""

    def wanted(rows: pd.DataFrame) -> bool:
        return bool(rows["view"].isin(("evidence_masked", "random_masked")).any())

    found = collect(source, wanted, lambda run: computed.occlusion_table(run.rows, draws=draws))
    if found is None:
        return None
    frame, left_out = found
    arm = first_choice(source, frame)
    own = frame[(frame["arm"] == arm) & (frame["right"] == "evidence grayed")].set_index("left")
    taken, beyond = (own.loc[left] for left in ("original", "other box grayed"))
    changes = "lowers" if taken["pos_support_diff"] >= 0 else "raises"
    ends = "lower" if beyond["pos_support_diff"] >= 0 else "higher"
    reading = (
        f"On positives, graying the evidence {changes} the target support of {arm} by "
        f"{amount(taken, 'pos_support_diff')}, which leaves it {amount(beyond, 'pos_support_diff')} {ends} than "
        "graying another box does."
    )
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("compared", "First − second"),
        TableColumn("n", "Probes", "count"),
        *support_columns(),
    ]
    frame["compared"] = frame["left"] + " − " + frame["right"]
    caption = f"The image is grayed before it is encoded; the mask is chosen anew. {SUPPORT}"
    return Table(
        "occlusion", "Evidence occlusion", caption + left_out, columns, frame, reading=reading, repeated=("arm",)
    )
