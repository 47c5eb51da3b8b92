from __future__ import annotations

import numpy as np
import pytest

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.bootstrap import difference_interval
from sightline.statistics.metrics import METRICS
from sightline.statistics.seeds import two_stage_difference


def arm(ecr: np.ndarray) -> ArmRows:
    return ArmRows.of(np.ones(len(ecr), dtype=bool), np.ones(len(ecr)), np.arange(len(ecr)), ecr=ecr)


def test_identical_seeds_leave_only_image_uncertainty() -> None:
    rng = np.random.default_rng(0)
    left, right = arm(rng.random(80)), arm(rng.random(80))
    found = two_stage_difference(left, [right, right, right], METRICS["pos_ecr"], draws=2000)
    expected = difference_interval(left, right, METRICS["pos_ecr"], draws=2000)
    assert [found.value, found.low, found.high] == pytest.approx([expected.value, expected.low, expected.high])


def test_seeds_that_differ_widen_the_interval() -> None:
    rng = np.random.default_rng(1)
    left = arm(rng.random(80))
    same = np.full(80, 0.5)
    apart = two_stage_difference(left, [arm(same + s) for s in (-0.3, 0.0, 0.3)], METRICS["pos_ecr"], draws=2000)
    together = two_stage_difference(left, [arm(same)] * 3, METRICS["pos_ecr"], draws=2000)
    assert apart.value == pytest.approx(together.value)
    assert apart.high - apart.low > 1.5 * (together.high - together.low)


def test_bad_input_is_one_clear_line() -> None:
    one = arm(np.array([0.1, 0.2]))
    with pytest.raises(SightlineError, match="at least two seeds"):
        two_stage_difference(one, [one], METRICS["pos_ecr"])
    with pytest.raises(SightlineError, match="on the images of the arm"):
        two_stage_difference(one, [one, arm(np.array([0.1, 0.2, 0.3]))], METRICS["pos_ecr"])
    with pytest.raises(SightlineError, match="no negatives"):
        two_stage_difference(one, [one, one], METRICS["hfpr"])
