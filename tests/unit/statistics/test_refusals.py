"""What statistics refuse, in one line that names it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sightline.analysis.comparison import clustered_mean
from sightline.statistics import paired, thresholds
from sightline.statistics.agreement import kappa_interval
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.bootstrap import difference_interval, metric_interval
from sightline.statistics.correct_positives import correct_positive_provenance
from sightline.statistics.correlation import pearson, spearman_intervals
from sightline.statistics.intervals import wilson
from sightline.statistics.metrics import METRICS, said_yes
from sightline.statistics.summaries import arm_summary, paired_differences
from tests.refusals import Refused
from tests.unit.statistics.test_summaries import frame

ACCURACY, HFPR, ECR = METRICS["accuracy"], METRICS["hfpr"], METRICS["pos_ecr"]
POSITIVES = ArmRows.of([True, True], [1.0, 2.0])
TWO, THREE = (ArmRows.of([True] * n, np.ones(n), np.arange(n), ecr=np.linspace(0.1, 0.3, n)) for n in (2, 3))


def on(images: list[str]) -> ArmRows:
    return ArmRows.of([True, False], [1.0, -1.0], images)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    # Rows.
    (lambda: ArmRows.of([True, False], [1.0, 2.0], ecr=[1.0]), "ecr has shape (1,)"),
    (lambda: ArmRows.of(["yes", "no"], [1.0, 2.0]), "labels must be true or false"),
    (lambda: ArmRows.of([], []), "no rows"),
    (lambda: METRICS.get("acuracy"), "unknown metric 'acuracy'"),
    (lambda: said_yes(ArmRows.of([True, False])), "neither margins nor predictions"),
    (lambda: correct_positive_provenance(ArmRows.of([True], [1.0], ecr=[0.0], has_regions=[False])),
     "provenance cannot be computed: there are no positives with regions"),
    (lambda: arm_summary(frame().drop(columns="image_id")), "no column 'image_id'"),
    (lambda: arm_summary(frame().iloc[:0]), "the run has no rows"),
    (lambda: arm_summary(frame(), metrics=["nope"]), "unknown metric"),
    (lambda: paired_differences(frame(), "fulll"), "no arm 'fulll' to compare with; did you mean 'full'"),
    # Intervals.
    (lambda: metric_interval(on(["a", "a"]), ACCURACY), "at least two images"),
    (lambda: metric_interval(POSITIVES, METRICS["auroc"]), "auroc cannot be computed: it needs both labels"),
    (lambda: clustered_mean(np.zeros(3), np.arange(3), draws=0), "at least one draw"),
    (lambda: difference_interval(on(["a", "b"]), on(["a", "c"]), ACCURACY), "same images"),
    (lambda: paired.two_stage_difference(TWO, [TWO], ECR), "at least two seeds"),
    (lambda: paired.two_stage_difference(TWO, [TWO, THREE], ECR), "on the images of the arm"),
    (lambda: paired.two_stage_difference(TWO, [TWO, TWO], HFPR), "no negatives"),
    (lambda: wilson(11, 10), "11 successes in 10"),
    # Two arms.
    (lambda: paired.mcnemar_p(-1, 2), "negative"),
    (lambda: paired.mcnemar([1, 0], [1]), "differ in length"),
    (lambda: paired.holm([0.1, float("nan")]), "between 0 and 1"),
    (lambda: paired.ScoreDifferences.of(np.zeros((0, 1))), "paired comparison needs at least one question"),
    (lambda: paired.ScoreDifferences.of(np.array([[np.nan]])), "paired comparison needs a score"),
    (lambda: paired.ScoreDifferences.of(np.zeros(3)), "paired comparison needs at least one question"),
    (lambda: paired.images_needed([0.1], 0.1), "power needs finite shares of at least two images"),
    (lambda: paired.images_needed([0.1, 0.2], 0.0), "difference of 0"),
    (lambda: paired.image_differences(POSITIVES, POSITIVES, HFPR),
     "power for hfpr cannot be computed: there are no negatives"),
    (lambda: paired.describe_noninferiority(-0.1, 0.1, 0.0), "must be positive"),
    (lambda: paired.equivalence(-0.01, 0.015, 0.0), "a margin of equality must be positive"),
    # Correlations and annotators.
    (lambda: pearson([1.0, 2.0], [1.0, 2.0]), "at least three rows"),
    (lambda: pearson([1.0, 2.0, 3.0], [1.0, 2.0]), "y has shape"),
    (lambda: spearman_intervals({"x": [1.0, 2.0, np.nan]}, {"y": [1.0, 2.0, 3.0]}), "not finite"),
    (lambda: spearman_intervals({"a": np.arange(9.0)}, {"a": np.arange(9.0)}), "different names"),
    (lambda: kappa_interval(["y", "n"], ["y", "n", "n"]), "same rows"),
    # Thresholds.
    (lambda: thresholds.risk_constrained([True, False, True, False], [1.0, 3.0, 2.0, 0.0], 0.1),
     "hFPR <= 0.1 on 4 development rows; the lowest within reach is 0.5000"),
    (lambda: thresholds.risk_constrained([True, False], [1.0, 0.0], 1.5), "must lie in [0, 1]"),
    (lambda: thresholds.flips([True], [True, False]), "flips need the same rows"),
    (lambda: thresholds.accuracy_optimal([], []), "development split is empty"),
    (lambda: thresholds.accuracy_optimal([True, False], [np.nan, 1.0]), "1 of 2 are not"),
    (lambda: thresholds.evaluate([True], [1.0, 2.0]), "do not pair up"),
    (lambda: thresholds.read_thresholds(["0.5", "full-dev"]), "two thresholds for all models"),
    (lambda: thresholds.read_thresholds(["Qwen=0.5", "Qwen=full-dev"]), "two thresholds for model 'Qwen'"),
    (lambda: thresholds.check_models(thresholds.read_thresholds("reader-mimi=2"), ["reader-mini", "reader-mini"]),
     "model 'reader-mimi', which no run has; did you mean 'reader-mini'"),
    (lambda: thresholds.check_models(thresholds.read_thresholds("zebra=2"), ["a", "b"]), "models: a, b"),
]  # fmt: skip
PARSED = {
    "full_dev": "'full_dev' is not a threshold; did you mean 'full-dev'?",
    "hfpr<0.05": "'hfpr<0.05' is not a threshold; did you mean 'hfpr<=0.05'?",
    "banana": "write a number, full-dev, own-dev, shared or hfpr<=0.05",
    "nan": "'nan' is not a threshold",
    "hfpr<=low": "'low' is not a number; write for example hfpr<=0.05",
    "hfpr<=1.5": "a bound on hFPR must lie in [0, 1], got 1.5",
    "hfpr<=-0.1": "a bound on hFPR must lie in [0, 1], got -0.1",
}


def test_what_cannot_be_computed_is_refused_in_one_line(refused: Refused) -> None:
    for ask, about in REFUSED:
        refused(about, ask)
    for text, about in PARSED.items():
        refused(about, thresholds.parse_threshold, text)
