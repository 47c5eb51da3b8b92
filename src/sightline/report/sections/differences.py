"""Each arm against its reference on the same probes, and arms that differ in their seed alone."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sightline.errors import SightlineError
from sightline.report.by_run import FEWER_DRAWS
from sightline.report.metric_columns import typographic
from sightline.report.panels import arm_facts, in_panels
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.report.source import Audited, Source
from sightline.report.summary import ReportSummary
from sightline.report.table import Table, TableColumn
from sightline.statistics.metrics import METRICS, metrics_shown_in
from sightline.statistics.seeds import seed_summary, two_stage_difference
from sightline.statistics.summaries import arm_rows
from sightline.statistics.wording import describe_difference


@SECTIONS.register("differences")
class Differences(SectionMaker):
    id = "differences"
    title = "Differences"
    order = 30
    lead = "Each arm against its reference on the same probes."

    def fill(self, section: Section, context: Context) -> None:
        summary = context.summary
        section.add(lambda: differences_table(summary))
        section.notes += [note for note in summary.notes if note not in section.notes]
        section.add(lambda: seeds_table(summary, context.source))
        section.add(lambda: seed_differences_table(context.source, context.draws, context.seed))


def differences_table(summary: ReportSummary) -> Table:
    """arm - reference on the same probes, with the sentence that the interval allows."""
    if summary.differences.empty:
        raise SightlineError(summary.notes[0] if summary.notes else "no arm can be compared with Full")
    frame = summary.differences.copy()
    frame["label"] = frame["metric"].map(lambda name: METRICS[name].label)
    frame = frame.rename(columns={"low": "diff_low", "high": "diff_high"})
    frame["words"] = frame["words"].where(frame["reason"].isin(["", None]) | frame["diff_low"].notna(), frame["reason"])
    frame["words"] = typographic(frame["words"])
    frame = in_panels(frame, summary.facts)
    columns = [
        TableColumn("arm_name", "Arm"),
        TableColumn("against", "Against"),
        TableColumn("label", "Metric"),
        TableColumn("value", "Value", "score"),
        TableColumn("reference_value", "Reference", "score"),
        TableColumn("diff", "Difference", "signed", interval=True),
        TableColumn("words", "In words", "words"),
        TableColumn("win", "Images better", "count", help="Images on which the arm is better."),
        TableColumn("loss", "Images worse", "count", help="Images on which the arm is worse."),
        TableColumn("tie", "Images equal", "count"),
        TableColumn("mcnemar_p", "McNemar p", "p", help="Exact, two-sided; takes probes as independent."),
    ]
    caption = (
        "Paired by probe, resampled by image; better, worse and equal count images, McNemar's p counts probes. “Not "
        "distinguishable” bounds what may have been lost; it is not proof of equality."
    )
    return Table(
        "paired_differences",
        "Paired differences",
        caption,
        columns,
        frame,
        filter="label",
        unprinted=("regime",),
        panel="panel",
    )


def seeds_table(summary: ReportSummary, source: Source) -> Table | None:
    """Arms that differ in nothing but their seed, described together."""
    by_arm = summary.arms.set_index("arm")
    metrics = metrics_shown_in("seeds")
    records = []
    for family in seed_families(source):
        record: dict[str, Any] = {"family": family.name, "seeds": len(family.arms)}
        for metric in metrics:
            found = seed_summary(by_arm.loc[family.arms, metric.name].astype(float))
            record |= {metric.name: found.mean, f"{metric.name}_sd": found.sd}
            record |= {f"{metric.name}_low": found.minimum, f"{metric.name}_high": found.maximum}
        records.append(record)
    if not records:
        return None
    columns = [TableColumn("family", "Selector"), TableColumn("seeds", "Seeds", "count")]
    for metric in metrics:
        columns.append(TableColumn(metric.name, metric.label, "score", interval=True))
        columns.append(TableColumn(f"{metric.name}_sd", "SD", "score"))
    caption = "Mean over seeds; small print is the range; SD is over these seeds and not a sample estimate."
    return Table("seeds", "Random seeds", caption, columns, pd.DataFrame(records))


def seed_differences_table(source: Source, draws: int, seed: int) -> Table | None:
    """Every other arm of the same budget minus the mean over the seeds of a random one."""
    records: list[dict[str, Any]] = []
    fewer = min(draws, FEWER_DRAWS)
    for family in seed_families(source):
        rows = {str(arm): part for arm, part in family.audited.frame.groupby("arm", sort=False)}
        seeded = [arm_rows(rows[arm]) for arm in family.arms]
        for arm, part in rows.items():
            if arm in family.arms or part["budget"].iloc[0] != family.budget:
                continue
            for metric in metrics_shown_in("seeds"):
                # An arm that has no value of one metric is compared by the others.
                with suppress(SightlineError):
                    found = two_stage_difference(arm_rows(part), seeded, metric, draws=fewer, seed=seed)
                    line = {"arm": arm, "against": family.name, "label": metric.label, "diff": found.value}
                    words = describe_difference(found.value, found.low, found.high, f"{family.name} over seeds")
                    records.append({**line, "diff_low": found.low, "diff_high": found.high, "words": words})
    if not records:
        return None
    frame = pd.DataFrame(records)
    frame["words"] = typographic(frame["words"])
    frame = in_panels(frame, arm_facts(source))
    columns = [
        TableColumn("arm_name", "Arm"),
        TableColumn("against", "Against all seeds of"),
        TableColumn("label", "Metric"),
        TableColumn("diff", "Difference", "signed", interval=True),
        TableColumn("words", "In words", "words"),
    ]
    caption = (
        "Arm minus the mean over seeds. Seeds and, crossed with them, images are resampled, so an interval covers "
        f"another choice of masks as well as another choice of images: {fewer} draws."
    )
    return Table(
        "seed_differences",
        "Against a random control",
        caption,
        columns,
        frame,
        filter="label",
        unprinted=("regime",),
        panel="panel",
    )


@dataclass(frozen=True)
class SeedFamily:
    """Arms of one run that differ in their seed alone."""

    audited: Audited
    name: str
    """Selector and budget."""
    budget: str
    arms: list[str]


def seed_families(source: Source) -> list[SeedFamily]:
    """Those with at least two seeds."""
    families = []
    for audited in source.runs:
        groups: dict[tuple[str, str, str], list[str]] = {}
        for arm, row in audited.frame.drop_duplicates("arm").set_index("arm").iterrows():
            arguments = json.loads(row["arguments"] or "{}")
            if arguments.pop("seed", None) is not None:
                key = (str(row["selector"]), str(row["budget"]), json.dumps(arguments, sort_keys=True))
                groups.setdefault(key, []).append(str(arm))
        families += [
            SeedFamily(audited, f"{selector}:{budget}", budget, arms)
            for (selector, budget, _), arms in groups.items()
            if len(arms) > 1
        ]
    return families
