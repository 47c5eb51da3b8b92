"""Every metric, defined once: point estimates, bootstraps, reports and gates all read ``METRICS``.

A metric is a function of sums over probes. That is what makes a bootstrap draw a matrix product: the sums of a resample
are (counts of images) @ (sums per image), and ``finish`` turns sums into the metric. AUROC alone needs ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from sightline.errors import SightlineError
from sightline.statistics.arrays import BoolArray, FloatArray, IntArray
from sightline.statistics.ranks import RankedMargins
from sightline.statistics.rows import ArmRows

LOW_COVERAGE = 0.5
ZERO_COVERAGE = 1e-12
ECE_BINS = 15
_LOG_FLOOR = -math.log(1e-12)

Form = Literal["mean", "macro", "ece", "auroc"]
"""mean: over the probes concerned; macro: average of the mean over positives and the mean over negatives."""


@dataclass(frozen=True)
class Metric:
    """One definition: a value per probe, the probes it concerns, and how they combine."""

    name: str
    label: str
    """Column heading."""
    definition: str
    better: Literal["higher", "lower", "neither"]
    over: str
    """Which probes count: a key of ``POPULATIONS``."""
    needs: tuple[str, ...]
    """What must be known and finite on those probes: "prediction", "margin", or columns of the rows."""
    value: Callable[[ArmRows], FloatArray]
    """(n,) value per probe."""
    form: Form = "mean"
    binary: bool = False
    """True when values are 0/1 on a population that does not depend on the arm, so that McNemar's test applies."""


POPULATIONS: Mapping[str, Callable[[ArmRows], BoolArray]] = {
    "all probes": lambda rows: np.ones(len(rows.labels), dtype=bool),
    "positives": lambda rows: rows.labels,
    "negatives": lambda rows: ~rows.labels,
    "probes with regions": lambda rows: rows.has_regions,
    "positives with regions": lambda rows: rows.labels & rows.has_regions,
    "negatives with regions": lambda rows: ~rows.labels & rows.has_regions,
    "correctly answered positives with regions": lambda rows: rows.labels & rows.has_regions & _yes(rows),
}


def _yes(rows: ArmRows) -> BoolArray:
    if rows.predicted is None:
        raise SightlineError("the rows hold neither margins nor predictions")
    return rows.predicted


def _margin(rows: ArmRows) -> FloatArray:
    if rows.margins is None:
        raise SightlineError("the rows hold no margins")
    return rows.margins


def _correct(rows: ArmRows) -> FloatArray:
    return np.equal(_yes(rows), rows.labels).astype(np.float64)


def _overconfidence(rows: ArmRows) -> FloatArray:
    """Confidence minus correctness of the likelihoods themselves, hence at t = 0 whatever threshold the arm uses."""
    margins = _margin(rows)
    return np.asarray(expit(np.abs(margins)) - ((margins >= 0) == rows.labels))


def _signed_margin(rows: ArmRows) -> FloatArray:
    return np.asarray(np.where(rows.labels, _margin(rows), -_margin(rows)))


def _metrics() -> dict[str, Metric]:
    """Builds the table; a function keeps its helper lambdas out of the module's names."""

    def column(name: str) -> Callable[[ArmRows], FloatArray]:
        return lambda rows: rows.columns[name]

    answer, margin, ecr = ("prediction",), ("margin",), ("ecr",)

    def yes(rows: ArmRows) -> FloatArray:
        return _yes(rows).astype(np.float64)

    table = [
        Metric("accuracy", "Accuracy", "share of right answers", "higher", "all probes", answer, _correct, binary=True),
        Metric(
            "positive_accuracy", "Pos. acc.", "share of right answers on positives", "higher", "positives", answer,
            _correct, binary=True,
        ),
        Metric(
            "negative_accuracy", "Neg. acc.", "share of right answers on negatives", "higher", "negatives", answer,
            _correct, binary=True,
        ),
        Metric(
            "hfpr", "hFPR", "hard-negative false-positive rate: share of negatives answered yes", "lower", "negatives",
            answer, yes, binary=True,
        ),
        Metric("yes_rate", "Yes rate", "share answered yes", "neither", "all probes", answer, yes, binary=True),
        Metric(
            "auroc", "AUROC", "P(margin of a positive > margin of a negative), ties one half; threshold-free", "higher",
            "all probes", margin, _margin, form="auroc",
        ),
        Metric(
            "ece", "ECE-15", "expected calibration error of max(p, 1 - p), p = sigmoid(margin), 15 equal bins, t = 0",
            "lower", "all probes", margin, _overconfidence, form="ece",
        ),
        Metric(
            "brier", "Brier", "mean (p - label)^2, p = sigmoid(margin)", "lower", "all probes", margin,
            lambda rows: np.square(expit(-_signed_margin(rows))),
        ),
        Metric(
            "nll", "NLL", "mean -log p(label), p = sigmoid(margin) clamped at 1e-12", "lower", "all probes", margin,
            lambda rows: np.minimum(np.logaddexp(0.0, -_signed_margin(rows)), _LOG_FLOOR),
        ),
        Metric(
            "pos_ecr", "PosECR", "covered share of the evidence area, by lineage, on positives", "higher",
            "positives with regions", ecr, column("ecr"),
        ),
        Metric(
            "neg_src", "NegSRC", "covered share of the confusable source area, by lineage, on negatives", "neither",
            "negatives with regions", ecr, column("ecr"),
        ),
        Metric(
            "anchor_ecr", "AnchorECR", "covered share of the evidence area, by anchors alone, on positives", "higher",
            "positives with regions", ("anchor_ecr",), column("anchor_ecr"),
        ),
        Metric(
            "pn_average", "P/N avg.", "(PosECR + NegSRC) / 2", "neither", "probes with regions", ecr, column("ecr"),
            form="macro",
        ),
        Metric(
            "lpp", "LPP", "local provenance precision: share of the kept cells touching a region that lies inside it",
            "higher", "positives with regions", ("lpp",), column("lpp"),
        ),
        Metric(
            "geo_f1", "Geo-F1", "mean harmonic mean of ECR and LPP", "higher", "positives with regions", ("geo_f1",),
            column("geo_f1"),
        ),
        Metric(
            "center_recall", "CenterR", "share of regions whose centre lies in a kept cell", "higher",
            "probes with regions", ("center_recall",), column("center_recall"),
        ),
        Metric(
            "patch_recall", "PatchR", "kept share of the cells that touch a region", "higher", "probes with regions",
            ("patch_recall",), column("patch_recall"),
        ),
        Metric(
            "worst_region", "Worst region", "ECR of the least covered region of a probe", "higher",
            "positives with regions", ("worst_region",), column("worst_region"),
        ),
        Metric(
            "all_half", "All >= 0.5", "share of probes in which every region has ECR >= 0.5", "higher",
            "positives with regions", ("all_half",), column("all_half"), binary=True,
        ),
        Metric(
            "low_coverage", "Correct, ECR < 0.5", "share of correct positives whose evidence is mostly gone", "lower",
            "correctly answered positives with regions", (*answer, *ecr),
            lambda rows: (rows.columns["ecr"] < LOW_COVERAGE).astype(np.float64),
        ),
        Metric(
            "zero_coverage", "Correct, ECR = 0", "share of correct positives with no evidence cell left (<= 1e-12)",
            "lower", "correctly answered positives with regions", (*answer, *ecr),
            lambda rows: (rows.columns["ecr"] <= ZERO_COVERAGE).astype(np.float64),
        ),
        Metric("keep", "Keep", "kept share of visual tokens", "neither", "all probes", ("keep",), column("keep")),
    ]  # fmt: skip
    return {metric.name: metric for metric in table}


METRICS: Mapping[str, Metric] = _metrics()
"""Name -> definition. The order is the order of columns in reports."""


def metric_named(name: str) -> Metric:
    if name not in METRICS:
        raise SightlineError(f"unknown metric '{name}'; known: {', '.join(METRICS)}")
    return METRICS[name]


def why_not(metric: Metric, rows: ArmRows) -> str:
    """One clause that says why the metric has no value on these rows, or "" when it has."""
    for need in metric.needs:
        if need in ("margin", "prediction"):
            if rows.predicted is None if need == "prediction" else rows.margins is None:
                return f"the rows have no {need}"
            # An answer read off a margin that is not a number is no answer, even if a column claims one.
            broken = 0 if rows.margins is None else int(np.count_nonzero(~np.isfinite(rows.margins)))
            if broken:
                return f"{broken} of {len(rows.labels)} margins are not finite"
        elif need not in rows.columns:
            return f"the rows have no column '{need}'"
    chosen = POPULATIONS[metric.over](rows)
    if not chosen.any():
        return f"there are no {metric.over}"
    if metric.form in ("auroc", "macro") and (rows.labels[chosen].all() or not rows.labels[chosen].any()):
        only = "yes" if rows.labels[chosen][0] else "no"
        return f"it needs both labels and all {int(chosen.sum())} of its probes have '{only}'"
    for name in set(metric.needs) & set(rows.columns):
        broken = int(np.count_nonzero(~np.isfinite(rows.columns[name][chosen])))
        if broken:
            return f"{broken} of {int(chosen.sum())} values of '{name}' are not finite"
        if metric.binary and not np.isin(rows.columns[name][chosen], (0.0, 1.0)).all():
            return f"'{name}' has values other than 0 and 1"
    return ""


def probe_sums(metric: Metric, rows: ArmRows) -> FloatArray:
    """(n, c) what each probe adds to the c sums that ``finish`` turns into the metric (not for AUROC)."""
    chosen = POPULATIONS[metric.over](rows)
    value = np.where(chosen, metric.value(rows), 0.0)
    if metric.form == "mean":
        return np.stack([value, chosen], axis=1)
    if metric.form == "macro":
        positive = chosen & rows.labels
        negative = chosen & ~rows.labels
        return np.stack([value * positive, positive, value * negative, negative], axis=1)
    in_bin = ece_bin(expit(np.abs(_margin(rows))))[:, None] == np.arange(ECE_BINS)
    return np.concatenate([value[:, None] * in_bin, chosen[:, None]], axis=1)


def finish(metric: Metric, sums: FloatArray) -> FloatArray:
    """(..., c) sums -> (...) metric; NaN where no probe concerned is left."""
    with np.errstate(invalid="ignore", divide="ignore"):
        if metric.form == "mean":
            value: FloatArray = sums[..., 0] / sums[..., 1]
        elif metric.form == "macro":
            value = 0.5 * (sums[..., 0] / sums[..., 1] + sums[..., 2] / sums[..., 3])
        else:
            value = np.abs(sums[..., :-1]).sum(axis=-1) / sums[..., -1]
    return value


def ece_bin(confidence: FloatArray) -> IntArray:
    """Index of the left-closed bin [i/15, (i+1)/15) that a confidence falls into; 1.0 belongs to the last."""
    edges = np.arange(1, ECE_BINS) / ECE_BINS
    return np.searchsorted(edges, confidence, side="right")


def expected_calibration_error(confidence: ArrayLike, correct: ArrayLike) -> float:
    """ECE = sum_b (n_b / n) |mean confidence - mean correctness| over 15 equal bins."""
    sure = np.asarray(confidence, dtype=np.float64)
    in_bin = ece_bin(sure)[:, None] == np.arange(ECE_BINS)
    gaps = ((sure - np.asarray(correct, dtype=np.float64))[:, None] * in_bin).sum(axis=0)
    return float(np.abs(gaps).sum() / len(sure))


def auroc(labels: ArrayLike, margins: ArrayLike) -> float:
    """Rank-sum AUROC with average ranks for ties; NaN when a class is empty."""
    label = np.asarray(labels).astype(bool)
    everything = np.zeros(len(label), dtype=np.int64)
    ranked = RankedMargins.of(label, np.asarray(margins, dtype=np.float64), everything)
    return float(ranked.auroc(np.ones((1, 1)))[0])


def point(metric: Metric, rows: ArmRows) -> float:
    """The metric over all rows; NaN where ``why_not`` gives a reason."""
    if why_not(metric, rows):
        return math.nan
    if metric.form == "auroc":
        return auroc(rows.labels, _margin(rows))
    return float(finish(metric, probe_sums(metric, rows).sum(axis=0)))


def answer_metrics(labels: ArrayLike, margins: ArrayLike, threshold: float = 0.0) -> dict[str, float]:
    """Every metric that needs no geometry, from labels (yes = True) and margins."""
    rows = ArmRows.of(labels, margins, threshold=threshold)
    known: Sequence[str] = ("prediction", "margin")
    return {name: point(m, rows) for name, m in METRICS.items() if all(need in known for need in m.needs)}
