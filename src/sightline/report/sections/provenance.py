"""When the answer is right, was anything left to read it from?"""

from __future__ import annotations

from typing import Any

import pandas as pd

from sightline.core.table import Table, TableColumn
from sightline.errors import SightlineError
from sightline.report.columns import arm_facts, build_table, in_panels, reworded_for_texts, table_column
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.rows.source import Source
from sightline.statistics.correct_positives import correct_positive_provenance
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_rows, metric_inputs

SHARES = ("weakly_supported", "unsupported")


@SECTIONS.register("provenance")
class ProvenanceSection(SectionMaker):
    id = "provenance"
    title = "Provenance"
    order = 40
    lead = "When the answer is right, was anything left to read it from?"

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: provenance_table(context.source, context.draws, context.seed))


def provenance_table(source: Source, draws: int, seed: int) -> Table:
    """Correctly answered positives: how many of them stand on little or no surviving evidence."""
    records: list[dict[str, Any]] = []
    problem = ""
    frames = (audited.frame[["arm", *metric_inputs(audited.frame)]] for audited in source.runs)
    arms = (part for frame in frames for part in frame.groupby("arm", sort=False))
    for arm, rows in arms:
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
        for name, share in (("weakly_supported", found.weakly_supported), ("unsupported", found.unsupported)):
            record |= {f"{name}_n": share.count, name: share.rate}
            record |= {f"{name}_low": share.cluster[0], f"{name}_high": share.cluster[1]}
            record |= {f"{name}_wilson_low": share.wilson[0], f"{name}_wilson_high": share.wilson[1]}
        records.append(record)
    if not records:
        raise SightlineError(problem)
    meaning = str if source.yes_or_no else reworded_for_texts
    if source.yes_or_no:
        asked, coverage, among = "Positives", METRICS["pos_ecr"].label, "positives answered yes"
    else:
        asked, coverage, among = "Questions", METRICS["pos_ecr"].label_of_words, "right answers"
    coverages = [
        table_column("mean_ecr", title=coverage, help=f"Of the {among}."),
        table_column("mean_anchor_ecr", help=f"Of the {among}."),
    ]
    shares = [
        column
        for metric in map(METRICS.get, SHARES)
        for column in (
            TableColumn(f"{metric.name}_n", "n", "count", help=meaning(metric.help)),
            TableColumn(metric.name, metric.label, "percent", interval=True, help=meaning(metric.help)),
        )
    ]
    columns = {"asked": [table_column("positives", title=asked)], "coverage": coverages, "shares": shares}
    frame = in_panels(pd.DataFrame(records), arm_facts(source))
    return build_table("correct_positive_provenance", frame, source, columns=columns, among=among)
