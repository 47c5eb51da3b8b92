"""Coverage and what became of the score: Spearman over questions and budgets, questions drawn as clusters."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from sightline.errors import SightlineError
from sightline.report.sections.region_coverage import coverage_and_score_frame
from sightline.statistics.bootstrap import SEED, count_blocks
from tests.unit.analysis.open_frame import TASKS, open_frame

DRAWS = 200


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    found = open_frame()
    rng = np.random.default_rng(4)
    return found.assign(ecr=np.clip(found["worst_region"] + rng.normal(0.0, 0.5, len(found)), 0.0, 1.0))


def observations(frame: pd.DataFrame) -> pd.DataFrame:
    """Both budgets of Target, beside the change of score."""
    full = frame[frame["arm"] == "full"].set_index("probe_id")["score"]
    own = frame[frame["arm"].isin(["target:0.3", "target:0.7"])]
    return own.assign(change=own["score"] - own["probe_id"].map(full))


def test_correlations_are_over_all_budgets_of_a_selector(frame: pd.DataFrame) -> None:
    table = coverage_and_score_frame(frame, draws=DRAWS)
    own = table[table["arms"] == "target:0.3, target:0.7"].set_index("coverage")
    worst, union = (own["rho"].astype(float)[name] for name in ("worst region", "union"))
    seen = observations(frame)
    assert set(own.index) == {"worst region", "union"}
    assert set(own["n"]) == {2 * sum(TASKS.values())}
    assert set(own["samples"]) == {sum(TASKS.values())}
    assert worst == pytest.approx(spearmanr(seen["worst_region"], seen["change"]).statistic)
    assert union == pytest.approx(spearmanr(seen["ecr"], seen["change"]).statistic)
    assert worst > union
    assert own["advantage"].tolist() == pytest.approx([worst - union] * 2)


@pytest.mark.usefixtures("plain_percentiles")
def test_intervals_draw_questions_with_all_their_budgets_and_rank_anew(frame: pd.DataFrame) -> None:
    table = coverage_and_score_frame(frame, draws=DRAWS)
    line = table[(table["arms"] == "target:0.3, target:0.7") & (table["coverage"] == "worst region")].iloc[0]
    seen = observations(frame)
    sample = np.unique(seen["probe_id"], return_inverse=True)[1]
    rhos, advantages = [], []
    for counts in np.concatenate(list(count_blocks(int(sample.max()) + 1, DRAWS, SEED, "samples"))).astype(int):
        drawn = seen.iloc[np.repeat(np.arange(len(seen)), counts[sample])]
        worst, union = (spearmanr(drawn[name], drawn["change"]).statistic for name in ("worst_region", "ecr"))
        rhos.append(worst)
        advantages.append(worst - union)
    assert (line["rho_low"], line["rho_high"]) == pytest.approx(tuple(np.quantile(rhos, [0.025, 0.975])))
    bounds = tuple(np.quantile(advantages, [0.025, 0.975]))
    assert (line["advantage_low"], line["advantage_high"]) == pytest.approx(bounds)


def test_questions_without_regions_say_nothing(frame: pd.DataFrame) -> None:
    bare = frame.assign(worst_region=frame["worst_region"].where(frame["task"] == "textvqa"))
    assert set(coverage_and_score_frame(bare, draws=20)["samples"]) == {TASKS["textvqa"]}
    with pytest.raises(SightlineError, match="questions with regions"):
        coverage_and_score_frame(frame.assign(worst_region=np.nan), draws=20)
