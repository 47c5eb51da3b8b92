"""All arms of a frame at once: their metrics and the draws of them, from which tables are made.

The draws of images are the same for every arm, so they are drawn once for all. Of an arm's rows only what tables need
is kept: an analysis of ten million rows is some sums per image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import (
    AnyArray,
    ArmRows,
    BoolArray,
    FloatArray,
    are_in_words,
    are_positives,
    in_name_order,
    numbered,
)
from sightline.statistics.bootstrap import ImageSums, replicate_all
from sightline.statistics.metrics import METRICS, POPULATIONS, Metric, metric_named, why_not

# The rows of one arm, from a frame into the arrays that metrics read.

_OWN = ("image_id", "probe_id", "label", "margin", "correct", "predicted", "score", "has_regions")
"""Columns that are read beside those that metrics name."""


def arm_rows(frame: pd.DataFrame, threshold: float | None = None) -> ArmRows:
    """The rows of one arm as arrays, in (image_id, probe_id) order, with every column that a metric needs.

    Answers are margin >= threshold when a threshold is given, else what ``correct`` or ``predicted`` say, else margin
    >= 0. Rows of a scorer whose answers are not yes or no have ``correct`` and no margin: each of their probes is a
    positive, answered right or not.
    """
    needed = dict.fromkeys(column for metric in METRICS.values() for column in metric.columns)
    frame = by_image_and_probe(frame[metric_inputs(frame)])
    if frame["probe_id"].duplicated().any():
        twice = frame.loc[frame["probe_id"].duplicated(), "probe_id"].iloc[0]
        raise SightlineError(f"probe '{twice}' has more than one row in this arm; filter views and interventions first")
    if threshold is not None and "margin" not in frame:
        raise SightlineError("a threshold needs the column 'margin'")
    in_words = bool(are_in_words(frame).any())
    odd = sorted({str(label) for label in frame["label"].unique()} - {"yes", "no"})
    yes_or_no = not in_words and (not odd or "margin" in frame or "correct" not in frame)
    if odd and yes_or_no:
        raise SightlineError(f"labels must be 'yes' or 'no', found '{odd[0]}'")
    image, image_ids = numbered(frame["image_id"])
    rows = ArmRows.of(
        are_positives(frame).to_numpy(),
        _numbers(frame, "margin") if "margin" in frame else None,
        image,
        threshold=threshold or 0.0,
        predicted=_answers(frame) if threshold is None else None,
        has_regions=frame["has_regions"].to_numpy(dtype=bool, na_value=False) if "has_regions" in frame else None,
        yes_or_no=yes_or_no,
        **{name: _numbers(frame, name) for name in needed if name in frame},
    )
    return replace(rows, image_ids=image_ids)


def _answers(frame: pd.DataFrame) -> BoolArray | None:
    """(n,) True where the arm said yes, as the rows hold it; None where their margins decide.

    What is right on a positive, or wrong on a negative, is a yes: so ``correct`` speaks for answers of any kind.
    """
    if "correct" in frame:
        return np.asarray(frame["correct"].to_numpy(dtype=bool) == are_positives(frame).to_numpy())
    return (frame["predicted"] == "yes").to_numpy() if "predicted" in frame else None


def _numbers(frame: pd.DataFrame, name: str) -> FloatArray:
    try:
        return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise SightlineError(f"column '{name}' holds something that is not a number") from None


def metric_inputs(frame: pd.DataFrame) -> list[str]:
    """The columns of a frame that ``arm_rows`` looks at: whoever takes rows apart needs no others."""
    needed = (column for metric in METRICS.values() for column in metric.columns)
    return [name for name in dict.fromkeys((*_OWN, *needed)) if name in frame]


def by_image_and_probe(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows in (image_id, probe_id) order; the frame itself where they are so already, as a run writes them."""
    images, probes = frame["image_id"], frame["probe_id"]
    if in_name_order(images) and in_name_order(probes):
        image, probe = images.cat.codes.to_numpy(), probes.cat.codes.to_numpy()
        ascending = (image[1:] > image[:-1]) | ((image[1:] == image[:-1]) & (probe[1:] >= probe[:-1]))
        return frame if ascending.all() else frame.iloc[np.lexsort((probe, image))]
    return frame.sort_values(["image_id", "probe_id"], kind="stable")


Threshold = float | Mapping[str, float] | None
"""None: the answers that the rows hold (or t = 0 where they hold none); a number for all arms; or one per arm."""

_REQUIRED = ("arm", "probe_id", "image_id", "label")


@dataclass(frozen=True)
class Outcomes:
    """A 0/1 metric probe by probe."""

    values: AnyArray
    """(n,) 0 or 1, anything else where the metric has no value."""
    concerned: BoolArray
    """(n,) the probes that the metric is about."""

    @classmethod
    def of(cls, rows: ArmRows, metric: Metric) -> Outcomes:
        values = metric.value(rows)
        return cls(np.where(np.isin(values, (0.0, 1.0)), values, -1.0).astype(np.int8), POPULATIONS[metric.over](rows))


@dataclass(frozen=True)
class AnalysedArm:
    """What an arm's metrics came to, or why it has none."""

    name: str
    metrics: tuple[Metric, ...]
    reasons: tuple[str, ...]
    """(M,) why a metric, or its interval, is missing; "" where nothing is."""
    probes: pd.Series[str] = field(default_factory=lambda: pd.Series(dtype=str))
    """(n,) in (image, probe) order."""
    labels: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    sums: ImageSums | None = None
    """None where the arm has no usable rows."""
    outcomes: Mapping[str, Outcomes] = field(default_factory=dict)
    """By 0/1 metric that has a value."""

    @classmethod
    def of(cls, name: str, frame: pd.DataFrame, metrics: Sequence[Metric], threshold: float | None) -> AnalysedArm:
        try:
            rows = arm_rows(frame, threshold)
        except SightlineError as error:
            return cls(name, tuple(metrics), (str(error),) * len(metrics))
        reasons = [why_not(metric, rows) for metric in metrics]
        known = [metric for metric, reason in zip(metrics, reasons, strict=True) if not reason]
        if rows.n_images < 2:
            reasons = [reason or "an interval needs at least two images" for reason in reasons]
        return cls(
            name,
            tuple(metrics),
            tuple(reasons),
            by_image_and_probe(frame[["image_id", "probe_id"]])["probe_id"],
            rows.labels,
            ImageSums.of(rows, metrics),
            {metric.name: Outcomes.of(rows, metric) for metric in known if metric.binary},
        )

    @property
    def n_images(self) -> int:
        return 0 if self.sums is None else len(self.sums.sums)

    @cached_property
    def values(self) -> FloatArray:
        """(M,) points."""
        return np.full(len(self.metrics), np.nan) if self.sums is None else self.sums.point()


@dataclass(frozen=True)
class ArmAnalysis:
    """Every arm of a frame with its draws, all from the same resamples of images."""

    metrics: tuple[Metric, ...]
    arms: Mapping[str, AnalysedArm]
    draws: Mapping[str, FloatArray]
    """(draws, M) by arm; arms with nothing to resample have none."""

    @classmethod
    def of(
        cls, frame: pd.DataFrame, metrics: Sequence[str] | None, threshold: Threshold, draws: int, seed: int
    ) -> ArmAnalysis:
        missing = [name for name in _REQUIRED if name not in frame]
        if missing:
            raise SightlineError(f"the rows have no column '{missing[0]}'; statistics need {', '.join(_REQUIRED)}")
        if frame.empty:
            raise SightlineError("the run has no rows; statistics need at least one arm")
        chosen = every_metric(frame) if metrics is None else [metric_named(name) for name in metrics]
        arms = {}
        for arm, part in frame[["arm", *metric_inputs(frame)]].groupby("arm", sort=False, observed=True):
            cut = threshold.get(str(arm)) if isinstance(threshold, Mapping) else threshold
            arms[str(arm)] = AnalysedArm.of(str(arm), part, chosen, cut)
        resampled = {name: arm.sums for name, arm in arms.items() if arm.sums is not None and arm.n_images > 1}
        drawn = replicate_all(list(resampled.values()), draws=draws, seed=seed)
        return cls(tuple(chosen), arms, dict(zip(resampled, drawn, strict=True)))

    def draws_of(self, arm: str, metric: Metric) -> FloatArray | None:
        """(draws,) of one metric; None where there is nothing to resample."""
        found = self.draws.get(arm)
        return None if found is None else found[:, self.metrics.index(metric)]


def every_metric(frame: pd.DataFrame) -> list[Metric]:
    """All of them, but no scores of words where no answer is one."""
    in_words = bool(are_in_words(frame).any())
    return [metric for metric in METRICS.values() if in_words or metric.answers != "words"]
