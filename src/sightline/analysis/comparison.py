"""What all intervention tables share: which rows are plain, target support, and means with image-cluster intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sightline.errors import SightlineError
from sightline.statistics.arrays import FloatArray
from sightline.statistics.bootstrap import DRAWS, SEED, count_blocks
from sightline.statistics.intervals import Estimate, percentile_interval

Record = dict[str, Any]


def plain_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows in which nothing was done to mask or image."""
    return frame[(frame["intervention"].fillna("none") == "none") & (frame["view"] == "orig")]


def by_model(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for model, rows in frame.groupby("model", sort=False):
        yield str(model), rows


def indexed(rows: pd.DataFrame, what: str) -> pd.DataFrame:
    """Rows by probe; a probe that occurs twice would be compared with itself, so that is refused."""
    if rows["probe_id"].duplicated().any():
        twice = rows.loc[rows["probe_id"].duplicated(), "probe_id"].iloc[0]
        raise SightlineError(f"{what}: probe '{twice}' has more than one row; give the rows of one run")
    return rows.set_index("probe_id")


def support(rows: pd.DataFrame) -> pd.Series:
    """Target support: how much the margin speaks for the right answer (+ margin on yes probes, - margin on no)."""
    margin = rows["margin"].astype(float)
    return margin.where(rows["label"] == "yes", -margin)


def mean_interval(values: Sequence[float] | pd.Series, images: Sequence[Any] | pd.Series, draws: int) -> Estimate:
    """Mean over rows, resampling images with all their rows; no interval where fewer than two images are left."""
    found: FloatArray = np.asarray(values, dtype=np.float64)
    if not found.size:
        return Estimate(math.nan, math.nan, math.nan, 0, "no rows")
    _, index = np.unique(np.asarray(images).astype(str), return_inverse=True)
    count = int(index.max()) + 1
    if count < 2:
        return Estimate(float(found.mean()), math.nan, math.nan, 0, "fewer than two images")
    sums = np.stack([np.bincount(index, found), np.bincount(index)], axis=1)
    parts = [counts @ sums for counts in count_blocks(count, draws, SEED)]
    totals = np.concatenate(parts)
    drawn: FloatArray = totals[:, 0] / totals[:, 1]
    low, high = percentile_interval(drawn)
    return Estimate(float(found.mean()), low, high, len(drawn))


def spread(name: str, estimate: Estimate) -> Record:
    """Three columns: the value and its interval."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def compare_support(left: pd.DataFrame, right: pd.DataFrame, draws: int = DRAWS) -> Record:
    """Target support of the left rows minus that of the right ones, probe by probe, in all and by label.

    Beside the differences: how often the left is larger, how many answers turned right or wrong, and how many false
    alarms only one side has.
    """
    both = left.index.intersection(right.index)
    if both.empty:
        raise SightlineError("the two sides of a comparison have no probe in common")
    left, right = left.loc[both], right.loc[both]
    difference = support(left) - support(right)
    record: Record = {"n": len(both)}
    for name, chosen in (
        ("support_diff", np.ones(len(both), dtype=bool)),
        ("pos_support_diff", (left["label"] == "yes").to_numpy()),
        ("neg_support_diff", (left["label"] == "no").to_numpy()),
    ):
        record |= spread(name, mean_interval(difference[chosen], left.loc[chosen, "image_id"], draws))
    alarm_left, alarm_right = ((side["label"] == "no") & (side["predicted"] == "yes") for side in (left, right))
    right_left, right_right = left["correct"].astype(bool), right["correct"].astype(bool)
    return record | {
        "share_left_larger": float((difference > 0).mean()),
        "median_support_diff": float(difference.median()),
        "only_left_correct": int((right_left & ~right_right).sum()),
        "only_right_correct": int((~right_left & right_right).sum()),
        "only_left_false_alarm": int((alarm_left & ~alarm_right).sum()),
        "only_right_false_alarm": int((~alarm_left & alarm_right).sum()),
    }


def rates(rows: pd.DataFrame) -> Record:
    """Accuracy, false alarms and coverage of one set of rows."""
    yes, no = rows[rows["label"] == "yes"], rows[rows["label"] == "no"]
    return {
        "n": len(rows),
        "keep": float(rows["keep"].mean()),
        "accuracy": float(rows["correct"].astype(float).mean()),
        "hfpr": float((no["predicted"] == "yes").mean()) if len(no) else math.nan,
        "ecr": float(rows["ecr"].astype(float).mean()),
        "pos_ecr": float(yes["ecr"].astype(float).mean()),
        "neg_src": float(no["ecr"].astype(float).mean()),
        "center_recall": float(rows["center_recall"].astype(float).mean()),
        "patch_recall": float(rows["patch_recall"].astype(float).mean()),
    }
