from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.bootstrap import ImageSums
from sightline.statistics.metrics import (
    METRICS,
    POPULATIONS,
    answer_metrics,
    auroc,
    ece_bin,
    metric_named,
    point,
    why_not,
)

margins = st.lists(st.integers(-3, 3), min_size=2, max_size=30)


def example() -> ArmRows:
    """Two images, a positive and a negative probe each; one positive is right without a covered cell."""
    return ArmRows.of(
        [True, False, True, False],
        [2.0, 1.0, 0.0, -1.0],
        ["b", "b", "a", "a"],
        ecr=[1.0, 0.25, 0.0, 0.75],
        anchor_ecr=[0.5, 0.25, 0.0, 0.75],
        lpp=[0.2, 0.9, 0.0, 0.9],
        keep=[0.3, 0.3, 0.5, 0.5],
    )


def test_answers_by_hand() -> None:
    found = answer_metrics([True, True, False, False], [1.0, -1.0, 0.0, -2.0])
    assert found["accuracy"] == 0.5
    assert found["positive_accuracy"] == 0.5
    assert found["negative_accuracy"] == 0.5
    assert found["hfpr"] == 0.5  # the margin 0 says yes at t = 0
    assert found["yes_rate"] == 0.5
    assert found["auroc"] == 0.75
    yes = [1 / (1 + math.exp(-m)) for m in (1.0, -1.0, 0.0, -2.0)]
    assert found["brier"] == pytest.approx(np.mean([(p - y) ** 2 for p, y in zip(yes, (1, 1, 0, 0), strict=True)]))
    right = [yes[0], yes[1], 1 - yes[2], 1 - yes[3]]
    assert found["nll"] == pytest.approx(-np.mean(np.log(right)))


def test_a_threshold_moves_answers_but_not_ranking_or_likelihood() -> None:
    labels, values = [True, True, False, False], [1.0, -1.0, 0.0, -2.0]
    at_zero, at_half = answer_metrics(labels, values), answer_metrics(labels, values, threshold=0.5)
    assert at_half["hfpr"] == 0.0
    assert at_half["accuracy"] == 0.75
    for name in ("auroc", "ece", "brier", "nll"):
        assert at_half[name] == at_zero[name]


def test_geometry_by_hand() -> None:
    rows = example()
    assert point(METRICS["pos_ecr"], rows) == 0.5
    assert point(METRICS["neg_src"], rows) == 0.5
    assert point(METRICS["pn_average"], rows) == 0.5
    assert point(METRICS["anchor_ecr"], rows) == 0.25
    assert point(METRICS["lpp"], rows) == pytest.approx(0.1)
    assert point(METRICS["weakly_supported"], rows) == 0.5
    assert point(METRICS["unsupported"], rows) == 0.5
    assert point(METRICS["keep"], rows) == pytest.approx(0.4)


def test_pn_average_weighs_both_labels_equally_however_many_probes_each_has() -> None:
    rows = ArmRows.of([True, False, False, False], [0.0] * 4, ecr=[1.0, 0.0, 0.0, 0.0])
    assert point(METRICS["pn_average"], rows) == 0.5


def test_probes_without_regions_do_not_count_as_uncovered() -> None:
    rows = ArmRows.of([True, True], [1.0, 1.0], ecr=[0.8, 0.0], has_regions=[True, False])
    assert point(METRICS["pos_ecr"], rows) == 0.8


@given(margins, st.data())
def test_auroc_is_the_normalised_mann_whitney_statistic(values: list[int], data: st.DataObject) -> None:
    labels = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    scores = np.array(values, dtype=np.float64)
    if labels.all() or not labels.any():
        assert math.isnan(auroc(labels, scores))
        return
    expected = mannwhitneyu(scores[labels], scores[~labels]).statistic / (labels.sum() * (~labels).sum())
    assert auroc(labels, scores) == pytest.approx(expected, abs=1e-12)


def test_ece_bins_are_left_closed_and_the_last_holds_one() -> None:
    assert ece_bin(np.array([0.0, 1 / 15, 7 / 15, 14 / 15, 1.0])).tolist() == [0, 1, 7, 14, 14]
    assert ece_bin(np.array([np.nextafter(7 / 15, 0)])).tolist() == [6]


def test_nll_of_an_impossible_answer_is_clamped_not_infinite() -> None:
    assert answer_metrics([True, False], [-1e6, -1.0])["nll"] < 14.2


def test_every_metric_names_a_population_and_reads_only_what_it_needs() -> None:
    names = [
        "keep", "visible", "ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "worst_region",
        "all_half", "legibility", "score", "exact", "contains", "soft_accuracy", "anls", "anls_stripped", "ocrbench",
        "answer_loss",
    ]  # fmt: skip
    columns: dict[str, Any] = {name: [1.0, 1.0] for name in names}
    rows = ArmRows.of([True, False], [1.0, -1.0], ["a", "b"], **columns)
    for name, metric in METRICS.items():
        assert name == metric.name
        assert metric.over in POPULATIONS
        assert metric.definition
        assert why_not(metric, rows) == ""
        assert math.isfinite(point(metric, rows))


def test_the_bootstrap_statistic_at_one_count_per_image_is_the_point_estimate() -> None:
    rows = example()
    known = [metric for metric in METRICS.values() if not why_not(metric, rows)]
    assert len(known) > 12
    found = ImageSums.of(rows, known).point()
    assert found == pytest.approx([point(metric, rows) for metric in known], abs=1e-15)


@pytest.mark.parametrize(
    ("rows", "name", "words"),
    [
        (ArmRows.of([True, True], [1.0, 2.0]), "auroc", "needs both labels and all 2 of its probes have 'yes'"),
        (ArmRows.of([True, True], [1.0, 2.0]), "hfpr", "there are no negatives"),
        (ArmRows.of([True, False], [1.0, np.nan]), "accuracy", "1 of 2 margins are not finite"),
        (ArmRows.of([True, False], [1.0, np.inf]), "ece", "1 of 2 margins are not finite"),
        (ArmRows.of([True, False], [1.0, 2.0]), "pos_ecr", "no column 'ecr'"),
        (ArmRows.of([True], predicted=[True]), "brier", "no margin"),
        (ArmRows.of([True], ecr=[1.0]), "accuracy", "no prediction"),
        (ArmRows.of([True], [1.0], ecr=[1.0], has_regions=[False]), "pos_ecr", "there are no positives with regions"),
        (
            ArmRows.of([True], [1.0], ecr=[np.nan], has_regions=[True]),
            "pos_ecr",
            "1 of 1 values of 'ecr' are not finite",
        ),
        (
            ArmRows.of([True], [1.0], ecr=[np.nan], has_regions=[True]),
            "weakly_supported",
            "values of 'ecr' are not finite",
        ),
        (ArmRows.of([True], [1.0], ecr=[1.0], all_half=[0.7]), "all_half", "'all_half' has values other than 0 and 1"),
        (ArmRows.of([True], [-1.0], ecr=[1.0]), "weakly_supported", "there are no correctly answered positives"),
    ],
)
def test_what_cannot_be_computed_is_nan_with_a_reason(rows: ArmRows, name: str, words: str) -> None:
    assert words in why_not(METRICS[name], rows)
    assert math.isnan(point(METRICS[name], rows))


def test_the_documentation_lists_every_metric_as_defined() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "statistics.md").read_text()
    for metric in METRICS.values():
        line = f"| `{metric.name}` | {metric.label} | {metric.definition} | {metric.over} | {metric.better} |"
        assert line in page, line


def test_answers_without_margins_still_have_an_accuracy() -> None:
    assert point(METRICS["accuracy"], ArmRows.of([True, False], predicted=[True, True])) == 0.5


def test_bad_arrays_are_named() -> None:
    with pytest.raises(SightlineError, match=r"ecr has shape \(1,\)"):
        ArmRows.of([True, False], [1.0, 2.0], ecr=[1.0])
    with pytest.raises(SightlineError, match="labels must be true or false"):
        ArmRows.of(["yes", "no"], [1.0, 2.0])
    with pytest.raises(SightlineError, match="no rows"):
        ArmRows.of([], [])
    with pytest.raises(SightlineError, match="unknown metric 'acuracy'"):
        metric_named("acuracy")
