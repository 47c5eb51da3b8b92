"""The same tokens with renumbered and with original positions."""

from __future__ import annotations

from sightline.analysis.interventions import position_policy_table
from sightline.core.table import Table, TableColumn
from sightline.report.columns import collect, has_intervention, top
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.rows.source import Source, with_masks
from sightline.statistics.thresholds import shown

THRESHOLDS = {"own thresholds": "own", "compact threshold": "compact's"}


@SECTIONS.register("positions")
class Positions(SectionMaker):
    id = "positions"
    title = "Positions"
    order = 150
    lead = "The same tokens with renumbered and with original positions."

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: positions_table(context.source))


def positions_table(source: Source) -> Table | None:
    """The same masks under both position policies."""
    found = collect(
        source,
        has_intervention("swap_positions"),
        lambda run: position_policy_table(with_masks(run, run.rows), development=source.development_rows(run)),
    )
    if found is None:
        return None
    frame, left_out = found
    raw = frame[frame["comparison"] == "raw"]
    line = top(raw, raw["flips"] / raw["n"])
    reading = (
        f"With the same mask, {source.at}, the position policy alone turns {raw['flips'].sum()} of {raw['n'].sum()} "
        f"answers, most for {line['arm']}: {line['flips']} of {line['n']}, {line['no_to_yes']} to yes and "
        f"{line['yes_to_no']} to no from compact to preserve."
    )
    given = frame["threshold_compact"].map(shown)
    frame["comparison"] = frame["comparison"].map(THRESHOLDS).fillna(given)
    different = int(raw["mask_mismatches"].sum())
    if different:
        reading += f" {different} of the masks differ between the policies: their rows compare more than positions."
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("comparison", "At t"),
        TableColumn("n", "Probes", "count"),
        TableColumn("flips", "Flips", "count"),
        TableColumn("no_to_yes", "no → yes", "count", help="From compact to preserve."),
        TableColumn("yes_to_no", "yes → no", "count", help="From compact to preserve."),
        TableColumn("accuracy_compact", "Acc. comp.", "score", help="Accuracy with compact positions."),
        TableColumn("accuracy_preserve", "Acc. pres.", "score", help="Accuracy with preserved positions."),
        TableColumn("hfpr_compact", "hFPR comp.", "score"),
        TableColumn("hfpr_preserve", "hFPR pres.", "score"),
        TableColumn("auroc_compact", "AUROC comp.", "score"),
        TableColumn("auroc_preserve", "AUROC pres.", "score"),
        TableColumn("margin_change_abs", "|Δ margin|", "score", help="Mean over probes."),
        TableColumn("mask_mismatches", "Other masks", "count", help="Probes whose masks differ between the policies."),
    ]
    caption = (
        "A number is the threshold of all answers on this page, judged on all its probes. Each policy's own t, and "
        "compact's t for both, are chosen on development images and judged on others: those of a development run, or "
        "the development side of the image split, which leaves those rows fewer probes."
    )
    return Table("positions", "Position policies", caption + left_out, columns, frame, reading=reading)
