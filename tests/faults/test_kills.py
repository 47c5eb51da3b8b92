"""Kills at random moments, a few of them; ``python -m benchmarks.kills --kills 200`` does many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.kills import AUDIT, killed, small_audit, undisturbed

from tests.faults.killing import difference, facts


@pytest.mark.parametrize("launcher", ["inline", "local", "queue"])
def test_a_few_kills_do_no_harm(launcher: str, tmp_path: Path) -> None:
    tally = killed(launcher, kills=3, place=tmp_path, seed=1)
    assert tally.kills == 3
    assert tally.runs >= 1
    assert tally.harm == 0, tally


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    found, files = undisturbed(small_audit(tmp_path_factory.mktemp("undisturbed")))
    assert files == len(AUDIT["arms"]) * AUDIT["limit"]
    return facts(found)


def test_the_comparison_sees_what_is_lost_changed_or_there_twice(rows: pd.DataFrame) -> None:
    none = {"lost": 0, "changed": 0, "doubled": 0}
    assert difference(rows, rows.copy()) == none
    assert difference(rows, rows.drop(index=[3, 5])) == {**none, "lost": 2}
    assert difference(rows, pd.concat([rows, rows[2:5]])) == {**none, "doubled": 3}
    other = rows.copy()
    other["margin"] = other["margin"].where(other.index != 4, np.nextafter(other["margin"], 9))
    assert difference(rows, other) == {**none, "changed": 1}
