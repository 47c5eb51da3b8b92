"""Published tables that can be recomputed from the counts they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.statistics.intervals import wilson
from sightline.statistics.paired import mcnemar_p
from sightline.statistics.paired_scores import seed_summary
from tests.unit.statistics.golden_rows import table


@pytest.fixture(scope="module")
def evidence(data: Path) -> Path:
    return data / "protocol" / "paper_evidence"


@pytest.mark.parametrize("share", ["lt_0p50", "eq_0"])
def test_wilson_intervals_of_correct_positive_provenance(evidence: Path, share: str) -> None:
    rows = table(evidence / "correct_positive_provenance.csv")
    assert rows
    for row in rows:
        stem = f"correct_positive_ecr_{share}"
        low, high = wilson(int(row[f"{stem}_count"]), int(row["correct_positive_probes"]))
        assert low == pytest.approx(float(row[f"{stem}_ci_low"]), abs=1e-14), row["method"]
        assert high == pytest.approx(float(row[f"{stem}_ci_high"]), abs=1e-14), row["method"]


@pytest.mark.parametrize(
    "name",
    [
        "locked_confirmation_hfpr_sensitivity.csv",
        "locked_confirmation_valid465_full_metrics.csv",
        "hard_negative_result_sensitivity.csv",
    ],
)
def test_wilson_intervals_of_hfpr_to_the_six_printed_decimals(evidence: Path, name: str) -> None:
    rows = table(evidence / name)
    assert rows
    for row in rows:
        low, high = wilson(int(row["false_positives"]), int(row["negative_n"]))
        assert (f"{low:.6f}", f"{high:.6f}") == (row["hFPR_ci95_low"], row["hFPR_ci95_high"])


def test_wilson_interval_of_annotator_agreement(evidence: Path) -> None:
    printed = {row["metric"]: row["value"] for row in table(evidence / "pre_adjudication_agreement_summary.csv")}
    n = int(printed["n"])
    low, high = wilson(round(float(printed["exact_agreement"]) * n), n)
    assert (f"{low:.3f}", f"{high:.3f}") == (printed["agreement_ci95_low"], printed["agreement_ci95_high"])


@pytest.mark.parametrize("name", ["scope_confirmation_pairwise.csv", "alpha0_vs_alpha1_paired.csv"])
@pytest.mark.parametrize("metric", ["acc", "hfpr"])
def test_exact_mcnemar(evidence: Path, name: str, metric: str) -> None:
    for row in table(evidence / name):
        p = mcnemar_p(int(row[f"{metric}_mcnemar_b"]), int(row[f"{metric}_mcnemar_c"]))
        assert p == pytest.approx(float(row[f"{metric}_mcnemar_p"]), rel=1e-11), row["label"]


def test_sign_tests_of_the_pairwise_table_are_the_same_exact_test(evidence: Path) -> None:
    rows = [row for row in table(evidence / "pairwise_stats.csv") if row["acc_sign_p"]]
    assert rows
    for row in rows:
        p = mcnemar_p(int(float(row["acc_left_better"])), int(float(row["acc_left_worse"])))
        assert p == pytest.approx(float(row["acc_sign_p"]), rel=1e-11), row["comparison"]


def test_random_seed_summary_uses_the_population_standard_deviation(evidence: Path) -> None:
    seeds = table(evidence / "per_seed_metrics.csv")
    for row in table(evidence / "random_seed_summary.csv"):
        found = seed_summary([float(seed[row["metric"]]) for seed in seeds])
        assert found.seeds == int(row["n_random_seeds"])
        expected = [float(row[key]) for key in ("mean", "population_sd", "minimum", "maximum")]
        assert [found.mean, found.sd, found.minimum, found.maximum] == pytest.approx(expected, abs=1e-15)
