"""Tables of edited arms: evidence deleted and restored, evidence kept alone, evidence grayed, positions swapped."""

from __future__ import annotations

import math

import pandas as pd

from sightline.analysis import intervention_tables as computed
from sightline.report.by_run import (
    collect,
    first_choice,
    has_intervention,
    has_selectors,
    signed,
    top,
)
from sightline.report.source import Source, with_masks
from sightline.report.summary import share
from sightline.report.table import Column, Table

SUPPORT = (
    "Target support is the margin on positives and its negative on negatives: larger is always nearer to the right "
    "answer. Differences are left minus right, paired by probe."
)
THRESHOLDS = {"raw": "0", "own thresholds": "own", "compact threshold": "compact's"}
VARIANTS = {"selected": "as selected", "remove_evidence": "evidence removed"}


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
        Column("arm", "Arm"),
        Column("variant", "Mask"),
        Column("n", "Probes", "count"),
        Column("keep", "Keep", "score"),
        Column("accuracy", "Accuracy", "score"),
        Column("change", "Change from selected", "signed", interval=True),
        Column("recovery", "Recovery", "percent", help="(accuracy − removed) / (selected − removed)"),
        Column("hfpr", "hFPR", "score"),
        Column("pos_ecr", "PosECR", "score"),
        Column("neg_src", "NegSRC", "score"),
    ]
    caption = (
        "Every kept token that touches the evidence is dropped, then a share of them comes back, or as many others. "
        "Recovery is a dash where removal left accuracy as it was; where removal helped, 100% is the lower accuracy. "
        "On negatives the evidence is the confusable word."
    )
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
        Column("left", "Left"),
        Column("right", "Right"),
        Column("budget", "Budget"),
        Column("n", "Probes", "count"),
        *_support_columns(),
    ]
    return Table("logit_drop", "Evidence kept and removed", SUPPORT + left_out, columns, frame, reading=reading)


def _support_columns() -> list[Column]:
    return [
        Column("pos_support_diff", "Positives", "signed", interval=True, help="Difference in target support, yes."),
        Column("neg_support_diff", "Negatives", "signed", interval=True, help="Difference in target support, no."),
        Column("share_left_larger", "Left larger", "percent", help="Probes on which the left side has more support."),
        Column("only_left_correct", "L right", "count", help="Probes that only the left side answers right."),
        Column("only_right_correct", "R right", "count", help="Probes that only the right side answers right."),
        Column("only_left_false_alarm", "L alarm", "count", help="Negatives that only the left calls yes."),
        Column("only_right_false_alarm", "R alarm", "count", help="Negatives that only the right calls yes."),
    ]


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
    reading = (
        f"On positives, graying the evidence takes {signed(own.loc['original'], 'pos_support_diff')} of target support "
        f"from {arm}; that is {signed(own.loc['other box grayed'], 'pos_support_diff')} more than graying another box."
    )
    columns = [
        Column("arm", "Arm"),
        Column("compared", "Left − right"),
        Column("n", "Probes", "count"),
        *_support_columns(),
    ]
    frame["compared"] = frame["left"] + " − " + frame["right"]
    caption = f"The image is grayed before it is encoded; the mask is chosen anew. {SUPPORT}"
    return Table("occlusion", "Evidence occlusion", caption + left_out, columns, frame, reading=reading)


def positions_table(source: Source) -> Table | None:
    """The same masks under both position policies."""
    found = collect(
        source,
        has_intervention("swap_positions"),
        lambda run: computed.position_policy_table(with_masks(run, run.rows)),
    )
    if found is None:
        return None
    frame, left_out = found
    raw = frame[frame["comparison"] == "raw"]
    line = top(raw, raw["flips"] / raw["n"])
    reading = (
        f"With the same mask and t = 0, the position policy alone turns {raw['flips'].sum()} of {raw['n'].sum()} "
        f"answers, most for {line['arm']}: {line['flips']} of {line['n']}, {line['no_to_yes']} to yes and "
        f"{line['yes_to_no']} to no from compact to preserve."
    )
    frame["comparison"] = frame["comparison"].map(THRESHOLDS)
    different = int(raw["mask_mismatches"].sum())
    if different:
        reading += f" {different} of the masks differ between the policies: their rows compare more than positions."
    columns = [
        Column("arm", "Arm"),
        Column("comparison", "At t"),
        Column("n", "Probes", "count"),
        Column("flips", "Flips", "count"),
        Column("no_to_yes", "no → yes", "count", help="From compact to preserve."),
        Column("yes_to_no", "yes → no", "count", help="From compact to preserve."),
        Column("accuracy_compact", "Acc. comp.", "score", help="Accuracy with compact positions."),
        Column("accuracy_preserve", "Acc. pres.", "score", help="Accuracy with preserved positions."),
        Column("hfpr_compact", "hFPR comp.", "score"),
        Column("hfpr_preserve", "hFPR pres.", "score"),
        Column("auroc_compact", "AUROC comp.", "score"),
        Column("auroc_preserve", "AUROC pres.", "score"),
        Column("margin_change_abs", "|Δ margin|", "score", help="Mean over probes."),
        Column("mask_mismatches", "Other masks", "count", help="Probes whose masks differ between the policies."),
    ]
    caption = (
        "t = 0 is on all probes. Each policy's own t, and compact's t for both, are chosen on the development side of "
        "the image split and judged on the other side, so those rows have fewer probes."
    )
    return Table("positions", "Position policies", caption + left_out, columns, frame, reading=reading)
