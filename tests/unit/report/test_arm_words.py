from __future__ import annotations

import pytest

from sightline.report.columns import family


@pytest.mark.parametrize(
    ("arm", "without_budget"),
    [
        ("scope:0.4:alpha=0", "scope:alpha=0"),
        ("target:192t", "target"),
        ("target:0.3/tile", "target/tile"),
        ("scope:64t/tile:alpha=0", "scope/tile:alpha=0"),
        ("full", "full"),
        ("masks:file=0.3/tile", "masks:file=0.3/tile"),
    ],
)
def test_a_family_is_an_arm_without_its_size_but_with_what_it_counts(arm: str, without_budget: str) -> None:
    assert family(arm) == without_budget
