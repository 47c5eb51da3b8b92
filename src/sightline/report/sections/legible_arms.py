"""Could what is left of the evidence still be read, and does that go with what becomes of the answers?"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from sightline.analysis.construct import answer_changes, ordering_table
from sightline.core.table import Kind, Table, TableColumn, format_value
from sightline.errors import SightlineError
from sightline.report.columns import collect, excludes_zero, fitting_columns, signed
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.report.summary import ReportSummary
from sightline.rows.source import Audited, Source
from sightline.statistics.metrics import METRICS

METRICS_SHOWN = ("keep", "score", "accuracy", "pos_ecr", "legibility", "illegible")
CHANGE_WORDS = {"changed": "answer changed", "margin_change": "margin moved"}


@SECTIONS.register("legibility")
class Legibility(SectionMaker):
    id = "legibility"
    title = "Legibility"
    order = 73
    lead = "A shrunken page covers every cell and still loses the text: how large are characters that reach the model?"

    def fill(self, section: Section, context: Context) -> None:
        if context.summary.arms["legibility"].isna().all():
            return
        section.add(lambda: legibility_table(context.source, context.summary))
        section.add(lambda: legibility_ordering_table(context.source, context.draws, context.seed))


def legibility_table(source: Source, summary: ReportSummary) -> Table:
    """Per arm what it covers, what of it could be read, and how many answers are other than Full's."""
    changed: dict[str, float] = {}
    for audited in source.runs:
        try:
            rows = answer_changes(audited.frame)
        except SightlineError:
            continue  # without Full nothing has changed; the other columns stand
        changed |= {str(arm): float(share) for arm, share in rows.groupby("arm")["changed"].mean().items()}
    frame = summary.arms.assign(changed=summary.arms["arm"].map(changed))
    columns = [
        TableColumn("arm", "Arm"),
        *(_explained(name) for name in METRICS_SHOWN if METRICS[name].answers != "words" or source.in_words),
        TableColumn("changed", "Changed", "score", help="Share of answers other than Full's, on probes with regions."),
    ]
    caption = (
        "Legibility is the height of a character in source pixels times the root of the samples per source pixel that "
        "reach the model: it falls where cells are dropped, where the image is shrunk, and where tokens are mixed. It "
        "says what arrives, not what the model can make of it."
    )
    return Table("legibility", "Legibility", caption, fitting_columns(source, columns, frame), frame)


def _explained(name: str) -> TableColumn:
    metric = METRICS[name]
    kind: Kind = "number" if name == "legibility" else "score"
    return TableColumn(name, metric.label, kind, interval=metric.with_interval, help=metric.help)


def legibility_ordering_table(source: Source, draws: int, seed: int) -> Table | None:
    """Does coverage or legibility order arms, and single answers, by how much changes?"""

    def wanted(rows: pd.DataFrame) -> bool:
        return bool(rows["selector"].nunique() > 1 and rows["legibility"].notna().any())

    def make(run: Audited) -> pd.DataFrame:
        found = ordering_table(run.frame.assign(arm=run.frame["arm_name"]), draws=draws, seed=seed)
        return found.assign(run=run.name)

    found = collect(source, wanted, make)
    if found is None:
        return None
    frame, left_out = found
    reading = " ".join(_reading(part) for _, part in frame.groupby("run", sort=False))
    frame["change"] = frame["change"].map(CHANGE_WORDS)
    columns = [
        *([TableColumn("run", "Run")] if len(source.runs) > 1 else []),
        TableColumn("over", "Over"),
        TableColumn("change", "Change from Full"),
        TableColumn("n", "n", "count"),
        TableColumn("ecr", "Coverage", "signed", interval=True, help="Spearman of ECR with the change; -1 is best."),
        TableColumn(
            "legibility",
            "Legibility",
            "signed",
            interval=True,
            help="Spearman of legibility with the change; -1 is best.",
        ),
        TableColumn(
            "advantage", "Coverage − legibility", "signed", interval=True, help="Positive: legibility orders better."
        ),
    ]
    caption = (
        "Spearman of what is left of the evidence with what changes, over arms (means over probes with regions) and "
        "over single answers of all arms but Full; near −1 the measure orders changes well. Intervals resample images "
        "and say nothing about other arms than these."
    )
    return Table(
        "legibility_ordering", "What orders answer changes", caption + left_out, columns, frame, reading=reading
    )


def _reading(lines: pd.DataFrame) -> str:
    """One sentence about the first line, the changed answers, that has a correlation of both measures."""
    known = lines[lines["ecr"].notna() & lines["legibility"].notna()]
    name = str(lines["run"].iloc[0])
    prefix = f"For {name}, over" if name else "Over"
    if known.empty:
        return f"{prefix} {lines['n'].iloc[0]} {lines['over'].iloc[0]} coverage, legibility or answers do not vary."
    line = known.iloc[0]
    both = f"coverage has rho = {_value(line['ecr'])}, legibility {_value(line['legibility'])}"
    place = f"{prefix} {line['n']} {line['over']}"
    apart = signed(line, "advantage")
    if not excludes_zero(float(line["advantage_low"]), float(line["advantage_high"])):
        words = f"neither orders {_changes(line)} better than the other"
    else:
        words = f"{'legibility' if line['advantage'] > 0 else 'coverage'} orders {_changes(line)} better"
    best = min(float(line["ecr"]), float(line["legibility"]))
    weak = "; neither orders them the right way" if best >= 0.0 else ""
    return f"{place} {words}: {both}, difference {apart}{weak}."


def _changes(line: Any) -> str:
    return "changed answers" if line["change"] == "changed" else "moved margins"


def _value(value: float) -> str:
    return format_value(value, "signed") if math.isfinite(value) else "none"
