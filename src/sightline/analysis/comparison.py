"""What all intervention tables share: rows by image view, target support, and means with image-cluster intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sightline.core.probe import ORIGINAL
from sightline.errors import SightlineError
from sightline.interventions import INTERVENTIONS
from sightline.statistics.arrays import FloatArray
from sightline.statistics.bootstrap import DRAWS, SEED, count_blocks
from sightline.statistics.intervals import UNLIMITED, Estimate, interval, mean_shares
from sightline.statistics.keyed import numbered
from sightline.statistics.plain_rows import UNCHANGED
from sightline.statistics.summaries import arm_points

Record = dict[str, Any]
OF_ANSWERS = (-1.0, 1.0)
"""Limits of a change of right answers, or of coverage."""


def by_model(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    models = frame["model"].unique()
    if len(models) == 1:
        yield str(models[0]), frame  # as it is: a run's rows are not held a second time
        return
    for model, rows in frame.groupby("model", sort=False):
        yield str(model), rows


def indexed(rows: pd.DataFrame, what: str) -> pd.DataFrame:
    """Rows by probe; a probe that occurs twice would be compared with itself, so that is refused."""
    if rows["probe_id"].duplicated().any():
        twice = rows.loc[rows["probe_id"].duplicated(), "probe_id"].iloc[0]
        raise SightlineError(f"{what}: probe '{twice}' has more than one row; give the rows of one run")
    return rows.set_index("probe_id")


def table_of(records: list[Record], missing: str) -> pd.DataFrame:
    """The records as a table; ``missing`` says what to run where there are none."""
    if not records:
        raise SightlineError(missing)
    return pd.DataFrame(records)


def on_image_alone(frame: pd.DataFrame) -> pd.Series[bool]:
    """Per row whether nothing but the image was changed, if anything: mask and positions are the plain arm's.

    ``intervention`` names what the arm has behind its plus, or the view that a control set asks about.
    """
    changed = {name: _changes_image_alone(str(name)) for name in frame["intervention"].dropna().unique()}
    return ~frame["intervention"].isin([name for name, alone in changed.items() if not alone])


def _changes_image_alone(intervention: str) -> bool:
    name = intervention.partition("=")[0]
    if name == UNCHANGED:
        return True  # Without asking the registry, whose classes import torch.
    return name not in INTERVENTIONS or INTERVENTIONS.get(name).view != ORIGINAL


def views_of(own: pd.DataFrame, what: str) -> dict[str, pd.DataFrame]:
    """Rows of one plain arm by view of the image, each by probe, without changed masks and swapped positions."""
    views = own[on_image_alone(own)].groupby("view", sort=False)
    return {str(view): indexed(part, f"{what} {view}") for view, part in views}


def margins_of(rows: pd.DataFrame) -> pd.Series[float]:
    """The margins; a scorer other than yes/no gives none."""
    if "margin" not in rows or rows["margin"].isna().all():
        raise SightlineError("the rows have no margin: this table compares margins")
    return rows["margin"].astype(float)


def threshold_of(model: str, threshold: float | Mapping[str, float] | None) -> float | None:
    """The threshold of one model; None stands for the answers that its rows hold."""
    return threshold.get(model) if isinstance(threshold, Mapping) else threshold


def held_threshold(rows: pd.DataFrame) -> float:
    """The threshold at which the rows of one arm hold their answers; 0 unless another was applied."""
    return float(rows["threshold"].iloc[0]) if "threshold" in rows else 0.0


def answered_right(rows: pd.DataFrame, threshold: float | None) -> pd.Series[float]:
    """1 where the answer is right, 0 where not: at the threshold, or without one as the rows hold it."""
    if "margin" not in rows or (threshold is None and "correct" in rows):
        return rows["correct"].astype(float)
    return ((rows["margin"].astype(float) >= (threshold or 0.0)) == (rows["label"] == "yes")).astype(float)


def support(rows: pd.DataFrame) -> pd.Series[float]:
    """Target support: how much the margin speaks for the right answer (+ margin on yes probes, - margin on no)."""
    margin = margins_of(rows)
    return margin.where(rows["label"] == "yes", -margin)


def clustered_mean(
    values: ArrayLike | pd.Series,
    images: ArrayLike | pd.Series,
    draws: int,
    limits: tuple[float, float] = UNLIMITED,
) -> Estimate:
    """Mean over rows, resampling images with all their rows; no interval where fewer than two images are left.

    ``limits`` are those of any value, such as -1 and 1 of a change from wrong to right: with them an interval allows
    for an image that was not seen where hardly any image differs.
    """
    (found,) = clustered_means(np.asarray(values, dtype=np.float64)[:, None], images, draws, limits)
    return found


def clustered_means(
    values: FloatArray,
    images: ArrayLike | pd.Series,
    draws: int,
    limits: tuple[float, float] | Sequence[tuple[float, float]] = UNLIMITED,
) -> list[Estimate]:
    """(n, p) values -> ``clustered_mean`` of each column, all from the same draws; limits of all columns or of each."""
    if not len(values):
        return [Estimate(math.nan, math.nan, math.nan, 0, "no rows")] * values.shape[1]
    points = values.mean(axis=0)
    index, _ = numbered(pd.Series(images))
    count = int(index.max()) + 1
    if count < 2:
        return [Estimate(float(point), math.nan, math.nan, 0, "fewer than two images") for point in points]
    sums = np.stack([np.bincount(index, column) for column in (*values.T, np.ones(len(values)))], axis=1)
    totals = np.concatenate([counts @ sums for counts in count_blocks(count, draws, SEED)])
    drawn: FloatArray = totals[:, :-1] / totals[:, -1:]
    ends = np.broadcast_to(np.asarray(limits, dtype=np.float64), (len(points), 2))
    return [
        interval(column, mean_shares(own, index, (float(low), float(high))))
        for own, column, (low, high) in zip(values.T, drawn.T, ends, strict=True)
    ]


def interval_columns(name: str, estimate: Estimate) -> Record:
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
        record |= interval_columns(name, clustered_mean(difference[chosen], left.loc[chosen, "image_id"], draws))
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


RATES = ("keep", "accuracy", "hfpr", "pos_ecr", "neg_src", "center_recall", "patch_recall")


def rates(rows: pd.DataFrame) -> Record:
    """Accuracy, false alarms and coverage of one arm's rows; ``ecr`` is that of positives and negatives together."""
    probes = rows.reset_index() if "probe_id" not in rows else rows
    return {"n": len(rows), **arm_points(probes, RATES), "ecr": float(rows["ecr"].astype(float).mean())}
