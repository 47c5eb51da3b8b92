"""Amending a run: what is recorded stays what it was, whatever the new command says."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from sightline.auditing.audit import audit
from sightline.core.row import TIME_COLUMNS
from sightline.store import RunFolder


def without_times(frame: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Types are made those of the arm's own values: a column that another arm leaves empty is one of objects."""
    return frame[frame["arm"] == arm].drop(columns=list(TIME_COLUMNS)).reset_index(drop=True).convert_dtypes()


@pytest.mark.parametrize(
    ("settings", "recorded", "later"),
    [
        ({"arms": ["random:0.3"]}, "random:0.3", {"seed": 13}),
        ({"arms": ["shuffled:0.3"], "seed": 5}, "shuffled:0.3:seed=5", {"seed": 13}),
        ({"arms": ["protected:0.3:score=target"], "profile": "artifact"}, "protected:0.3", {}),
        ({"arms": ["protected:0.3:score=prompt"]}, "protected:0.3:score=prompt", {}),
    ],
    ids=["seed", "named-seed", "artifact", "argument"],
)
def test_a_missing_shard_of_a_recorded_arm_is_filled_as_it_was(
    config: Any, settings: dict[str, Any], recorded: str, later: dict[str, Any]
) -> None:
    settings = {**settings, "limit": 2, "shard_images": 1}
    first = audit(config("llava", **settings))
    before = without_times(first.frame(), recorded)
    assert first.arms == [recorded]
    assert len(before) == 4
    RunFolder(first.path).rows_file(recorded, 1).unlink()
    amended = audit(config("llava", **{**settings, **later, "arms": ["full"]}))
    assert amended.arms == [recorded, "full"]
    assert amended.missing == 0
    pd.testing.assert_frame_equal(without_times(amended.frame(), recorded), before)


def test_amending_with_another_seed_does_not_rewrite_the_first_ones(config: Any) -> None:
    first = audit(config("llava", arms=["random:0.3"], limit=1))
    amended = audit(config("llava", arms=["random:0.4"], seed=13, limit=1))
    assert amended.arms == ["random:0.3", "random:0.4:seed=13"]
    assert json.loads((first.path / "run.json").read_text())["seed"] == 17
    seeds = {
        arm: {json.loads(text)["seed"] for text in rows["arguments"]} for arm, rows in amended.frame().groupby("arm")
    }
    assert seeds == {"random:0.3": {17}, "random:0.4:seed=13": {13}}
