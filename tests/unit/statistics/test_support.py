"""What can be read from right answers: whether a model reads at all, and on what evidence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.correct_positives import correct_positive_provenance
from sightline.statistics.intervals import wilson
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import LEAST_IMAGES, NOTHING, arm_rows, arm_summary, nothing_to_read

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


def test_an_interval_that_reaches_one_half_is_chance() -> None:
    found = nothing_to_read(says(BALANCED, ["no"] * 60), draws=DRAWS)
    assert found.startswith(f"the model answers at chance: {NOTHING}; Balanced accuracy of Full is 0.500 (")
    somewhat = says(BALANCED, [*BALANCED[:36], *BALANCED[1:25]])  # 60 % right: the interval holds one half
    assert "at chance" in nothing_to_read(somewhat, draws=DRAWS)
    assert nothing_to_read(says(BALANCED, [*BALANCED[:50], *["no"] * 10]), draws=DRAWS) == ""


def test_answers_surely_below_one_half_say_as_little() -> None:
    turned = ["no" if label == "yes" else "yes" for label in BALANCED]
    assert nothing_to_read(says(BALANCED, turned), draws=DRAWS).startswith("the model answers below chance: ")


def test_the_share_of_a_label_is_no_knowledge_and_no_excuse() -> None:
    """Without any margin: always no is right in 80 of 100, and a model that says yes too often still reads."""
    labels = ["yes"] * 20 + ["no"] * 80
    assert "at chance" in nothing_to_read(says(labels, ["no"] * 100), draws=DRAWS)
    eager = ["yes"] * 20 + ["yes"] * 48 + ["no"] * 32  # 52 % right, but all of the positives and 40 % of the negatives
    assert nothing_to_read(says(labels, eager), draws=DRAWS) == ""


def test_one_label_alone_is_compared_with_a_coin() -> None:
    assert "Accuracy of Full is 0.500" in nothing_to_read(says(["yes"] * 40, ["yes", "no"] * 20), draws=DRAWS)
    assert nothing_to_read(says(["yes"] * 40, ["yes"] * 36 + ["no"] * 4), draws=DRAWS) == ""


@pytest.mark.parametrize(("right", "silent"), [(0, True), (3, True), (12, False)])
def test_open_questions_need_a_score_surely_above_next_to_nothing(right: int, silent: bool) -> None:
    found = nothing_to_read(scored([1.0] * right + [0.0] * (40 - right)), draws=DRAWS)
    assert bool(found) == silent
    if silent:
        assert found.startswith(f"the model answers next to nothing right: {NOTHING}; Score of Full is 0.0")
        assert found.endswith(", not surely above 0.05")


def test_answers_of_other_kinds_have_no_chance_of_one_half() -> None:
    spelled = rows(["14.50"] * 40, [True, False] * 20)
    assert nothing_to_read(spelled, draws=DRAWS) == ""
    assert "next to nothing" in nothing_to_read(rows(["14.50"] * 40, [False] * 40), draws=DRAWS)


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
    from sightline.statistics.summaries import arm_points

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


def test_no_correct_positive_is_nan_not_a_crash() -> None:
    found = correct_positive_provenance(ArmRows.of([True, True], [-1.0, -1.0], ecr=[0.5, 0.5]))
    assert found.correct == 0
    assert math.isnan(found.weakly_supported.rate)
    assert all(math.isnan(bound) for bound in (*found.weakly_supported.wilson, *found.weakly_supported.cluster))


def test_rows_without_regions_are_refused() -> None:
    with pytest.raises(SightlineError, match="provenance cannot be computed: there are no positives with regions"):
        correct_positive_provenance(ArmRows.of([True], [1.0], ecr=[0.0], has_regions=[False]))
