"""What a metric is, the registry of all of them, and how probes add up to one.

Sightline's own are declared in ``metrics.toml``. Another package decorates a function, and names the object in its
entry-point group ``sightline.metrics``:

    @metric("first_places", "first", "share of positives whose word is ranked first", better="higher", needs=("rank",))
    def first_places(rows: ArmRows) -> FloatArray:
        return (rows.columns["rank"] == 1).astype(float)

It then stands in the tables it names, in every CSV, and ``sightline gate`` knows it.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from sightline.core.registry import Registry
from sightline.core.row import ROW_COLUMNS
from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows, BoolArray, FloatArray, IntArray
from sightline.statistics.ranks import RankedMargins

UNIT = (0.0, 1.0)
Direction = Literal["higher", "lower", "neither"]
Form = Literal["mean", "macro", "ece", "auroc"]
"""mean: over the probes concerned; macro: average of the mean over positives and the mean over negatives."""
AnswerKind = Literal["any", "yes or no", "words"]
"""What answers a metric is about; ``words`` are compared with accepted answers."""
DisplayGroup = Literal[
    "main",
    "terminal",
    "demo",
    "differences",
    "seeds",
    "interventions",
    "calibration",
    "geometry",
    "leaderboard",
    "fields",
]
"""Tables made of metrics: the report's main one, what a run and the demo print, those of report sections, and those of
the leaderboard."""


_ABOUT_TOKENS = frozenset(column.name for column in ROW_COLUMNS) - {"predicted", "correct"}
"""Columns of every row that do not depend on what was answered."""


@dataclass(frozen=True)
class Metric:
    """One definition: a value per probe, the probes it concerns, and how they combine."""

    name: str
    label: str
    """Column heading."""
    definition: str
    better: Direction
    over: str
    """Which probes count: a key of ``POPULATIONS``."""
    needs: tuple[str, ...]
    """What must be known and finite on those probes: ``prediction``, ``yes`` (an answer that is yes or no), ``margin``,
    or any numeric or boolean column of the rows."""
    value: Callable[[ArmRows], FloatArray]
    """(n,) value per probe."""
    form: Form = "mean"
    binary: bool = False
    """True when values are 0/1 on a population that does not depend on the arm, so that McNemar's test applies."""
    shown_in: tuple[DisplayGroup, ...] = ("main",)
    order: int = 1000
    """Which of the metrics of any table comes first: the smallest; those of one number stand by name."""
    with_interval: bool = True
    """False where tables print the value alone: a budget is asked for, not estimated."""
    aliases: tuple[str, ...] = ()
    """Other spellings that a gate's rule may use."""
    share: bool = False
    """True when values are 0/1 on any population; ``binary`` ones are shares too."""
    repeats: str = ""
    """Name of a metric that this one refines: tables leave it out where both are the same in every arm."""
    answers: AnswerKind = "any"
    """Tables about other answers than these leave it out."""
    label_of_words: str = ""
    """Column heading where answers are words, and no probe is a negative that positives have to be told from."""
    limits: tuple[float, float] = (-math.inf, math.inf)
    """Between which values lie whatever the images are; without them few differing images bound nothing."""
    of_all_tokens: float | None = None
    """What the metric is by construction where every token is kept and seen; None where that says nothing."""

    def __post_init__(self) -> None:
        # A package may decorate its metric and name it in an entry point too: by these two the registry sees it is one.
        object.__setattr__(self, "__module__", self.value.__module__)
        object.__setattr__(self, "__qualname__", self.value.__qualname__)
        if self.binary or self.share or self.form in ("auroc", "ece"):
            object.__setattr__(self, "limits", UNIT)

    @property
    def reads_answers(self) -> bool:
        """Whether it says something about answers; coverage and budgets are the same whatever is answered.

        Columns that not every row has are the scorer's own.
        """
        asked = bool(set(self.needs) - _ABOUT_TOKENS)
        return asked or self.over.startswith("correctly answered")

    @property
    def columns(self) -> tuple[str, ...]:
        """The row columns among ``needs``."""
        return tuple(need for need in self.needs if need not in ("prediction", "yes", "margin"))

    @property
    def help(self) -> str:
        """One sentence for a heading's tooltip."""
        return f"{self.definition} (over {self.over})"


class MetricRegistry(Registry[Metric]):
    """Metrics by name, in the order in which tables show them."""

    def __getitem__(self, name: str) -> Metric:
        return self.get(name)

    def names(self) -> list[str]:
        return sorted(super().names(), key=lambda name: (self._order(name), name))

    def _order(self, name: str) -> float:
        try:
            return super().get(name).order
        except SightlineError:  # somebody's metric that cannot be imported stands last
            return float("inf")

    def values(self) -> list[Metric]:
        return [known for _, known in self.items()]

    def spellings(self) -> dict[str, Metric]:
        """Every name, label and alias without case and punctuation -> the metric it means."""
        found: dict[str, Metric] = {}
        for known in self.values():
            for word in (known.name, known.label, *known.aliases):
                found.setdefault(spelling(word), known)
        return found


METRICS = MetricRegistry("metric", group="sightline.metrics")


def metric(
    name: str,
    label: str,
    definition: str,
    *,
    better: Direction,
    needs: tuple[str, ...],
    over: str = "all probes",
    **further: Any,
) -> Callable[[Callable[[ArmRows], FloatArray]], Metric]:
    """Makes a metric of the function below it, which gives (n,) one value per probe, and registers it.

    ``further`` are fields of ``Metric`` that have a default: ``form``, ``shown_in``, ``limits``, ...
    """

    def decorate(value: Callable[[ArmRows], FloatArray]) -> Metric:
        made = Metric(name, label, definition, better, over, needs, value, **further)
        METRICS.add(name, made)
        return made

    return decorate


def metrics_shown_in(group: DisplayGroup) -> list[Metric]:
    """The metrics of one table, in order."""
    return [known for known in METRICS.values() if group in known.shown_in]


def spelling(word: str) -> str:
    """A name as a rule may write it: case, ``_``, ``-`` and spaces never matter."""
    return re.sub(r"[_\-\s]", "", word).lower()


# Which probes a metric averages over, and the answers that decide it.


def said_yes(rows: ArmRows) -> BoolArray:
    """(n,) True where the arm answered yes; on a positive, where it answered right."""
    if rows.predicted is None:
        raise SightlineError("the rows hold neither margins nor predictions")
    return rows.predicted


def answered_right(rows: ArmRows) -> FloatArray:
    """(n,) 1 where the answer is right."""
    return np.equal(said_yes(rows), rows.labels).astype(np.float64)


def margin(rows: ArmRows) -> FloatArray:
    """(n,) loss_no - loss_yes."""
    if rows.margins is None:
        raise SightlineError("the rows hold no margins")
    return rows.margins


def has_visible_evidence(rows: ArmRows) -> BoolArray:
    """(n,) True where the vision tower sees something of the probe's regions."""
    visible = rows.columns.get("visible")
    return np.zeros(len(rows.labels), dtype=bool) if visible is None else rows.has_regions & (visible > 0.0)


def _known(rows: ArmRows, column: str) -> BoolArray:
    """(n,) True where a column that is null elsewhere has a value; the same probes in every arm."""
    values = rows.columns.get(column)
    return np.zeros(len(rows.labels), dtype=bool) if values is None else np.isfinite(values)


POPULATIONS: Mapping[str, Callable[[ArmRows], BoolArray]] = {
    "all probes": lambda rows: np.ones(len(rows.labels), dtype=bool),
    "positives": lambda rows: rows.labels,
    "negatives": lambda rows: ~rows.labels,
    "probes with regions": lambda rows: rows.has_regions,
    "positives with regions": lambda rows: rows.labels & rows.has_regions,
    "negatives with regions": lambda rows: ~rows.labels & rows.has_regions,
    "positives with visible evidence": lambda rows: rows.labels & has_visible_evidence(rows),
    "negatives with visible evidence": lambda rows: ~rows.labels & has_visible_evidence(rows),
    "correctly answered positives with regions": lambda rows: rows.labels & rows.has_regions & said_yes(rows),
    "correctly answered positives with visible evidence": lambda rows: (
        rows.labels & has_visible_evidence(rows) & said_yes(rows)
    ),
    "correctly answered positives with a twin": lambda rows: rows.labels & _known(rows, "twin_right") & said_yes(rows),
    "questions whose answer has digits": lambda rows: _known(rows, "digit_error"),
}


# What the values of ``metrics.toml`` mean. p(yes) = sigmoid(margin), at t = 0 whatever threshold the arm uses.

LOW_COVERAGE = 0.5
"""Coverage below this is little."""
ZERO_COVERAGE = 1e-12
"""Coverage at or below this counts as none at all."""
_LOG_FLOOR = -math.log(1e-12)
_COMPARED = re.compile(r"(?P<column>\w+) (?P<sign><=?) (?P<bound>[\d.e-]+)")
_RATIO = re.compile(r"(?P<above>\w+) / (?P<below>\w+)")


def _margin_of_the_label(rows: ArmRows) -> FloatArray:
    """(n,) the margin in favour of the right answer."""
    return np.asarray(np.where(rows.labels, margin(rows), -margin(rows)))


def _confidence_gap(rows: ArmRows) -> FloatArray:
    """(n,) confidence minus correctness of the likelihoods themselves."""
    margins = margin(rows)
    return np.asarray(expit(np.abs(margins)) - ((margins >= 0) == rows.labels))


FORMULAS: Mapping[str, Callable[[ArmRows], FloatArray]] = {
    "right": answered_right,
    "yes": lambda rows: said_yes(rows).astype(np.float64),
    "margin": margin,
    "confidence - right": _confidence_gap,
    "squared error": lambda rows: np.asarray(np.square(expit(-_margin_of_the_label(rows)))),
    "log loss": lambda rows: np.minimum(np.logaddexp(0.0, -_margin_of_the_label(rows)), _LOG_FLOOR),
}


def value_of(text: str) -> Callable[[ArmRows], FloatArray]:
    """(n,) one value per probe, as ``metrics.toml`` writes it: a formula, ``a < 0.5``, ``a / b``, or a column."""
    if text in FORMULAS:
        return FORMULAS[text]
    if compared := _COMPARED.fullmatch(text):
        column, bound = compared["column"], float(compared["bound"])
        compare = np.less if compared["sign"] == "<" else np.less_equal
        return lambda rows: np.asarray(compare(rows.columns[column], bound)).astype(np.float64)
    if ratio := _RATIO.fullmatch(text):
        return lambda rows: _ratio(rows.columns[ratio["above"]], rows.columns[ratio["below"]])
    return lambda rows: rows.columns[text]


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """(n,) NaN where there is nothing below, on probes that no such metric counts."""
    found: FloatArray = np.full(len(below), np.nan)
    return np.divide(above, below, out=found, where=below > 0.0)


def _declare(name: str, facts: dict[str, Any]) -> None:
    """Registers one metric of the table."""
    value = facts.pop("value")
    told: dict[str, Any] = {key: tuple(entry) if isinstance(entry, list) else entry for key, entry in facts.items()}
    metric(name, told.pop("label"), told.pop("definition"), needs=told.pop("needs", (value,)), **told)(value_of(value))


for _name, _facts in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items():
    _declare(_name, _facts)


# From probes to a metric. Every one is a function of sums over probes, which makes a bootstrap draw a matrix product:
# the sums of a resample are (counts of images) @ (sums per image), and ``finish`` turns sums into the metric. AUROC
# alone needs ranks.

ECE_BINS = 15


def why_not(metric: Metric, rows: ArmRows) -> str:
    """One clause that says why the metric has no value on these rows, or "" when it has."""
    return _unknown(metric, rows) or _undefined(metric, rows)


def _unknown(metric: Metric, rows: ArmRows) -> str:
    """What the metric needs and the rows do not hold."""
    missing = [name for name in metric.columns if name not in rows.columns]
    if missing:
        return f"the rows have no column '{missing[0]}'"
    asked = [need for need in metric.needs if need not in metric.columns]
    if "margin" in asked and rows.margins is None:
        return "the rows have no margin"
    if asked and rows.predicted is None:
        return "the rows have no prediction"
    if "yes" in asked and not rows.yes_or_no:
        return "the answers are not yes or no"
    # An answer read off a margin that is not a number is no answer, even if a column claims one.
    broken = 0 if rows.margins is None else int(np.count_nonzero(~np.isfinite(rows.margins)))
    return f"{broken} of {len(rows.labels)} margins are not finite" if asked and broken else ""


def _undefined(metric: Metric, rows: ArmRows) -> str:
    """What is wrong with the probes concerned."""
    chosen = POPULATIONS[metric.over](rows)
    if not chosen.any():
        return f"there are no {metric.over}"
    if metric.form in ("auroc", "macro") and (rows.labels[chosen].all() or not rows.labels[chosen].any()):
        only = "yes" if rows.labels[chosen][0] else "no"
        return f"it needs both labels and all {int(chosen.sum())} of its probes have '{only}'"
    for name in metric.columns:
        values = rows.columns[name][chosen]
        broken = int(np.count_nonzero(~np.isfinite(values)))
        if broken:
            return f"{broken} of {int(chosen.sum())} values of '{name}' are not finite"
        if metric.binary and not np.isin(values, (0.0, 1.0)).all():
            return f"'{name}' has values other than 0 and 1"
    return ""


def probe_sums(metric: Metric, rows: ArmRows) -> Iterator[FloatArray]:
    """(n,) each: what every probe adds to the c sums that ``finish`` turns into the metric (not for AUROC).

    One after the other, because all of them may be many times the rows.
    """
    chosen = POPULATIONS[metric.over](rows)
    value = np.where(chosen, metric.value(rows), 0.0)
    if metric.form == "mean":
        yield value
        yield chosen.astype(np.float64)
    elif metric.form == "macro":
        for label in (chosen & rows.labels, chosen & ~rows.labels):
            yield value * label
            yield label.astype(np.float64)
    else:
        place = ece_bin(expit(np.abs(margin(rows))))
        for number in range(ECE_BINS):
            yield np.where(place == number, value, 0.0)
        yield chosen.astype(np.float64)


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


def point(metric: Metric, rows: ArmRows) -> float:
    """The metric over all rows; NaN where ``why_not`` gives a reason."""
    if why_not(metric, rows):
        return math.nan
    if metric.form == "auroc":
        return auroc(rows.labels, margin(rows))
    return float(finish(metric, np.array([column.sum() for column in probe_sums(metric, rows)])))


def auroc(labels: ArrayLike, margins: ArrayLike) -> float:
    """Rank-sum AUROC with average ranks for ties; NaN when a class is empty."""
    label = np.asarray(labels).astype(bool)
    everything = np.zeros(len(label), dtype=np.int64)
    ranked = RankedMargins.of(label, np.asarray(margins, dtype=np.float64), everything)
    return float(ranked.auroc(np.ones((1, 1)))[0])


def ece_bin(confidence: FloatArray) -> IntArray:
    """Index of the left-closed bin [i/15, (i+1)/15) that a confidence falls into; 1.0 belongs to the last."""
    edges = np.arange(1, ECE_BINS) / ECE_BINS
    return np.searchsorted(edges, confidence, side="right")
