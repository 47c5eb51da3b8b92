"""Tables from a frame of rows: one line per arm, and one line per arm and metric against a reference.

What cannot be computed is NaN with its reason beside it (column ``reason``, and ``attrs["problems"]`` for all of them);
one broken arm or metric never takes the others with it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import BoolArray, FloatArray
from sightline.statistics.bootstrap import DRAWS, SEED, ImageSums, estimate, replicate
from sightline.statistics.intervals import LEVEL, percentile_interval
from sightline.statistics.metrics import METRICS, POPULATIONS, Metric, metric_named, point, why_not
from sightline.statistics.paired import mcnemar, win_loss_tie
from sightline.statistics.plain_rows import are_in_words, are_positives
from sightline.statistics.wording import describe_difference, describe_noninferiority

Threshold = float | Mapping[str, float] | None
"""None: the answers that the rows hold (or t = 0 where they hold none); a number for all arms; or one per arm."""

_REQUIRED = ("arm", "probe_id", "image_id", "label")


@dataclass(frozen=True)
class _Arm:
    """An arm's rows in (image, probe) order and what its metrics came to, or why it has none."""

    name: str
    rows: ArmRows | None
    probes: tuple[str, ...]
    values: FloatArray
    """(M,) points."""
    draws: FloatArray | None
    """(draws, M), or None where there is nothing to resample."""
    reasons: tuple[str, ...]
    """(M,) why a metric, or its interval, is missing; "" where nothing is."""


def arm_rows(frame: pd.DataFrame, threshold: float | None = None) -> ArmRows:
    """The rows of one arm as arrays, in (image_id, probe_id) order, with every column that a metric needs.

    Answers are margin >= threshold when a threshold is given, else what ``correct`` or ``predicted`` say, else margin
    >= 0. Rows of a scorer whose answers are not yes or no have ``correct`` and no margin: each of their probes is a
    positive, answered right or not.
    """
    frame = frame.sort_values(["image_id", "probe_id"], kind="stable")
    if frame["probe_id"].duplicated().any():
        twice = frame.loc[frame["probe_id"].duplicated(), "probe_id"].iloc[0]
        raise SightlineError(f"probe '{twice}' has more than one row in this arm; filter views and interventions first")
    if threshold is not None and "margin" not in frame:
        raise SightlineError("a threshold needs the column 'margin'")
    in_words = bool(are_in_words(frame).any())
    odd = sorted(set(frame["label"].astype(str)) - {"yes", "no"})
    yes_or_no = not in_words and (not odd or "margin" in frame or "correct" not in frame)
    if odd and yes_or_no:
        raise SightlineError(f"labels must be 'yes' or 'no', found '{odd[0]}'")
    needed = dict.fromkeys(column for metric in METRICS.values() for column in metric.columns)
    return ArmRows.of(
        are_positives(frame).to_numpy(),
        _numbers(frame, "margin") if "margin" in frame else None,
        frame["image_id"].astype(str).to_numpy(),
        threshold=threshold or 0.0,
        predicted=_answers(frame) if threshold is None else None,
        has_regions=frame["has_regions"].to_numpy(dtype=bool, na_value=False) if "has_regions" in frame else None,
        yes_or_no=yes_or_no,
        **{name: _numbers(frame, name) for name in needed if name in frame},
    )


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


def _analyse(
    name: str, frame: pd.DataFrame, metrics: Sequence[Metric], threshold: Threshold, draws: int, seed: int
) -> _Arm:
    nothing = np.full(len(metrics), np.nan)
    cut = threshold.get(name) if isinstance(threshold, Mapping) else threshold
    try:
        rows = arm_rows(frame, cut)
    except SightlineError as error:
        return _Arm(name, None, (), nothing, None, (str(error),) * len(metrics))
    reasons = [why_not(metric, rows) for metric in metrics]
    if rows.n_images < 2:
        reasons = [reason or "an interval needs at least two images" for reason in reasons]
        values = None
    else:
        values = replicate(rows, metrics, draws=draws, seed=seed)
    probes = tuple(frame.sort_values(["image_id", "probe_id"], kind="stable")["probe_id"].astype(str))
    return _Arm(name, rows, probes, ImageSums.of(rows, metrics).point(), values, tuple(reasons))


def _analyse_all(
    frame: pd.DataFrame, metrics: Sequence[str] | None, threshold: Threshold, draws: int, seed: int
) -> tuple[list[Metric], dict[str, _Arm]]:
    missing = [name for name in _REQUIRED if name not in frame]
    if missing:
        raise SightlineError(f"the rows have no column '{missing[0]}'; statistics need {', '.join(_REQUIRED)}")
    if frame.empty:
        raise SightlineError("the run has no rows; statistics need at least one arm")
    chosen = _every_metric(frame) if metrics is None else [metric_named(name) for name in metrics]
    arms = frame.groupby("arm", sort=False, observed=True)
    return chosen, {str(n): _analyse(str(n), part, chosen, threshold, draws, seed) for n, part in arms}


def _every_metric(frame: pd.DataFrame) -> list[Metric]:
    """All of them, but no scores of words where no answer is one."""
    in_words = bool(are_in_words(frame).any())
    return [metric for metric in METRICS.values() if in_words or metric.answers != "words"]


def arm_points(frame: pd.DataFrame, metrics: Sequence[str], threshold: float | None = None) -> dict[str, float]:
    """The metrics of one arm without intervals; NaN where one has no value."""
    rows = arm_rows(frame, threshold)
    return {name: point(metric_named(name), rows) for name in metrics}


def _joined(metrics: Sequence[Metric], reasons: Sequence[str]) -> str:
    """ "accuracy, hfpr: why; auroc: why", metrics that share a reason together."""
    by_reason: dict[str, list[str]] = {}
    for metric, reason in zip(metrics, reasons, strict=True):
        if reason:
            by_reason.setdefault(reason, []).append(metric.name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())


def arm_summary(
    frame: pd.DataFrame,
    *,
    metrics: Sequence[str] | None = None,
    threshold: Threshold = None,
    draws: int = DRAWS,
    seed: int = SEED,
    level: float = LEVEL,
) -> pd.DataFrame:
    """One line per arm: sizes, then ``name``, ``name_low``, ``name_high`` of every metric, ``wilson``, ``reason``.

    ``wilson`` names the shares whose interval is Wilson's because percentiles fail (``intervals.share_interval``).
    """
    chosen, arms = _analyse_all(frame, metrics, threshold, draws, seed)
    lines: list[dict[str, Any]] = []
    for arm in arms.values():
        labels = np.zeros(0, dtype=bool) if arm.rows is None else arm.rows.labels
        line: dict[str, Any] = {
            "arm": arm.name,
            "n_probes": len(labels),
            "n_images": 0 if arm.rows is None else arm.rows.n_images,
            "n_positive": int(labels.sum()),
            "n_negative": int((~labels).sum()),
        }
        by_wilson = []
        for index, metric in enumerate(chosen):
            low, high = (math.nan, math.nan)
            if arm.rows is not None and arm.draws is not None and not arm.reasons[index]:
                found = estimate(arm.rows, metric, arm.draws[:, index], level)
                low, high = found.low, found.high
                by_wilson += [metric.name] if found.kind == "wilson" else []
            line |= {metric.name: arm.values[index], f"{metric.name}_low": low, f"{metric.name}_high": high}
        lines.append(line | {"wilson": ", ".join(by_wilson), "reason": _joined(chosen, arm.reasons)})
    table = pd.DataFrame(lines)
    table.attrs["problems"] = [f"arm '{line['arm']}': {line['reason']}" for line in lines if line["reason"]]
    return table


def paired_differences(
    frame: pd.DataFrame,
    reference: str = "full",
    *,
    metrics: Sequence[str] | None = None,
    threshold: Threshold = None,
    noninferiority: Mapping[str, float] | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
    level: float = LEVEL,
) -> pd.DataFrame:
    """One line per arm other than the reference and metric: what changed, how surely, and in words.

    ``diff`` is arm - reference with its paired image-cluster interval. ``win``, ``loss``, ``tie`` count images on which
    the arm is better, worse or equal (only for metrics that have a better direction and a value per image).
    ``mcnemar_b`` probes are 1 for the arm alone, ``mcnemar_c`` for the reference alone (only for 0/1 metrics).
    ``noninferiority`` maps metrics to margins named beforehand and fills the column of that name.
    """
    names = [str(name) for name in frame["arm"].unique()] if "arm" in frame else []
    if names and reference not in names:
        close = difflib.get_close_matches(reference, names, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"arms: {', '.join(names)}"
        raise SightlineError(f"the run has no arm '{reference}' to compare with; {hint}")
    chosen, arms = _analyse_all(frame, metrics, threshold, draws, seed)
    base = arms.pop(reference)
    lines = [
        _compare(arm, base, index, metric, level, (noninferiority or {}).get(metric.name))
        for arm in arms.values()
        for index, metric in enumerate(chosen)
    ]
    table = pd.DataFrame(lines, columns=list(_COLUMNS)).astype(_COLUMNS)
    table.attrs["problems"] = [
        f"arm '{name}': {reason}"
        for name, reason in dict.fromkeys(zip(table["arm"], table["reason"], strict=True))
        if reason
    ]
    return table


_COLUMNS: dict[str, str] = {
    "arm": "object", "metric": "object", "value": "float64", "reference_value": "float64", "diff": "float64",
    "low": "float64", "high": "float64", "mcnemar_b": "Int64", "mcnemar_c": "Int64", "mcnemar_p": "float64",
    "win": "Int64", "loss": "Int64", "tie": "Int64", "words": "object", "noninferiority": "object", "reason": "object",
}  # fmt: skip


def _why_not_paired(arm: _Arm, base: _Arm) -> str:
    """Why two arms cannot be compared at all, or ""."""
    if arm.rows is None or base.rows is None:
        return ""  # both carry their own reason already
    common = len(set(arm.probes) & set(base.probes))
    if common != len(arm.probes) or common != len(base.probes):
        return (
            f"'{arm.name}' has {len(arm.probes)} probes and '{base.name}' {len(base.probes)}, {common} in common: "
            "run both on the same probes"
        )
    if arm.probes != base.probes or not np.array_equal(arm.rows.labels, base.rows.labels):
        return (
            f"'{arm.name}' and '{base.name}' disagree on the image or label of a probe: they come from different sets"
        )
    return ""


def _compare(arm: _Arm, base: _Arm, index: int, metric: Metric, level: float, margin: float | None) -> dict[str, Any]:
    label = "Full" if base.name == "full" else base.name
    line: dict[str, Any] = dict.fromkeys(_COLUMNS, math.nan)
    line |= dict.fromkeys(("mcnemar_b", "mcnemar_c", "win", "loss", "tie"), pd.NA)
    line |= {"arm": arm.name, "metric": metric.name, "value": arm.values[index], "words": "not computed"}
    line |= {"reference_value": base.values[index], "noninferiority": ""}
    line["reason"] = arm.reasons[index] or base.reasons[index] or _why_not_paired(arm, base)
    if arm.rows is None or base.rows is None or _why_not_paired(arm, base):
        return line
    line["diff"] = arm.values[index] - base.values[index]
    if not math.isfinite(line["diff"]):
        return line
    if arm.draws is not None and base.draws is not None:
        line["low"], line["high"] = percentile_interval(arm.draws[:, index] - base.draws[:, index], level)
    line["words"] = describe_difference(line["diff"], line["low"], line["high"], label)
    if margin is not None and metric.better != "neither":
        better: Literal["higher", "lower"] = metric.better
        line["noninferiority"] = describe_noninferiority(line["low"], line["high"], margin, better, label)
    if metric.binary:
        concerned = POPULATIONS[metric.over](base.rows)
        test = mcnemar(metric.value(arm.rows)[concerned], metric.value(base.rows)[concerned])
        line |= {"mcnemar_b": test.first_only, "mcnemar_c": test.second_only, "mcnemar_p": test.p}
    if metric.better != "neither" and metric.form in ("mean", "macro"):
        mine, theirs = (ImageSums.of(rows, [metric]).per_image()[:, 0] for rows in (arm.rows, base.rows))
        tally = win_loss_tie(mine - theirs, higher_is_better=metric.better == "higher")
        line |= {"win": tally.win, "loss": tally.loss, "tie": tally.tie}
    return line
