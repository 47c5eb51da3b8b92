"""Tokens of the evidence taken out of the mask and put back; evidence kept alone against removed."""

from __future__ import annotations

import math

import pandas as pd

from sightline.analysis import deletion_table as computed
from sightline.report.by_run import collect, has_intervention, has_selectors, signed, top
from sightline.report.metric_columns import metric_column
from sightline.report.overview import share
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.report.source import Source
from sightline.report.support_columns import SUPPORT, support_columns
from sightline.report.table import Table, TableColumn

VARIANTS = {"selected": "as selected", "remove_evidence": "evidence removed"}


@SECTIONS.register("deletion")
class Deletion(SectionMaker):
    id = "deletion"
    title = "Deletion"
    order = 110
    lead = "Tokens of the evidence taken out of the prefix and put back: does the answer follow?"

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: deletion_table(context.source, context.draws))
        section.add(lambda: logit_drop_table(context.source, context.draws))


def deletion_table(source: Source, draws: int) -> Table | None:
    """What removing the evidence from a mask costs, and how much of that each restoration brings back."""
    found = collect(
        source, has_intervention("remove_evidence"), lambda run: computed.deletion_table(run.rows, draws=draws)
    )
    if found is None:
        return None
    frame, left_out = found
    reading = _deletion_reading(frame)
    frame["variant"] = frame["variant"].map(_variant)
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("variant", "Mask"),
        TableColumn("n", "Probes", "count"),
        *map(metric_column, ("keep", "accuracy")),
        TableColumn("change", "Change from selected", "signed", interval=True),
        TableColumn("recovery", "Recovery", "percent", help="(accuracy − removed) / (selected − removed)"),
        *map(metric_column, ("hfpr", "pos_ecr", "neg_src")),
    ]
    caption = (
        "Every kept token that touches the evidence is dropped, then a share of them comes back, or as many others. "
        "Recovery is a dash where removal left accuracy as it was; where removal helped, 100% is the lower accuracy. "
        "On negatives the evidence is the confusable word."
    ) + source.answers_at
    return Table("deletion", "Deletion and restoration", caption + left_out, columns, frame, reading=reading)


def _variant(name: str) -> str:
    kind, _, part = name.partition("=")
    if not part:
        return VARIANTS.get(name, name)
    what = {"restore_evidence": "evidence back", "restore_random": "other tokens instead"}.get(kind, kind)
    return f"{what}, {100 * float(part):.0f}%"


def _deletion_reading(frame: pd.DataFrame) -> str:
    removed = frame[frame["variant"] == "remove_evidence"]
    falls = int((removed["change_high"] < 0).sum())
    line = top(removed, -removed["change"])
    said = f"the largest loss is that of {line['arm']}, {signed(line, 'change')}"
    own = frame[frame["arm"] == line["arm"]].set_index("variant")["recovery"]
    back = [float(own.get(f"{kind}=1.0", math.nan)) for kind in ("restore_evidence", "restore_random")]
    if line["change"] < 0 and all(math.isfinite(value) for value in back):
        said += f", of which the evidence itself brings back {share(back[0])} and as many other tokens {share(back[1])}"
    if line["change"] >= 0:
        said = f"the least favourable change is that of {line['arm']}, {signed(line, 'change')}"
    count = f"{falls} of {len(removed)} arms lose" if falls else f"None of {len(removed)} arms loses"
    return f"{count} accuracy beyond the interval when the evidence is removed; {said}."


def logit_drop_table(source: Source, draws: int) -> Table | None:
    """Target support with the evidence kept, removed and pruned, by label."""
    found = collect(
        source,
        has_selectors("evidence_only", "anti_evidence"),
        lambda run: computed.logit_drop_table(run.rows, draws=draws),
        arms=("left", "right"),
    )
    if found is None:
        return None
    frame, left_out = found
    oracle = frame["left"].str.contains("evidence_only") & frame["right"].str.contains("anti_evidence")
    line = frame[oracle].iloc[0]
    reading = (
        f"At budget {line['budget']}, keeping the evidence instead of removing it changes target support by "
        f"{signed(line, 'pos_support_diff')} on positives and {signed(line, 'neg_support_diff')} on negatives."
    )
    columns = [
        TableColumn("left", "Left"),
        TableColumn("right", "Right"),
        TableColumn("budget", "Budget"),
        TableColumn("n", "Probes", "count"),
        *support_columns(),
    ]
    return Table("logit_drop", "Evidence kept and removed", SUPPORT + left_out, columns, frame, reading=reading)
