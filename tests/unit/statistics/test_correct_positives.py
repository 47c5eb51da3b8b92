from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.correct_positives import correct_positive_provenance
from sightline.statistics.intervals import wilson
from sightline.statistics.summaries import arm_rows, arm_summary


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
