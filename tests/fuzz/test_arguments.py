"""Every argument of every method with every number that is odd: refused, or the method chooses and comes to an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.arms.arm import parameters
from sightline.selectors import SELECTORS
from tests.fuzz.subjects.words import NUMBERS, Arms, all_arguments
from tests.fuzz.trial import Tally, try_given

ARGUMENTS = [(method, argument) for method, argument in all_arguments() if method != "masks"]


def test_every_method_is_tried() -> None:
    with_arguments = {name for name, kind in SELECTORS.items() if parameters(kind)}
    assert {method for method, _ in ARGUMENTS} == with_arguments - {"masks"}
    assert len(with_arguments) > 30


@pytest.mark.parametrize("method", sorted({method for method, _ in ARGUMENTS}))
def test_no_value_of_any_argument_fails_or_never_ends(method: str, tmp_path: Path) -> None:
    arms, tally = Arms(tmp_path), Tally()
    for _, argument in (pair for pair in ARGUMENTS if pair[0] == method):
        for number in NUMBERS:
            arm = f"{method}:0.3:{argument}={number}"
            try_given(arms, tally, arm, arm)
    assert tally.failures == {}
    assert tally.refused > 0
