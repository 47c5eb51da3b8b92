"""What can be read from right answers: whether a model reads at all, and on what evidence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.correct_positives import correct_positive_provenance
from sightline.statistics.intervals import wilson
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import LEAST_IMAGES, NOTHING, arm_points, arm_rows, arm_summary, nothing_to_read

DRAWS = 500


def rows(labels: list[str], correct: list[bool], arm: str = "full", **columns: Any) -> pd.DataFrame:
    """Probes on images of their own, answered right or wrong."""
    ids = [f"p{place:03d}" for place in range(len(labels))]
    selector = arm.partition(":")[0]
    made = {"arm": arm, "selector": selector, "probe_id": ids, "image_id": ids, "label": labels, "correct": correct}
    return pd.DataFrame(made | columns)


def says(labels: list[str], answers: list[str], arm: str = "full") -> pd.DataFrame:
    return rows(labels, [label == answer for label, answer in zip(labels, answers, strict=True)], arm)


def scored(scores: list[float], arm: str = "full") -> pd.DataFrame:
    return rows(["open"] * len(scores), [score >= 0.5 for score in scores], arm, score=scores)


BALANCED = ["yes", "no"] * 30


MIXED = ["yes"] * 20 + ["no"] * 80
TURNED = ["no" if label == "yes" else "yes" for label in BALANCED]
SILENT = f"the model answers next to nothing right: {NOTHING}; Score of Full is 0.0"


@pytest.mark.parametrize(
    ("answered", "words"),
    [
        (says(BALANCED, ["no"] * 60), f"the model answers at chance: {NOTHING}; Balanced accuracy of Full is 0.500 ("),
        # 60 % right: the interval holds one half.
        (says(BALANCED, [*BALANCED[:36], *BALANCED[1:25]]), "the model answers at chance"),
        (says(BALANCED, [*BALANCED[:50], *["no"] * 10]), ""),
        (says(BALANCED, TURNED), "the model answers below chance: "),
        # Without any margin: always no is right in 80 of 100, and a model that says yes too often still reads (52 %
        # right, but all of the positives and 40 % of the negatives).
        (says(MIXED, ["no"] * 100), "the model answers at chance"),
        (says(MIXED, ["yes"] * 68 + ["no"] * 32), ""),
        # One label alone is compared with a coin.
        (says(["yes"] * 40, ["yes", "no"] * 20), f"the model answers at chance: {NOTHING}; Accuracy of Full is 0.500"),
        (says(["yes"] * 40, ["yes"] * 36 + ["no"] * 4), ""),
        # Open questions need a score surely above next to nothing.
        (scored([0.0] * 40), SILENT),
        (scored([1.0] * 3 + [0.0] * 37), SILENT),
        (scored([1.0] * 12 + [0.0] * 28), ""),
        # Answers of other kinds have no chance of one half.
        (rows(["14.50"] * 40, [True, False] * 20), ""),
        (rows(["14.50"] * 40, [False] * 40), "the model answers next to nothing right"),
    ],
)
def test_what_can_be_read_from_answers(answered: pd.DataFrame, words: str) -> None:
    found = nothing_to_read(answered, draws=DRAWS)
    assert found.startswith(words)
    assert bool(found) == bool(words)
    assert found.endswith(", not surely above 0.05") == ("next to nothing" in words)


def test_too_few_images_are_said_whatever_was_answered() -> None:
    few = says(BALANCED[:8], BALANCED[:8])
    assert nothing_to_read(few, draws=DRAWS) == f"8 images are fewer than {LEAST_IMAGES}: {NOTHING}"
    assert "at chance" in nothing_to_read(few, least_images=8, draws=DRAWS), "8 right of 8 may be luck"
    crowded = says(BALANCED, BALANCED).assign(image_id=[f"i{place % 4}" for place in range(60)])
    assert "4 images are fewer" in nothing_to_read(crowded, draws=DRAWS), "60 probes of 4 images are 4 images"


def test_without_full_the_arm_that_answers_best_speaks_for_the_model() -> None:
    chance = says(BALANCED, ["no"] * 60, "random:0.3")
    reads = says(BALANCED, BALANCED, "target:0.3")
    assert nothing_to_read(pd.concat([chance, reads]), draws=DRAWS) == ""
    found = nothing_to_read(pd.concat([chance, says(BALANCED, ["yes"] * 60, "grid:0.3")]), draws=DRAWS)
    assert "Balanced accuracy of random:0.3, the best arm of a run without Full, is 0.500 (" in found
    assert "at chance" in nothing_to_read(pd.concat([reads, chance.assign(arm="full", selector="full")]), draws=DRAWS)


def test_metrics_know_whether_they_read_answers() -> None:
    blind = {name for name, metric in METRICS.items() if not metric.reads_answers}
    assert blind >= {"keep", "pos_ecr", "anchor_ecr", "neg_src", "relative_pos_ecr", "lpp", "legibility", "illegible"}
    reading = {"accuracy", "hfpr", "auroc", "score", "exact", "answer_loss", "ece", "unsupported", "weakly_supported"}
    assert not blind & {*reading, "balanced_accuracy", "yes_rate", "nll", "ocrbench", "unsupported_by_pruning"}


def test_balanced_accuracy_is_the_mean_over_both_labels() -> None:
    labels = ["yes"] * 10 + ["no"] * 30
    found = arm_points(says(labels, ["yes"] * 9 + ["no"] * 31), ["balanced_accuracy", "accuracy"])
    assert found["balanced_accuracy"] == pytest.approx((0.9 + 1.0) / 2)
    assert found["accuracy"] == pytest.approx(39 / 40)
    assert np.isnan(arm_points(says(["yes"] * 4, ["yes"] * 4), ["balanced_accuracy"])["balanced_accuracy"])


def test_only_correct_positives_with_regions_count() -> None:
    rows = ArmRows.of(
        [True, True, True, True, True, False],
        [1.0, 1.0, 1.0, -1.0, 1.0, 1.0],
        ["a", "b", "c", "d", "e", "f"],
        ecr=[0.0, 1e-13, 0.5, 0.0, 0.0, 0.0],
        has_regions=[True, True, True, True, False, True],
    )
    found = correct_positive_provenance(rows, draws=500)
    assert (found.positives, found.correct, found.accuracy) == (4, 3, 0.75)
    assert (found.weakly_supported.count, found.unsupported.count) == (2, 2)  # 0.5 is not low; 1e-13 is zero
    assert found.weakly_supported.rate == pytest.approx(2 / 3)
    assert found.weakly_supported.wilson == wilson(2, 3)
    assert found.mean_ecr == pytest.approx(0.5 / 3)
    assert math.isnan(found.mean_anchor_ecr)
    assert found.weakly_supported.cluster[0] <= 2 / 3 <= found.weakly_supported.cluster[1]
    none = correct_positive_provenance(ArmRows.of([True, True], [-1.0, -1.0], ecr=[0.5, 0.5]))
    share = none.weakly_supported
    assert none.correct == 0
    assert np.isnan([share.rate, *share.wilson, *share.cluster]).all(), "no correct positive is NaN, not a crash"


def test_cluster_interval_is_wider_when_probes_of_an_image_agree() -> None:
    covered = np.repeat(np.random.default_rng(0).random(40) < 0.5, 5).astype(float)
    together = ArmRows.of(np.ones(200), np.ones(200), np.repeat(np.arange(40), 5), ecr=covered)
    found = correct_positive_provenance(together, draws=2000).weakly_supported
    assert found.cluster[1] - found.cluster[0] > 1.6 * (found.wilson[1] - found.wilson[0])


def test_a_share_has_the_interval_that_the_summary_of_its_arm_gives_it() -> None:
    ecr = np.where(np.arange(30) < 6, 0.2, 1.0)
    names = [f"{i:02}" for i in range(30)]
    frame = pd.DataFrame(
        {"arm": "a", "probe_id": names, "image_id": names, "label": "yes", "correct": True, "ecr": ecr}
    )
    found = correct_positive_provenance(arm_rows(frame), draws=300)
    line = arm_summary(frame, draws=300).iloc[0]
    for name, share in (("weakly_supported", found.weakly_supported), ("unsupported", found.unsupported)):
        assert (line[f"{name}_low"], line[f"{name}_high"]) == share.cluster
    assert (found.weakly_supported.kind, found.unsupported.kind) == ("unseen", "unseen")
    assert found.unsupported.cluster == pytest.approx((0.0, 1 - 0.025 ** (1 / 30)), abs=1e-4)
    exact = binomtest(6, 30).proportion_ci(method="exact")
    assert found.weakly_supported.cluster == pytest.approx((exact.low, exact.high), abs=0.005)
    assert {"unsupported", "weakly_supported"} <= set(line["few_differ"].split(", "))
