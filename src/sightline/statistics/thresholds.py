"""Rules that name a threshold: a number, or how to choose one on development rows.

    2.043         a number, given
    full-dev      Full's most accurate threshold, for all arms
    own-dev       each arm's own most accurate threshold
    shared        one for all arms, the most accurate on the rows of all of them together
    hfpr<=0.05    each arm's most accurate threshold that keeps hFPR within the bound

``MODEL=RULE`` limits a rule to the runs of one model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from sightline.errors import SightlineError, nearest, refuse_unknown
from sightline.statistics.arm_rows import ArmRows, BoolArray, FloatArray, IntArray, flags
from sightline.statistics.metrics import METRICS, point

# Where to cut the margin: predict yes iff margin >= t.
#
# t = 0 is the likelihood's own decision. Everything else is searched on labelled rows: the most accurate threshold, or
# the most accurate one whose hard-negative false-positive rate stays within a bound. On which rows, and for which
# arms, is said by a rule below.


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


Scored = tuple[BoolArray, FloatArray]
"""(n,) labels, True = yes, and (n,) margins."""


@dataclass(frozen=True)
class Development:
    """The development rows of one model: what a rule may look at."""

    arms: Mapping[str, Scored]
    """By plain arm."""
    full: str | None
    """The arm among them that keeps every token."""

    def of(self, arm: str) -> Scored:
        if arm not in self.arms:
            raise SightlineError(
                "no development row to choose its threshold on; run the arm there too, or take full-dev"
            )
        return self.arms[arm]


@dataclass(frozen=True)
class ThresholdRule:
    """Names the threshold of every arm of a model. ``str`` of a rule is what a user writes, and all that it is."""

    text: str
    title: str = field(compare=False)
    """For a column of rules."""
    words: str = field(compare=False)
    """Which threshold it is, to be read behind "the threshold is"."""
    threshold: Callable[[str, Development], float] = field(compare=False, repr=False)
    """The threshold of one plain arm."""
    needs_development: bool = True
    needs_full: bool = False
    """Whether development rows of Full are needed whatever arm is asked for."""
    bounds_risk: bool = False
    """Whether it keeps hFPR within a bound."""

    def __str__(self) -> str:
        return self.text


def given(value: float) -> ThresholdRule:
    """A number, for every arm."""
    title = f"t = {shown(value)}"
    return ThresholdRule(repr(value), title, "the one that was given", lambda *_: value, needs_development=False)


def within_risk(max_hfpr: float) -> ThresholdRule:
    """Every arm's most accurate threshold whose hFPR stays within a bound."""
    if not 0.0 <= max_hfpr <= 1.0:
        raise SightlineError(f"a bound on hFPR must lie in [0, 1], got {max_hfpr:g}")
    return ThresholdRule(
        f"hfpr<={max_hfpr:g}",
        f"t with hFPR ≤ {max_hfpr:g}",
        f"each arm's most accurate one whose development hFPR is at most {max_hfpr:g}",
        lambda arm, development: risk_constrained(*development.of(arm), max_hfpr).threshold,
        bounds_risk=True,
    )


def _of_full(arm: str, development: Development) -> float:
    if development.full is None:
        raise SightlineError("no development row of a full arm to take the threshold from; run --arm full too")
    return accuracy_optimal(*development.of(development.full)).threshold


def _own(arm: str, development: Development) -> float:
    return accuracy_optimal(*development.of(arm)).threshold


def _of_all(arm: str, development: Development) -> float:
    labels, margins = zip(*development.arms.values(), strict=True)
    return accuracy_optimal(np.concatenate(labels), np.concatenate(margins)).threshold


NAMED: Mapping[str, ThresholdRule] = {
    rule.text: rule
    for rule in (
        ThresholdRule(
            "full-dev", "Full's t for all", "Full's most accurate one, for all arms", _of_full, needs_full=True
        ),
        ThresholdRule("own-dev", "own t", "each arm's own most accurate one", _own),
        ThresholdRule("shared", "one t for all", "the most accurate one for the rows of all arms together", _of_all),
    )
}
EXAMPLES = (*NAMED, "hfpr<=0.05")
_BOUND = re.compile(r"^hfpr\s*<=\s*(?P<bound>\S+)$", re.IGNORECASE)
_BEFORE_RULE = re.compile(r"(?<!<)=")
"""The equals sign behind a model's name, not that of ``<=``."""

OneThreshold = ThresholdRule | float | str
ThresholdLike = OneThreshold | Mapping[str, OneThreshold] | Sequence[str]
"""What the Python interface takes: a rule for all models, one per model, or lines as on the command line."""
Thresholds = Mapping[str | None, ThresholdRule]
"""By model; None stands for every model that has no rule of its own."""


def shown(threshold: float) -> str:
    """A threshold in words: at most three decimals."""
    return f"{round(threshold, 3) + 0.0:.3f}".rstrip("0").rstrip(".").replace("-", "−")


def parse_threshold(text: str) -> ThresholdRule:
    """A number, ``full-dev``, ``own-dev``, ``shared`` or ``hfpr<=BOUND``."""
    text = text.strip()
    if text in NAMED:
        return NAMED[text]
    number = _number(text)
    if number is not None:
        return given(number)
    bound = _BOUND.match(text)
    if bound is not None:
        limit = _number(bound["bound"])
        if limit is None:
            raise SightlineError(
                f"threshold '{text}': '{bound['bound']}' is not a number; write for example hfpr<=0.05"
            )
        return within_risk(limit)
    forms = f"write a number, {', '.join(EXAMPLES[:-1])} or {EXAMPLES[-1]}"
    raise SightlineError(f"'{text}' is not a threshold; {nearest(text.lower(), EXAMPLES, forms)}")


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_thresholds(threshold: ThresholdLike) -> Thresholds:
    """The rules by model, from whatever form they were given in."""
    if isinstance(threshold, ThresholdRule):
        return {None: threshold}
    if isinstance(threshold, int | float):
        return {None: parse_threshold(str(float(threshold)))}
    if isinstance(threshold, Mapping):
        return {
            model: rule if isinstance(rule, ThresholdRule) else parse_threshold(str(rule))
            for model, rule in threshold.items()
        }
    rules: dict[str | None, ThresholdRule] = {}
    for line in [threshold] if isinstance(threshold, str) else threshold:  # RULE and MODEL=RULE, each model once
        *model, text = _BEFORE_RULE.split(line, maxsplit=1)
        name = model[0].strip() if model else None
        if name in rules:
            raise SightlineError(f"two thresholds for {f'model {name!r}' if name else 'all models'}; give one")
        rules[name] = parse_threshold(text)
    return rules


def check_models(rules: Thresholds, known: Iterable[str]) -> None:
    """Refuses a rule for a model that nobody has."""
    models = list(dict.fromkeys(known))
    for model in rules:
        if model is not None:
            refuse_unknown(model, models, f"a threshold is given for model '{model}', which no run has", "models:")


def threshold_for(rules: Thresholds, model: str) -> ThresholdRule | None:
    """The rule for one model; None where its answers stay as they were recorded."""
    return rules.get(model, rules.get(None))
