"""Tables from a frame of rows: one line per arm, and one line per arm and metric against a reference.

What cannot be computed is NaN with its reason beside it (column ``reason``, and ``attrs["problems"]`` for all of them);
one broken arm or metric never takes the others with it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from sightline.errors import SightlineError
from sightline.statistics.arm_analysis import AnalysedArm, ArmAnalysis, Threshold, arm_rows
from sightline.statistics.arm_rows import FloatArray
from sightline.statistics.bootstrap import DRAWS, SEED, ImageSums
from sightline.statistics.intervals import LEVEL
from sightline.statistics.metrics import Metric, finish, metric_named, point
from sightline.statistics.paired import describe_difference, describe_noninferiority, mcnemar, win_loss_tie

__all__ = [
    "Threshold",
    "arm_points",
    "arm_rows",
    "arm_summary",
    "difference_table",
    "paired_differences",
    "summary_table",
]


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
    """One line per arm: sizes, then ``name``, ``name_low``, ``name_high`` of every metric, and three columns of words.

    ``few_differ`` names the metrics whose interval allows for an unseen image because few images differ
    (``intervals.interval``), ``certain`` those that hold by construction, which have none; ``reason`` says what is
    missing.
    """
    return summary_table(ArmAnalysis.of(frame, metrics, threshold, draws, seed), level=level)


def summary_table(analysis: ArmAnalysis, *, metrics: Sequence[str] | None = None, level: float = LEVEL) -> pd.DataFrame:
    """``arm_summary`` of arms that are analysed already, in all of their metrics or some."""
    chosen = [metric for metric in analysis.metrics if metrics is None or metric.name in metrics]
    lines: list[dict[str, Any]] = []
    for arm in analysis.arms.values():
        line: dict[str, Any] = {
            "arm": arm.name,
            "n_probes": len(arm.labels),
            "n_images": arm.n_images,
            "n_positive": int(arm.labels.sum()),
            "n_negative": int((~arm.labels).sum()),
        }
        marked: dict[str, list[str]] = {"few_differ": [], "certain": []}
        reasons = dict(zip(analysis.metrics, arm.reasons, strict=True))
        values = dict(zip(analysis.metrics, arm.values, strict=True))
        for metric in chosen:
            low, high = (math.nan, math.nan)
            draws = analysis.draws_of(arm.name, metric)
            if draws is not None and arm.sums is not None and not reasons[metric]:
                found = arm.sums.estimate(metric, draws, level)
                low, high, reasons[metric] = found.low, found.high, found.reason
                if found.kind != "percentile":
                    marked["certain" if found.kind == "certain" else "few_differ"].append(metric.name)
            line |= {metric.name: values[metric], f"{metric.name}_low": low, f"{metric.name}_high": high}
        why = _joined(chosen, [reasons[metric] for metric in chosen])
        lines.append(line | {key: ", ".join(names) for key, names in marked.items()} | {"reason": why})
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
    ``noninferiority`` maps metrics to margins named beforehand and fills the column of that name. ``kind`` says how the
    interval was made (``intervals.IntervalKind``).
    """
    names = [str(name) for name in frame["arm"].unique()] if "arm" in frame else []
    if names and reference not in names:
        close = difflib.get_close_matches(reference, names, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"arms: {', '.join(names)}"
        raise SightlineError(f"the run has no arm '{reference}' to compare with; {hint}")
    analysis = ArmAnalysis.of(frame, metrics, threshold, draws, seed)
    return difference_table(analysis, reference, noninferiority=noninferiority, level=level)


def difference_table(
    analysis: ArmAnalysis,
    reference: str,
    *,
    metrics: Sequence[str] | None = None,
    noninferiority: Mapping[str, float] | None = None,
    level: float = LEVEL,
) -> pd.DataFrame:
    """``paired_differences`` of arms that are analysed already, in all of their metrics or some."""
    base = analysis.arms[reference]
    chosen = analysis.metrics if metrics is None else [metric_named(name) for name in metrics]
    lines = []
    for arm in (arm for name, arm in analysis.arms.items() if name != reference):
        unpaired = _why_not_paired(arm, base)
        lines += [
            _compare(analysis, arm, base, metric, unpaired, level, (noninferiority or {}).get(metric.name))
            for metric in chosen
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
    "kind": "object",
}  # fmt: skip


def _why_not_paired(arm: AnalysedArm, base: AnalysedArm) -> str:
    """Why two arms cannot be compared at all, or ""."""
    if arm.sums is None or base.sums is None:
        return ""  # both carry their own reason already
    same = arm.probes.reset_index(drop=True).equals(base.probes.reset_index(drop=True))
    common = len(arm.probes) if same else len(set(arm.probes) & set(base.probes))
    if common != len(arm.probes) or common != len(base.probes):
        return (
            f"'{arm.name}' has {len(arm.probes)} probes and '{base.name}' {len(base.probes)}, {common} in common: "
            "run both on the same probes"
        )
    if not same or not np.array_equal(arm.labels, base.labels):
        return (
            f"'{arm.name}' and '{base.name}' disagree on the image or label of a probe: they come from different sets"
        )
    return ""


def _compare(
    analysis: ArmAnalysis,
    arm: AnalysedArm,
    base: AnalysedArm,
    metric: Metric,
    unpaired: str,
    level: float,
    margin: float | None,
) -> dict[str, Any]:
    label = "Full" if base.name == "full" else base.name
    index = analysis.metrics.index(metric)
    line: dict[str, Any] = dict.fromkeys(_COLUMNS, math.nan)
    line |= dict.fromkeys(("mcnemar_b", "mcnemar_c", "win", "loss", "tie"), pd.NA)
    line |= {"arm": arm.name, "metric": metric.name, "value": arm.values[index], "words": "not computed"}
    line |= {"reference_value": base.values[index], "noninferiority": "", "kind": ""}
    line["reason"] = arm.reasons[index] or base.reasons[index] or unpaired
    if arm.sums is None or base.sums is None or unpaired:
        return line
    line["diff"] = arm.values[index] - base.values[index]
    if not math.isfinite(line["diff"]):
        return line
    draws = [analysis.draws_of(one.name, metric) for one in (arm, base)]
    if draws[0] is not None and draws[1] is not None:
        found = arm.sums.difference(base.sums, metric, draws[0] - draws[1], level)
        line |= {"low": found.low, "high": found.high, "kind": found.kind}
        line["reason"] = line["reason"] or found.reason
    line["words"] = describe_difference(line["diff"], line["low"], line["high"], label)
    if line["kind"] == "certain" and line["diff"] == 0.0:
        line["words"] = f"as {label} by construction"
    if margin is not None and metric.better != "neither":
        better: Literal["higher", "lower"] = metric.better
        line["noninferiority"] = describe_noninferiority(line["low"], line["high"], margin, better, label)
    if metric.binary:
        mine, theirs = (one.outcomes[metric.name] for one in (arm, base))
        test = mcnemar(mine.values[theirs.concerned], theirs.values[theirs.concerned])
        line |= {"mcnemar_b": test.first_only, "mcnemar_c": test.second_only, "mcnemar_p": test.p}
    if metric.better != "neither" and metric.form in ("mean", "macro"):
        per_image = (_per_image(sums, metric, index) for sums in (arm.sums, base.sums))
        tally = win_loss_tie(np.subtract(*per_image), higher_is_better=metric.better == "higher")
        line |= {"win": tally.win, "loss": tally.loss, "tie": tally.tie}
    return line


def _per_image(sums: ImageSums, metric: Metric, index: int) -> FloatArray:
    """(m,) one metric of each image alone."""
    columns = sums.columns[index]
    return np.full(len(sums.sums), np.nan) if columns is None else finish(metric, sums.sums[:, columns])
