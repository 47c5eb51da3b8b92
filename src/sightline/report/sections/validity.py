"""Does coverage measure what it should? Correlations with interventions, strata of scale, and arms at one budget."""

from __future__ import annotations

import math

import pandas as pd

from sightline.analysis.construct import conditional_table, correlations, pooled_arms, strata
from sightline.analysis.outcomes import OUTCOMES, samples
from sightline.core.table import Table, TableColumn, format_value
from sightline.report.columns import collect, excludes_zero, signed, top
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.rows.source import Audited, Source
from sightline.statistics.arm_rows import UNCHANGED

OUTCOME_WORDS = {
    "occlusion_drop": "evidence grayed",
    "occlusion_specific_drop": "evidence grayed, less another box",
    "deletion_drop": "evidence removed",
    "evidence_restoration_gain": "evidence restored",
    "restoration_specific_gain": "evidence restored, less random",
}
COVERAGE = {"ecr": "ECR", "lpp": "LPP", "geo_f1": "Geo-F1"}
SCALE_WORDS = {
    "evidence_area": "evidence area",
    "median_cell_area": "median cell area",
    "box_cell_ratio": "evidence area / cell area",
}
EDITS = ("remove_evidence", "occlude_evidence", "evidence_masked")


@SECTIONS.register("validity")
class Validity(SectionMaker):
    id = "validity"
    title = "Validity"
    order = 100
    lead = "Does coverage go with what the model does, and with what it loses when the evidence goes?"

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: association_table(context.source, context.draws))
        section.add(lambda: construct_table(context.source, context.draws))
        section.add(lambda: drop_strata_table(context.source, context.draws))


def _under_intervention(rows: pd.DataFrame) -> bool:
    return bool((rows["intervention"].isin(EDITS) | rows["view"].isin(EDITS)).any())


def _samples(audited: Audited) -> pd.DataFrame:
    """Positives of arms under an intervention; occlusion alone is measured on Full and holds for every pruning arm."""
    rows = audited.rows
    changed = set(audited.others.loc[audited.others["intervention"] != UNCHANGED, "arm_name"].unique())
    kept = rows[rows["arm"].isin(changed) | (rows["selector"] == "full")]
    return samples(kept, audited.scales)


def construct_table(source: Source, draws: int) -> Table | None:
    """Marginal and partial Spearman of coverage with every measured drop, on the positives of every arm concerned."""
    found = collect(source, _under_intervention, lambda run: _wide(correlations(_samples(run), draws=draws)))
    if found is None:
        return None
    frame, left_out = found
    reading = _construct_reading(frame)
    frame["outcome"], frame["predictor"] = frame["outcome"].map(OUTCOME_WORDS), frame["predictor"].map(COVERAGE)
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("outcome", "Margin drop or gain"),
        TableColumn("predictor", "Coverage"),
        TableColumn("n", "Positives", "count"),
        TableColumn("spearman", "Spearman", "signed", interval=True),
        TableColumn("partial_spearman", "Partial Spearman", "signed", interval=True),
        TableColumn("pearson", "Pearson", "signed"),
    ]
    caption = (
        "Positives only. The partial correlation holds log evidence area, log median cell area and Full's margin "
        f"fixed; its intervals rank and regress anew in each of {draws:,} draws of images."
    )
    return Table(
        "construct_validity", "Coverage and what interventions do", caption + left_out, columns, frame,
        filter="predictor", reading=reading,
    )  # fmt: skip


def _wide(found: pd.DataFrame) -> pd.DataFrame:
    """One line per arm, outcome and predictor; the three correlations side by side."""
    keys = ["arm", "outcome", "predictor"]
    lines = found.drop_duplicates(keys)[[*keys, "n"]].set_index(keys)
    for name, part in found.groupby("correlation", sort=False):
        values = part.set_index(keys)[["estimate", "estimate_low", "estimate_high"]]
        lines = lines.join(values.set_axis([str(name), f"{name}_low", f"{name}_high"], axis=1))
    return lines.reset_index()


def _construct_reading(frame: pd.DataFrame) -> str:
    name = "partial_spearman" if "partial_spearman" in frame else "spearman"
    tested = frame[(frame["predictor"] == "ecr") & frame[f"{name}_low"].notna()]
    if tested.empty:
        return "Coverage or the drops do not vary enough to be correlated."
    apart = tested[
        [excludes_zero(low, high) for low, high in zip(tested[f"{name}_low"], tested[f"{name}_high"], strict=True)]
    ]
    what = name.replace("_", " ").replace("spearman", "Spearman")
    said = (
        f"The {what} of ECR with a margin drop excludes zero in {len(apart)} of {len(tested)} pairs of arm and outcome"
    )
    line = top(tested, tested[name].abs())
    return f"{said}; the strongest is {signed(line, name)}, {line['arm']}, {OUTCOME_WORDS[line['outcome']]}."


def drop_strata_table(source: Source, draws: int) -> Table | None:
    """Coverage and drops by thirds of evidence area, cell area and their ratio."""
    found = collect(source, _under_intervention, lambda run: _wide_strata(strata(_samples(run), draws=draws)))
    if found is None:
        return None
    frame, left_out = found
    reading = _strata_reading(frame)
    frame["scale"] = frame["scale"].map(SCALE_WORDS)
    measured = [outcome for outcome in OUTCOMES if outcome in frame]
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("scale", "Split by"),
        TableColumn("stratum", "Third"),
        TableColumn("n", "Positives", "count"),
        *(TableColumn(key, COVERAGE[key], "score", interval=True) for key in ("ecr", "lpp")),
        *(TableColumn(key, OUTCOME_WORDS[key].capitalize(), "signed", interval=True) for key in measured),
    ]
    caption = (
        "Positives of arms under interventions in thirds; coverage, then mean margin drops and gains. Coverage that "
        "grows with cell size while precision falls is coarse geometry, not evidence. Intervals from "
        f"{draws:,} draws of images."
    )
    return Table("drop_strata", "Drops by scale", caption + left_out, columns, frame, filter="scale", reading=reading)


def _wide_strata(found: pd.DataFrame) -> pd.DataFrame:
    keys = ["arm", "scale", "stratum"]
    found = found[found["stratum"] != "constant"] if (found["stratum"] != "constant").any() else found
    lines = found.drop_duplicates(keys)[[*keys, "n"]].set_index(keys)
    for name, part in found.groupby("metric", sort=False):
        values = part.set_index(keys)[["mean", "mean_low", "mean_high"]]
        lines = lines.join(values.set_axis([str(name), f"{name}_low", f"{name}_high"], axis=1))
    return lines.reset_index()


def _strata_reading(frame: pd.DataFrame) -> str:
    scale = next(
        (s for s in reversed(SCALE_WORDS) if ((frame["scale"] == s) & (frame["stratum"] == "large")).any()), ""
    )
    own = frame[(frame["scale"] == scale) & (frame["arm"] == frame["arm"].iloc[0])].set_index("stratum")
    if not {"small", "large"} <= set(own.index):
        return "Evidence and cells are all of one size here, so there is nothing to split by."

    def ends(key: str) -> str:
        return " and ".join(format_value(own.loc[third, key], "score") for third in ("small", "large"))

    return (
        f"From the smallest to the largest third by {SCALE_WORDS[scale]}, ECR of {frame['arm'].iloc[0]} is "
        f"{ends('ecr')}, LPP {ends('lpp')}."
    )


def association_table(source: Source, draws: int) -> Table | None:
    """At each budget that several arms share: does the arm that covers more of an image keep more of its margin?"""

    def wanted(rows: pd.DataFrame) -> bool:
        told = ["selector", "plain_arm", "role", "arguments", "budget", "label", "ecr", "arm", "image_id"]
        rows = rows[[name for name in told if name in rows]]
        pooled = (rows["selector"] != "full") & rows["plain_arm"].isin(pooled_arms(rows))
        pruned = rows[pooled & (rows["label"] == "yes") & rows["ecr"].notna()]
        several = (pruned.groupby("budget")["arm"].nunique() > 1).any()
        return bool((rows["selector"] == "full").any() and several and pruned["image_id"].nunique() > 2)

    def make(run: Audited) -> pd.DataFrame:
        frame = run.frame.assign(arm=run.frame["arm_name"])
        found = conditional_table(frame, run.scales, draws=draws)
        if frame["merged"].any():
            by_lineage = conditional_table(frame, run.scales, coverage="lineage", draws=draws)
            # What only deletes has one coverage, whichever way merged tokens count.
            found = pd.concat([found, by_lineage[by_lineage["scope"] == "all"]], ignore_index=True)
        return found.assign(arm=found["budget"])

    found = collect(source, wanted, make)
    if found is None:
        return None
    frame, left_out = found
    frame["predictor"] = frame["predictor"].map(COVERAGE)
    frame["scope"] = frame["scope"].map({"all": "all", "deletion_only": "without merging"})
    frame = frame.drop(columns="budget").rename(columns={"arm": "budget", "estimate": "r"})
    frame = frame.rename(columns={"estimate_low": "r_low", "estimate_high": "r_high"})
    line = frame[(frame["predictor"] == "ECR") & frame["specification"].str.startswith("image")].iloc[0]
    reading = (
        f"At budget {line['budget']}, with image and arm held fixed, ECR and the margin change from Full have "
        f"r = {signed(line, 'r')}."
        if math.isfinite(line["r"])
        else f"At budget {line['budget']} coverage does not vary once image and arm are held fixed."
    )
    columns = [
        TableColumn("budget", "Budget"),
        TableColumn("scope", "Arms"),
        TableColumn("arms", "Number", "count"),
        TableColumn("specification", "Held fixed"),
        TableColumn("predictor", "Coverage"),
        TableColumn("coverage", "Merged tokens by"),
        TableColumn("images", "Images", "count"),
        TableColumn("r", "Spearman r", "signed", interval=True),
    ]
    caption = (
        "Positives of the arms at one budget together, without oracles and with one seed of each drawn arm: rank "
        "correlation of coverage with the margin change from Full, image-cluster intervals. Merged tokens count by "
        "their anchors, or by everything merged into them. Measured controls are log evidence area, log median cell "
        "area and Full's margin. Association is not use: interventions test that."
    )
    return Table(
        "association", "Coverage and margin change", caption + left_out, columns, frame, filter="predictor",
        reading=reading,
    )  # fmt: skip
