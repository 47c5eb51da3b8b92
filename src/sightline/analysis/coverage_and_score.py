"""Does an answer keep its score because its evidence was kept? Rank correlations over questions and budgets."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sightline.analysis.comparison import Record, by_model, interval_columns, table_of
from sightline.analysis.score_changes import full_arm, rows_in_words
from sightline.statistics.bootstrap import DRAWS, SEED, count_blocks
from sightline.statistics.correlation import correlation_shares, partial_spearman_draws, ranks
from sightline.statistics.intervals import interval
from sightline.statistics.keyed import looked_up, numbered

COVERAGES = {"worst_region": "worst region", "ecr": "union"}
"""Row column -> how it takes several regions together: the least covered one decides, or their common area."""
FEWEST = 5


def coverage_and_score_table(frame: pd.DataFrame, *, draws: int = DRAWS, seed: int = SEED) -> pd.DataFrame:
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
                records += [{**family, **record} for record in _correlated(own, draws, seed)]
    return table_of(records, f"no pruning arm has scores on at least {FEWEST} questions with regions")


def _correlated(own: pd.DataFrame, draws: int, seed: int) -> list[Record]:
    """One record per coverage, over the rows of one selector."""
    sample, _ = numbered(own["probe_id"])
    samples = int(sample.max()) + 1
    change = own["change"].to_numpy(dtype=np.float64)
    columns = {name: own[name].to_numpy(dtype=np.float64) for name in COVERAGES}
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in COVERAGES}
    for counts in count_blocks(samples, draws, seed, "samples"):
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
