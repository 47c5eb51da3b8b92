"""Tokens of the evidence taken out of the mask and put back; evidence kept alone against removed."""

from __future__ import annotations

import math

import pandas as pd

from sightline.analysis import interventions as computed
from sightline.core.table import Table, TableColumn
from sightline.report.columns import (
    SUPPORT,
    collect,
    fitting_columns,
    has_intervention,
    has_selectors,
    metric_column,
    share,
    signed,
    support_columns,
    top,
)
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.rows.source import Source

VARIANTS = {"selected": "as selected", "remove_evidence": "evidence removed"}


@SECTIONS.register("deletion")
class Deletion(SectionMaker):
    id = "deletion"
    title = "Deletion"
    order = 110
    in_overview = True
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
        "Recovery is a dash where removal left accuracy as it was; where removal helped, 100% is the lower accuracy."
    )
    if source.yes_or_no:
        caption += " On negatives the evidence is the confusable word." + source.answers_at
    return Table(
        "deletion",
        "Deletion and restoration",
        caption + left_out,
        fitting_columns(source, columns, frame),
        frame,
        reading=reading,
        repeated=("arm",),
    )


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
    arm, change = line["arm"], signed(line, "change")
    back = _brought_back(frame, arm) if line["change"] < 0 else ""
    if len(removed) == 1:
        loses = "loses accuracy" if falls else "loses no accuracy beyond the interval"
        return f"{arm} {loses} when the evidence is removed: {change}{back}."
    count = f"{falls or 'None'} of {len(removed)} arms {'lose' if falls > 1 else 'loses'}"
    which = "largest loss" if line["change"] < 0 else "least favourable change"
    return (
        f"{count} accuracy beyond the interval when the evidence is removed; the {which} is that of {arm}, "
        f"{change}{back}."
    )


def _brought_back(frame: pd.DataFrame, arm: str) -> str:
    """How much of an arm's loss the evidence and as many other tokens restore; "" where the run does not say."""
    own = frame[frame["arm"] == arm].set_index("variant")["recovery"]
    back = [float(own.get(f"{kind}=1.0", math.nan)) for kind in ("restore_evidence", "restore_random")]
    if not all(math.isfinite(value) for value in back):
        return ""
    return f", of which the evidence itself brings back {share(back[0])} and as many other tokens {share(back[1])}"


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
        TableColumn("left", "First"),
        TableColumn("right", "Second"),
        TableColumn("budget", "Budget"),
        TableColumn("n", "Probes", "count"),
        *support_columns(),
    ]
    return Table("logit_drop", "Evidence kept and removed", SUPPORT + left_out, columns, frame, reading=reading)
