"""Questions that need more than one region: were all of them kept, and does that go with the score?"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from sightline.analysis.comparison import Record, by_model, full_arm, interval_columns, rows_in_words, table_of
from sightline.core.table import Table
from sightline.errors import SightlineError
from sightline.report.columns import (
    build_table,
    collect,
    column_of,
    excludes_zero,
    in_panels,
    reworded_for_texts,
    signed,
)
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker, answers_in_words
from sightline.report.summary import ReportSummary
from sightline.rows.source import Audited, Source
from sightline.statistics.arm_rows import looked_up, numbered
from sightline.statistics.bootstrap import DRAWS, count_blocks
from sightline.statistics.correlation import correlation_shares, partial_spearman_draws, ranks
from sightline.statistics.intervals import interval
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_summary

SHOWN = ("keep", "pos_ecr", "worst_region", "all_half", "score")
TITLES = {"pos_ecr": "Union ECR"}
"""What a metric is called beside that of the worst region."""


@SECTIONS.register("regions")
class SeveralRegions(SectionMaker):
    id = "regions"
    title = "Several regions"
    order = 47
    lead = "An answer may rest on more than one place: all of them have to be kept, not most of their area."
    needs = (answers_in_words,)

    def fill(self, section: Section, context: Context) -> None:
        runs = context.source.in_words
        if not any((run.frame["n_regions"].fillna(0) > 0).any() for run in runs):
            return
        section.add(lambda: regions_table(context.source, context.summary, context.draws, context.seed))
        section.add(lambda: coverage_table(context.source, context.draws))


def regions_table(source: Source, summary: ReportSummary, draws: int, seed: int) -> Table:
    """Per arm, over questions with several regions: coverage of their union, of the worst one, and of all by half."""
    parts = []
    for audited in source.in_words:
        several = audited.frame[audited.frame["n_regions"].fillna(0) > 1]
        if several.empty:
            continue
        lines = arm_summary(several, metrics=SHOWN, draws=draws, seed=seed)
        parts.append(lines.assign(regions=float(several.drop_duplicates("probe_id")["n_regions"].mean())))
    if not parts:
        raise SightlineError("no question has more than one region: what is said of coverage elsewhere is all there is")
    frame = in_panels(pd.concat(parts, ignore_index=True), summary.facts)
    columns = [
        replace(column_of(metric), title=TITLES.get(metric.name, metric.label), help=reworded_for_texts(metric.help))
        for metric in map(METRICS.get, SHOWN)
    ]
    return build_table("several_regions", frame, columns={"metrics": columns})


COVERAGES = {"worst_region": "worst region", "ecr": "union"}
"""Row column -> how it takes several regions together: the least covered one decides, or their common area."""

FEWEST = 5


def coverage_and_score_frame(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """Spearman of coverage with the change of score against Full, over all budgets of a selector together.

    An observation is a question at a budget: ``n`` of them on ``samples`` questions. A draw resamples questions with
    all their budgets and ranks anew. ``advantage`` is the correlation of the worst region minus that of the union, in
    the same draws: positive where the least covered region says more.
    """
    records: list[Record] = []
    for model, rows in by_model(rows_in_words(frame)):
        full = rows[rows["arm"] == full_arm(rows)].set_index("probe_id")["score"]
        known = rows[(rows["selector"] != "full") & rows["probe_id"].isin(full.index)].dropna(subset=list(COVERAGES))
        known = known.assign(change=known["score"] - looked_up(known["probe_id"], full).astype(float))
        for (selector, arguments), own in known.groupby(["selector", "arguments"], sort=False):
            if own["probe_id"].nunique() >= FEWEST:
                arms = ", ".join(dict.fromkeys(own["arm"].astype(str)))
                family = {"model": model, "selector": selector, "arguments": arguments, "arms": arms}
                records += [{**family, **record} for record in _correlated(own, draws)]
    return table_of(records, f"no pruning arm has scores on at least {FEWEST} questions with regions")


def _correlated(own: pd.DataFrame, draws: int) -> list[Record]:
    """One record per coverage, over the rows of one selector."""
    sample, _ = numbered(own["probe_id"])
    samples = int(sample.max()) + 1
    change = own["change"].to_numpy(dtype=np.float64)
    columns = {name: own[name].to_numpy(dtype=np.float64) for name in COVERAGES}
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in COVERAGES}
    for counts in count_blocks(samples, draws, purpose="samples"):
        weights = np.ascontiguousarray(counts.T[sample])
        for name, column in columns.items():
            drawn[name].append(partial_spearman_draws(column, change, (), weights))
    values = {name: np.concatenate(parts) for name, parts in drawn.items()}
    shares = {name: correlation_shares(ranks(column), ranks(change), sample) for name, column in columns.items()}
    worst, union = COVERAGES
    advantage = interval(values[worst] - values[union], shares[worst].minus(shares[union]))
    return [
        {
            "coverage": words,
            "n": len(own),
            "samples": samples,
            **interval_columns("rho", interval(values[name], shares[name])),
            **interval_columns("advantage", advantage),
        }
        for name, words in COVERAGES.items()
    ]


def coverage_table(source: Source, draws: int) -> Table:
    """Does coverage, of the worst region or of the union, order questions by what pruning does to their score?"""

    def make(run: Audited) -> pd.DataFrame:
        found = coverage_and_score_frame(run.frame, draws=draws)
        return found.assign(selector=[_family(line) for line in found.to_dict("records")], run=run.name)

    frame = collect(Source(source.in_words, []), lambda rows: True, make)
    run = ["run"] if len(source.in_words) > 1 else []
    return build_table("coverage_and_score", frame, columns={"run": run}, sentence=_sentence(frame), draws=f"{draws:,}")


def _family(line: dict[Any, Any]) -> str:
    """The selector, with its arguments where it has any that are not its defaults in every arm."""
    arguments = json.loads(line["arguments"] or "{}")
    said = ", ".join(f"{key}={value}" for key, value in arguments.items())
    return f"{line['selector']} ({said})" if said else str(line["selector"])


def _sentence(frame: pd.DataFrame) -> str:
    """About the strongest association with the worst region that its interval tells from none."""
    worst = frame[frame["coverage"] == "worst region"]
    known = worst[worst["rho"].notna()]
    told = [line for _, line in known.iterrows() if excludes_zero(float(line["rho_low"]), float(line["rho_high"]))]
    if not told:
        return "No selector's coverage is shown to go with the change of its scores."
    line = max(told, key=lambda each: abs(float(each["rho"])))
    return (
        f"Coverage of the worst region goes with the change of the score under {len(told)} of {len(worst)} selectors, "
        f"most under {line['selector']}: {signed(line, 'rho')}."
    )
