"""Tables from a frame of rows: one line per arm, one per arm and metric against a reference, and what they allow.

What cannot be computed is NaN with its reason beside it (column ``reason``, and ``attrs["problems"]`` for all of them);
one broken arm or metric never takes the others with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from sightline.errors import SightlineError, refuse_unknown
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
from sightline.statistics.bootstrap import DRAWS, SEED, ImageSums, replicate_all
from sightline.statistics.intervals import FEW_DIFFER, LEVEL
from sightline.statistics.metrics import METRICS, POPULATIONS, Metric, finish, point, why_not
from sightline.statistics.paired import describe_difference, describe_noninferiority, mcnemar, win_loss_tie

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


# All arms of a frame at once: their metrics and the draws of them, from which tables are made.
#
# The draws of images are the same for every arm, so they are drawn once for all. Of an arm's rows only what tables
# need is kept: an analysis of ten million rows is some sums per image.

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
        return np.full(len(self.metrics), np.nan) if self.sums is None else self.sums.point


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
        chosen = every_metric(frame) if metrics is None else [METRICS.get(name) for name in metrics]
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


def arm_points(frame: pd.DataFrame, metrics: Sequence[str]) -> dict[str, float]:
    """The metrics of one arm without intervals; NaN where one has no value."""
    rows = arm_rows(frame)
    return {name: point(METRICS.get(name), rows) for name in metrics}


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
        line: dict[str, Any] = {"arm": arm.name, "n_probes": len(arm.labels), "n_images": arm.n_images}
        line |= {"n_positive": int(arm.labels.sum()), "n_negative": int((~arm.labels).sum())}
        marked: dict[str, list[str]] = {"few_differ": [], "certain": []}
        reasons = dict(zip(analysis.metrics, arm.reasons, strict=True))
        values = dict(zip(analysis.metrics, arm.values, strict=True))
        for metric in chosen:
            low, high = math.nan, math.nan
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
    if names:
        refuse_unknown(reference, names, f"the run has no arm '{reference}' to compare with", "arms:")
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
    chosen = analysis.metrics if metrics is None else [METRICS.get(name) for name in metrics]
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


# Whether anything about pruning can be read from a model's answers here: one rule for every verdict.
#
# A model that guesses loses nothing when tokens are pruned, and one that answers nothing right has nothing to lose: "as
# good as Full" then means nothing. Whoever calls an arm as good or worse asks here first.

LEAST_N = 50
"""A verdict over fewer probes than this is refused: an interval of so few depends on a handful of them."""
LEAST_IMAGES = FEW_DIFFER
"""On fewer images than this resamples are too much alike for any interval."""
CHANCE = 0.5
"""Balanced accuracy of whoever answers yes or no without looking."""
NEXT_TO_NOTHING = 0.05
"""Mean score, or share of right answers that are not yes or no, that a model must surely exceed."""
NOTHING = "nothing about pruning can be read from its answers"
DECIDED_BY = ("score", "balanced_accuracy", "accuracy", "yes_rate")
"""Metrics that ``nothing_in`` looks at."""


def nothing_to_read(
    frame: pd.DataFrame, *, least_images: int = LEAST_IMAGES, draws: int = DRAWS, seed: int = SEED
) -> str:
    """Why nothing can be read from the answers of a run, in a clause with its numbers; "" where something can.

    ``frame`` holds the plain rows of all arms.
    """
    full = frame[frame["selector"] == "full"]
    spoken = full if len(full) else frame
    images = spoken.groupby("arm", observed=True)["image_id"].nunique()
    if images.nunique() == 1 and images.iloc[0] < least_images:  # whatever they say: nothing need be resampled
        return _too_few(images.iloc[0], least_images)
    arms = arm_summary(spoken, metrics=DECIDED_BY, draws=draws, seed=seed)
    selectors = frame[["arm", "selector"]].drop_duplicates("arm").astype(str).set_index("arm")["selector"]
    return nothing_in(arms.assign(selector=arms["arm"].map(selectors)), least_images=least_images)


def nothing_in(arms: pd.DataFrame, *, least_images: int = LEAST_IMAGES) -> str:
    """The same from lines of ``arm_summary`` that have ``selector`` beside the metrics of ``DECIDED_BY``.

    Full speaks for the model, or in a run without Full the arm that answers best: if that one guesses, so do all.
    """
    full = arms[arms["selector"] == "full"]
    best = max((line for _, line in (full if len(full) else arms).iterrows()), key=_goodness)
    if best["n_images"] < least_images:
        return _too_few(best["n_images"], least_images)
    name, floor = _measure(best)
    value, low, high = (best[f"{name}{end}"] for end in ("", "_low", "_high"))
    alike = name == "accuracy" and best["yes_rate"] in (0.0, 1.0)
    if not math.isfinite(value) or (low > floor and not alike):
        return ""
    called = "Full" if len(full) else f"{best['arm']}, the best arm of a run without Full,"
    numbers = f"{METRICS[name].label} of {called} is {value:.3f} ({low:.3f} to {high:.3f})"
    if alike and low > floor:
        return (
            f"all questions have one label and all answers of {called} are alike, as of one that never looks: {NOTHING}"
        )
    if floor == CHANCE:
        return f"the model answers {'below' if high < floor else 'at'} chance: {NOTHING}; {numbers}"
    return f"the model answers next to nothing right: {NOTHING}; {numbers}, not surely above {floor:g}"


def _too_few(images: int, least: int) -> str:
    return f"{images} image{'s are' if images != 1 else ' is'} fewer than {least}: {NOTHING}"


def _measure(line: pd.Series[Any]) -> tuple[str, float]:
    """The metric that tells whether a model answers at all, and what it has to exceed."""
    if math.isfinite(line.get("score", math.nan)):
        return "score", NEXT_TO_NOTHING
    if math.isfinite(line["balanced_accuracy"]):
        return "balanced_accuracy", CHANCE
    return "accuracy", CHANCE if math.isfinite(line["yes_rate"]) else NEXT_TO_NOTHING


def _goodness(line: pd.Series[Any]) -> float:
    value = float(line[_measure(line)[0]])
    return value if math.isfinite(value) else -math.inf
