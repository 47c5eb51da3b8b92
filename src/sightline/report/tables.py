"""The tables that rest on metrics: main results, differences, provenance, calibration, geometry, interventions."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pandas as pd

from sightline.errors import SightlineError
from sightline.report.by_run import FEWER_DRAWS
from sightline.report.source import Source
from sightline.report.summary import Summary, metric_help
from sightline.report.table import Column, Table
from sightline.statistics.metrics import METRICS
from sightline.statistics.provenance import correct_positive_provenance
from sightline.statistics.seeds import seed_summary
from sightline.statistics.table import arm_rows, arm_summary

MAIN = ("keep", "accuracy", "hfpr", "auroc", "pos_ecr", "anchor_ecr", "neg_src", "zero_coverage")
GEOMETRY = (
    "pos_ecr",
    "anchor_ecr",
    "pn_average",
    "lpp",
    "geo_f1",
    "center_recall",
    "patch_recall",
    "worst_region",
    "all_half",
)
CALIBRATION = ("yes_rate", "positive_accuracy", "negative_accuracy", "ece", "brier", "nll")


def _metric_columns(names: tuple[str, ...]) -> list[Column]:
    return [
        Column(name, METRICS[name].label, "score", interval=name != "keep", help=metric_help(name)) for name in names
    ]


def main_table(summary: Summary) -> Table:
    """Answer behaviour and provenance of every arm, with 95% image-cluster intervals."""
    columns = [Column("arm", "Arm"), *_metric_columns(MAIN)]
    caption = (
        "Small print is the 95% interval when images are resampled. PosECR counts the cells of all merged sources, "
        "AnchorECR only those kept in place; NegSRC is coverage of the confusable word on negatives, no evidence of "
        "absence. Rows are points on a frontier, not a ranking."
    )
    return Table("main", "Main results", caption, columns, summary.arms)


def differences_table(summary: Summary) -> Table:
    """arm - reference on the same probes, with the sentence that the interval allows."""
    if summary.differences.empty:
        raise SightlineError(summary.notes[0] if summary.notes else "no arm can be compared with Full")
    frame = summary.differences.copy()
    frame["label"] = frame["metric"].map(lambda name: METRICS[name].label)
    frame = frame.rename(columns={"low": "diff_low", "high": "diff_high"})
    frame["words"] = frame["words"].where(frame["reason"].isin(["", None]) | frame["diff_low"].notna(), frame["reason"])
    frame["words"] = typographic(frame["words"])
    columns = [
        Column("arm", "Arm"),
        Column("against", "Against"),
        Column("label", "Metric"),
        Column("value", "Arm", "score"),
        Column("reference_value", "Reference", "score"),
        Column("diff", "Difference", "signed", interval=True),
        Column("words", "In words", "words"),
        Column("win", "Better", "count", help="Images on which the arm is better."),
        Column("loss", "Worse", "count", help="Images on which the arm is worse."),
        Column("tie", "Equal", "count"),
        Column("mcnemar_p", "McNemar p", "p", help="Exact, two-sided; takes probes as independent."),
    ]
    caption = (
        "Paired by probe, resampled by image. “Not distinguishable” bounds what may have been lost; it is not proof of "
        "equality."
    )
    return Table("paired_differences", "Paired differences", caption, columns, frame, filter="label")


def provenance_table(source: Source, draws: int, seed: int) -> Table:
    """Correctly answered positives: how many of them stand on little or no surviving evidence."""
    records: list[dict[str, Any]] = []
    problem = ""
    for arm, rows in source.frame.groupby("arm", sort=False):
        try:
            found = correct_positive_provenance(arm_rows(rows), draws=draws, seed=seed)
        except SightlineError as error:
            problem = str(error)
            continue
        record: dict[str, Any] = {
            "arm": arm,
            "positives": found.positives,
            "correct": found.correct,
            "mean_ecr": found.mean_ecr,
            "mean_anchor_ecr": found.mean_anchor_ecr,
        }
        for name, share in (("low", found.low), ("zero", found.zero)):
            record |= {f"{name}_n": share.count, name: share.rate}
            record |= {f"{name}_low": share.wilson[0], f"{name}_high": share.wilson[1]}
            record |= {f"{name}_cluster_low": share.cluster[0], f"{name}_cluster_high": share.cluster[1]}
        records.append(record)
    if not records:
        raise SightlineError(problem)
    columns = [
        Column("arm", "Arm"),
        Column("positives", "Positives", "count"),
        Column("correct", "Correct", "count"),
        Column("mean_ecr", "PosECR of correct", "score"),
        Column("mean_anchor_ecr", "AnchorECR of correct", "score"),
        Column("low_n", "ECR < 0.5", "count"),
        Column("low", "Share", "percent", interval=True),
        Column("zero_n", "ECR = 0", "count"),
        Column("zero", "Share ", "percent", interval=True),
    ]
    caption = (
        "Among positives answered yes: coverage of their evidence by lineage, with Wilson 95% intervals. With zero "
        "coverage no token from the evidence itself was read: the answer rests on what the vision tower mixed into "
        "other tokens, on context, or on luck."
    )
    return Table(
        "correct_positive_provenance", "Correct answers and their evidence", caption, columns, pd.DataFrame(records)
    )


def calibration_table(summary: Summary) -> Table:
    columns = [Column("arm", "Arm"), *_metric_columns(CALIBRATION)]
    caption = (
        "p(yes) = sigmoid(margin); ECE over 15 equal bins of confidence, everything at t = 0. Resampling adds noise to "
        "every bin, so an ECE interval lies above its value when probes are few."
    )
    return Table("calibration", "Calibration", caption, columns, summary.arms)


def geometry_table(summary: Summary) -> Table:
    if summary.arms["pos_ecr"].isna().all():
        raise SightlineError("no positive probe has a region: there is no geometry to validate")
    columns = [Column("arm", "Arm"), *_metric_columns(GEOMETRY)]
    caption = (
        "Coverage is recall: coarse cells inflate it. LPP is the share of touching kept cells that lies inside the "
        "regions; Geo-F1 is the mean harmonic mean of both."
    )
    return Table("geometry", "Geometry", caption, columns, summary.arms)


def interventions_table(source: Source, draws: int, seed: int) -> Table | None:
    """Rows in which the mask or the image was changed on purpose, each beside the plain rows of its arm."""
    lines, fewer = [], min(draws, FEWER_DRAWS)
    for audited in source.runs:
        if audited.others.empty:
            continue
        others = audited.others.assign(
            what=audited.others["intervention"].where(audited.others["intervention"] != "none", audited.others["view"])
        )
        for (arm, what), rows in others.groupby(["arm", "what"], sort=False):
            table = arm_summary(rows, metrics=("accuracy", "hfpr", "auroc", "pos_ecr"), draws=fewer, seed=seed)
            plain = audited.frame[(audited.frame["arm"] == arm) & audited.frame["image_id"].isin(rows["image_id"])]
            margin = {label: rows.loc[rows["label"] == label, "margin"].mean() for label in ("yes", "no")}
            base = {label: plain.loc[plain["label"] == label, "margin"].mean() for label in ("yes", "no")}
            lines.append(
                table.assign(
                    arm=str(arm),
                    intervention=str(what),
                    margin_yes=margin["yes"] - base["yes"],
                    margin_no=margin["no"] - base["no"],
                )
            )
    if not lines:
        return None
    columns = [
        Column("arm", "Arm"),
        Column("intervention", "Intervention"),
        Column("n_probes", "Probes", "count"),
        *_metric_columns(("accuracy", "hfpr", "auroc", "pos_ecr")),
        Column("margin_yes", "Δ margin, yes", "signed", help="On positives."),
        Column("margin_no", "Δ margin, no", "signed", help="On negatives."),
    ]
    caption = (
        "Δ margin is the mean margin under the intervention minus that of the plain arm on the same images. Intervals "
        f"from {fewer} draws of images."
    )
    return Table(
        "interventions", "Interventions and image controls", caption, columns, pd.concat(lines, ignore_index=True)
    )


def seeds_table(summary: Summary, source: Source) -> Table | None:
    """Arms that differ in nothing but their seed, described together."""
    first = source.frame.drop_duplicates("arm").set_index("arm")
    groups: dict[tuple[str, ...], list[str]] = {}
    for arm, row in first.iterrows():
        arguments = json.loads(row["arguments"] or "{}")
        if arguments.pop("seed", None) is not None:
            key = (str(row["model"]), str(row["selector"]), str(row["budget"]), json.dumps(arguments, sort_keys=True))
            groups.setdefault(key, []).append(str(arm))
    by_arm = summary.arms.set_index("arm")
    records = []
    for (_, selector, budget, _), arms in groups.items():
        if len(arms) < 2:
            continue
        record: dict[str, Any] = {"family": f"{selector}:{budget}", "seeds": len(arms)}
        for metric in ("accuracy", "hfpr", "pos_ecr"):
            found = seed_summary(by_arm.loc[arms, metric].astype(float))
            record |= {metric: found.mean, f"{metric}_sd": found.sd}
            record |= {f"{metric}_low": found.minimum, f"{metric}_high": found.maximum}
        records.append(record)
    if not records:
        return None
    columns = [Column("family", "Selector"), Column("seeds", "Seeds", "count")]
    for metric in ("accuracy", "hfpr", "pos_ecr"):
        columns.append(Column(metric, METRICS[metric].label, "score", interval=True))
        columns.append(Column(f"{metric}_sd", "SD", "score"))
    caption = "Mean over seeds; small print is the range; SD is over these seeds and not a sample estimate."
    return Table("seeds", "Random seeds", caption, columns, pd.DataFrame(records))


def family(arm_name: str) -> str:
    """An arm without its budget: ``scope:0.4:alpha=0`` and ``scope:0.3:alpha=0`` are both ``scope:alpha=0``."""
    parts = arm_name.split(":")
    if len(parts) > 1 and re.fullmatch(r"[\d.eE+-]+t?", parts[1]):
        del parts[1]
    return ":".join(parts)


def typographic(words: pd.Series[str]) -> pd.Series[str]:
    """Sentences with a real minus before digits, as the numbers of the tables have it."""
    return words.str.replace(r"(?<=[ (])-(?=[\d.])", "−", regex=True)


def finite(value: Any) -> bool:
    return value is not None and math.isfinite(float(value))
