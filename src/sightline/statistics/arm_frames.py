"""The rows of one arm, from a frame into the arrays that metrics read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import BoolArray, FloatArray
from sightline.statistics.keyed import in_name_order, numbered
from sightline.statistics.metrics import METRICS
from sightline.statistics.plain_rows import are_in_words, are_positives

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
