"""Where to cut the margin: predict yes iff margin >= t.

t = 0 is the likelihood's own decision. Everything else is searched on labelled rows: the most accurate threshold, or
the most accurate one whose hard-negative false-positive rate stays within a bound. On which rows, and for which arms,
is said by a rule (``threshold_rules``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import BoolArray, FloatArray, IntArray, flags
from sightline.statistics.metrics import METRICS, point


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold and what it does on some rows; rates over an empty class are NaN."""

    threshold: float
    accuracy: float
    hfpr: float
    positive_accuracy: float
    yes_rate: float

    @property
    def negative_accuracy(self) -> float:
        return 1.0 - self.hfpr


@dataclass(frozen=True)
class Flips:
    """How many answers changed, by direction."""

    no_to_yes: int
    yes_to_no: int

    @property
    def total(self) -> int:
        return self.no_to_yes + self.yes_to_no


def _checked(labels: ArrayLike, margins: ArrayLike) -> tuple[BoolArray, FloatArray]:
    label, margin = flags(labels, "labels"), np.asarray(margins, dtype=np.float64)
    if label.shape != margin.shape or label.ndim != 1:
        raise SightlineError(f"{label.shape} labels and {margin.shape} margins do not pair up")
    if len(label) == 0:
        raise SightlineError("a threshold needs at least one row; the development split is empty")
    broken = int(np.count_nonzero(~np.isfinite(margin)))
    if broken:
        raise SightlineError(f"a threshold needs finite margins; {broken} of {len(margin)} are not")
    return label, margin


def predict(margins: ArrayLike, threshold: float = 0.0) -> BoolArray:
    """(n,) True = yes."""
    return np.asarray(np.asarray(margins, dtype=np.float64) >= threshold)


def evaluate(labels: ArrayLike, margins: ArrayLike, threshold: float = 0.0) -> OperatingPoint:
    """What a threshold does on these rows."""
    label, margin = _checked(labels, margins)
    rows = ArmRows.of(label, margin, threshold=threshold)
    found = {name: point(METRICS[name], rows) for name in ("accuracy", "hfpr", "positive_accuracy", "yes_rate")}
    return OperatingPoint(float(threshold), **found)


def candidates(margins: ArrayLike) -> FloatArray:
    """Ascending thresholds that tell all distinct margins apart: below the lowest, all midpoints, above the highest."""
    distinct = np.unique(np.asarray(margins, dtype=np.float64))
    return np.concatenate([[distinct[0] - 1.0], (distinct[:-1] + distinct[1:]) / 2.0, [distinct[-1] + 1.0]])


def _scan(label: BoolArray, margin: FloatArray, cuts: FloatArray) -> tuple[IntArray, IntArray]:
    """Right answers and false positives at every cut, from two sorted searches: O(n log n) for all cuts together."""
    positive, negative = np.sort(margin[label]), np.sort(margin[~label])
    true_positives = len(positive) - np.searchsorted(positive, cuts, side="left")
    true_negatives = np.searchsorted(negative, cuts, side="left")
    return true_positives + true_negatives, len(negative) - true_negatives


def accuracy_optimal(labels: ArrayLike, margins: ArrayLike) -> OperatingPoint:
    """The most accurate threshold; ties go to the lower hFPR, then to the smaller threshold.

    A further tie on |yes rate - 1/2| cannot arise: equal accuracy and equal false positives fix the number of yes.
    """
    label, margin = _checked(labels, margins)
    cuts = candidates(margin)
    right, false_positives = _scan(label, margin, cuts)
    best = np.lexsort((cuts, false_positives, -right))[0]
    return evaluate(label, margin, float(cuts[best]))


def risk_constrained(labels: ArrayLike, margins: ArrayLike, max_hfpr: float) -> OperatingPoint:
    """The most accurate threshold with hFPR <= ``max_hfpr`` on these rows; ties as in ``accuracy_optimal``.

    Saying no to everything meets any bound and reads nothing: it is not a solution. When no threshold that says yes at
    least once meets the bound, that is an error which names the lowest hFPR within reach.
    """
    label, margin = _checked(labels, margins)
    if not 0.0 <= max_hfpr <= 1.0:
        raise SightlineError(f"a bound on hFPR must lie in [0, 1], got {max_hfpr}")
    negatives = int(np.count_nonzero(~label))
    if negatives == 0:
        raise SightlineError("a bound on hFPR needs negative probes; the development split has none")
    cuts = candidates(margin)
    cuts = cuts[cuts <= margin.max()]
    right, false_positives = _scan(label, margin, cuts)
    # The tolerance only absorbs the rounding of a bound such as 0.1 * 3.
    allowed = false_positives <= max_hfpr * negatives + 1e-9
    if not allowed.any():
        reach = int(false_positives.min()) / negatives
        raise SightlineError(
            f"no threshold that ever says yes keeps hFPR <= {max_hfpr:g} on {len(label)} development rows; "
            f"the lowest within reach is {reach:.4f}: raise the bound or add development probes"
        )
    best = np.lexsort((cuts[allowed], false_positives[allowed], -right[allowed]))[0]
    return evaluate(label, margin, float(cuts[allowed][best]))


def flips(before: ArrayLike, after: ArrayLike) -> Flips:
    """Answers (n,) True = yes, before and after a change of threshold, mask or image."""
    first, second = flags(before, "answers before"), flags(after, "answers after")
    if first.shape != second.shape:
        raise SightlineError(f"flips need the same rows before and after, got {first.shape} and {second.shape}")
    return Flips(int(np.count_nonzero(~first & second)), int(np.count_nonzero(first & ~second)))
