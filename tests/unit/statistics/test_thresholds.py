"""Where to cut the margin, and rules that say so."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from sightline.errors import SightlineError
from sightline.statistics import thresholds
from sightline.statistics.metrics import auroc
from sightline.statistics.thresholds import (
    Development,
    OperatingPoint,
    accuracy_optimal,
    candidates,
    evaluate,
    parse_threshold,
    read_thresholds,
    risk_constrained,
)
from tests.refusals import Refused
from tests.unit.statistics.golden_rows import development, run_frame, table

scored = st.lists(st.tuples(st.booleans(), st.integers(-4, 4)), min_size=1, max_size=25)
close = st.lists(st.tuples(st.booleans(), st.floats(-1e-300, 1e-300) | st.floats(-9, 9)), min_size=1, max_size=20)
"""Midpoints that round onto a margin."""


def by_scanning(labels: list[bool], margins: list[float]) -> float:
    """The rule as it is stated: scan ascending, keep the first maximum of (accuracy, -hFPR, -|yes rate - 1/2|)."""
    best: tuple[tuple[float, float, float], float] | None = None
    negatives = labels.count(False)
    for cut in candidates(margins).tolist():
        yes = [m >= cut for m in margins]
        right = sum(y == t for y, t in zip(yes, labels, strict=True)) / len(labels)
        false = sum(y and not t for y, t in zip(yes, labels, strict=True)) / negatives if negatives else 0.0
        key = (right, -false, -abs(sum(yes) / len(yes) - 0.5))
        if best is None or key > best[0]:
            best = (key, cut)
    assert best is not None
    return best[1]


@given_any(scored | close)
def test_the_vectorised_scan_is_the_stated_rule(rows: list[tuple[bool, float]]) -> None:
    labels, margins = [label for label, _ in rows], [float(margin) for _, margin in rows]
    assert accuracy_optimal(labels, margins).threshold == by_scanning(labels, margins)


def test_a_margin_on_the_threshold_says_yes_and_an_empty_class_has_no_rate() -> None:
    assert thresholds.predict([-1.0, 0.0, 1.0]).tolist() == [False, True, True]
    assert evaluate([True, False], [0.5, 0.5], 0.5).hfpr == 1.0
    assert math.isnan(evaluate([True], [1.0]).hfpr)
    assert math.isnan(evaluate([False], [1.0]).positive_accuracy)
    found = thresholds.flips([True, True, False, False], [True, False, True, False])
    assert (found.no_to_yes, found.yes_to_no, found.total) == (1, 1, 2)


def test_of_equally_accurate_thresholds_the_lower_hfpr_then_the_smaller_is_taken() -> None:
    low, high = 1.0, float(np.nextafter(1.0, 2.0))
    assert candidates([low, high])[1] in (low, high)
    point = accuracy_optimal([False, True], [low, high])
    assert point == evaluate([False, True], [low, high], point.threshold)
    # To fewer false positives (no to all, or yes to all but the lowest, are right twice in four), then to the smaller.
    assert accuracy_optimal([True, False, True, False], [1.0, 2.0, 3.0, 4.0]).hfpr == 0.0
    assert accuracy_optimal([True, True], [1.0, 2.0]).threshold == 0.0
    labels, margins = [True, False, True, False, True], [2.0, 1.0, 1.5, -1.0, 0.2]
    assert risk_constrained(labels, margins, 1.0) == accuracy_optimal(labels, margins), "a slack bound"


@given_any(scored, st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))
def test_risk_constrained_is_the_best_that_meets_the_bound(rows: list[tuple[bool, int]], bound: float) -> None:
    labels, margins = np.array([label for label, _ in rows]), np.array([float(margin) for _, margin in rows])
    if labels.all():
        with pytest.raises(SightlineError, match="needs negative probes"):
            risk_constrained(labels, margins, bound)
        return
    points = [evaluate(labels, margins, cut) for cut in candidates(margins) if (margins >= cut).any()]
    feasible = [point for point in points if point.hfpr <= bound + 1e-12]
    if not feasible:
        with pytest.raises(SightlineError, match="lowest within reach"):
            risk_constrained(labels, margins, bound)
        return
    found = risk_constrained(labels, margins, bound)
    assert found.hfpr <= bound + 1e-12
    assert found.accuracy == max(point.accuracy for point in feasible)
    equals = [point for point in feasible if point.accuracy == found.accuracy]
    assert found.hfpr == min(point.hfpr for point in equals)
    assert found.threshold == min(point.threshold for point in equals if point.hfpr == found.hfpr)


INTERNVL = "internvl_textocr_hard/internvl35_8b_textocr_hard_full1000"
COLUMNS = {
    "acc": "accuracy", "hFPR": "hfpr", "pos_acc": "positive_accuracy", "neg_acc": "negative_accuracy",
    "yes_rate": "yes_rate",
}  # fmt: skip


def test_reference_thresholds_of_every_calibrated_run_and_the_shared_one(data: Path) -> None:
    def arm(run: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        frame = run_frame(data, f"{INTERNVL}_{run}")
        return (frame["polarity"] == "positive").to_numpy(), frame["margin"].to_numpy(), development(frame)

    analysis = data / "golden_e2e" / "analysis"
    for summary in json.loads((analysis / "internvl_calibrate.json").read_text())["summaries"]:
        labels, margins, dev = arm(summary["name"])
        best, overall = accuracy_optimal(labels[dev], margins[dev]), accuracy_optimal(labels, margins)
        assert best.threshold == summary["dev_best_threshold"]
        assert overall.threshold == summary["all_best_threshold"]
        assert auroc(labels, margins) == pytest.approx(summary["margin_auroc_all"], abs=1e-15)
        points: dict[str, OperatingPoint] = {
            "dev_best_dev": best,
            "dev_best_test": evaluate(labels[~dev], margins[~dev], best.threshold),
            "all_best_all": overall,
            "default_all": evaluate(labels, margins),
            "default_dev": evaluate(labels[dev], margins[dev]),
            "default_test": evaluate(labels[~dev], margins[~dev]),
        }
        for key, point in points.items():
            found = {name: getattr(point, ours) for name, ours in COLUMNS.items()}
            assert found == pytest.approx(summary[key], abs=1e-15), (summary["name"], key)
    for row in table(analysis / "internvl_shared_threshold.csv"):
        labels, margins, dev = arm(row["run"])
        point = evaluate(labels[~dev], margins[~dev], float(row["threshold"]))
        assert int((~dev).sum()) == int(row["n"])
        assert (point.accuracy, point.hfpr) == pytest.approx((float(row["accuracy"]), float(row["hFPR"])), abs=1e-15)


YES_NO = np.array([True, False, True, False])
SEEN = Development(
    {"full": (YES_NO, np.array([3.0, 1.0, 4.0, 0.0])), "grid:0.3": (YES_NO, np.array([1.0, -1.0, 2.0, -2.0]))}, "full"
)


def test_a_rule_names_the_threshold_of_every_arm(refused: Refused) -> None:
    for text, full, grid in (
        ("2.043", 2.043, 2.043),
        ("-1", -1.0, -1.0),
        ("full-dev", 2.0, 2.0),
        ("own-dev", 2.0, 0.0),
        ("hfpr<=1", 2.0, 0.0),
        # Seven of eight rows are right at 0.5 and at 1.5: the tie goes to the lower hFPR.
        ("shared", 1.5, 1.5),
    ):
        rule = parse_threshold(text)
        assert [rule.threshold(arm, SEEN) for arm in SEEN.arms] == [full, grid], text
    of_full, own = parse_threshold("full-dev").threshold, parse_threshold("own-dev").threshold
    assert of_full("target:0.5", SEEN) == 2.0, "also of an arm that has no development row"
    refused("no development row to choose its threshold on; ", own, "target:0.5", SEEN)
    refused("no development row of a full arm", of_full, "grid:0.3", Development(SEEN.arms, None))


def test_a_rule_is_written_as_it_reads_for_all_models_or_one() -> None:
    given, within_risk = thresholds.given, thresholds.within_risk
    for text in ("full-dev", "own-dev", "shared", "hfpr<=0.05", "2.043"):
        assert str(parse_threshold(text)) == text
    assert parse_threshold(" hFPR <= 0.05 ") == within_risk(0.05)
    rules = read_thresholds(["hfpr<=0.05", "Org/InternVL=2.043", "Qwen=hfpr<=0.1"])
    assert rules == {None: within_risk(0.05), "Org/InternVL": given(2.043), "Qwen": within_risk(0.1)}
    assert thresholds.threshold_for(rules, "Qwen") == within_risk(0.1)
    assert thresholds.threshold_for(rules, "LLaVA") == within_risk(0.05)
    assert thresholds.threshold_for(read_thresholds("Qwen=0.5"), "LLaVA") is None
    assert read_thresholds(2) == read_thresholds("2") == read_thresholds(given(2.0)) == {None: given(2.0)}
    assert read_thresholds({"Qwen": 1.5, "LLaVA": "own-dev"}) == read_thresholds(["Qwen=1.5", "LLaVA=own-dev"])
    shortened = [thresholds.shown(value) for value in (2.0425992, 0.0, -0.0001, -1.5, 10.0)]
    assert shortened == ["2.043", "0", "0", "−1.5", "10"], "three decimals at most"
