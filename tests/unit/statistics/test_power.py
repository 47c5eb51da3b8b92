from __future__ import annotations

import numpy as np
import pytest

from sightline.analysis.comparison import clustered_mean
from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.bootstrap import difference_interval, replicate
from sightline.statistics.metrics import METRICS
from sightline.statistics.paired import POWER, image_differences, images_needed


def test_the_named_number_of_images_has_the_named_power_in_simulated_studies() -> None:
    """Counts how often the bootstrap interval of a simulated study around a true difference excludes 0."""
    rng = np.random.default_rng(1)
    pilot = rng.choice([-0.5, 0.0, 0.5], size=1000, p=[0.15, 0.6, 0.25])
    shift = 0.08
    images = images_needed(pilot, shift)
    assert images_needed(pilot, -shift) == images < images_needed(pilot, shift / 2)
    centred = pilot - pilot.mean()
    found, studies = 0, 1000
    for _ in range(studies):
        study = rng.choice(centred, size=images) + shift
        interval = clustered_mean(study, np.arange(images), draws=500)
        found += not interval.low <= 0.0 <= interval.high
    # A share of 1000 studies around p = 0.8 has the standard error sqrt(p (1 - p) / 1000) = 0.0126; 3 are allowed.
    assert found / studies == pytest.approx(POWER, abs=3 * np.sqrt(POWER * (1 - POWER) / studies))


@pytest.mark.parametrize("name", ["accuracy", "hfpr", "pos_ecr", "pn_average", "auroc"])
def test_image_differences_have_the_variance_of_the_paired_bootstrap(name: str) -> None:
    rng = np.random.default_rng(2)
    ids = np.repeat(np.arange(120), rng.integers(1, 4, 120))
    labels = rng.random(len(ids)) < 0.5
    base = rng.normal(size=len(ids)) + labels
    arms = [ArmRows.of(labels, base + 0.5 * rng.normal(size=len(ids)), ids, ecr=rng.random(len(ids))) for _ in range(2)]
    metric = METRICS[name]
    shares = image_differences(arms[0], arms[1], metric)
    draws = np.subtract(*(replicate(arm, [metric], draws=4000)[:, 0] for arm in arms))
    # The standard deviation of 4000 draws has the relative error 1 / sqrt(2 * 4000) = 0.011, 3 of which are 0.034; the
    # jackknife adds its bias, of the order of 1 / 120 images for a ratio and of a few of those for AUROC.
    assert shares.std(ddof=1) / np.sqrt(len(shares)) == pytest.approx(draws.std(), rel=0.034 + 4 / 120)
    assert shares.mean() == pytest.approx(difference_interval(arms[0], arms[1], metric, draws=10).value, abs=0.01)


def test_no_spread_means_any_difference_shows() -> None:
    assert images_needed(np.zeros(10), 0.01) == 2


def test_bad_plans_are_named() -> None:
    with pytest.raises(SightlineError, match="at least two images"):
        images_needed([0.1], 0.1)
    with pytest.raises(SightlineError, match="difference of 0"):
        images_needed([0.1, 0.2], 0.0)
    single_class = ArmRows.of([True, True], [1.0, 2.0])
    with pytest.raises(SightlineError, match="power for hfpr cannot be computed: there are no negatives"):
        image_differences(single_class, single_class, METRICS["hfpr"])
