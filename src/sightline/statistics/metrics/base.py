"""What a metric is, and the registry of all of them.

    @metric("accuracy", "Accuracy", "share of right answers", better="higher", needs=("prediction",))
    def accuracy(rows: ArmRows) -> FloatArray:
        return answered_right(rows)

is all that a new one needs: it then stands in the tables it names, in every CSV, and ``sightline gate`` knows it.
Another package names such an object in its entry-point group ``sightline.metrics``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sightline.core.registry import Registry
from sightline.core.row import ROW_COLUMNS
from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows, BoolArray, FloatArray

UNIT = (0.0, 1.0)
Direction = Literal["higher", "lower", "neither"]
Form = Literal["mean", "macro", "ece", "auroc"]
"""mean: over the probes concerned; macro: average of the mean over positives and the mean over negatives."""
AnswerKind = Literal["any", "yes or no", "words"]
"""What answers a metric is about; ``words`` are compared with accepted answers."""
DisplayGroup = Literal[
    "main", "terminal", "demo", "differences", "seeds", "interventions", "calibration", "geometry", "leaderboard"
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
    place: int = 1000
    """Its order among the metrics of any table, smallest first; those of one place stand by name."""
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
    def is_share(self) -> bool:
        """Whether the metric counts probes, so that an interval of a proportion fits it."""
        return self.form == "mean" and (self.binary or self.share)

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
        return sorted(super().names(), key=lambda name: (self._place(name), name))

    def _place(self, name: str) -> float:
        try:
            return super().get(name).place
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


METRICS = MetricRegistry("metric", group="sightline.metrics", package="sightline.statistics.metrics")


def metric(
    name: str,
    label: str,
    definition: str,
    *,
    better: Direction,
    over: str = "all probes",
    needs: tuple[str, ...],
    form: Form = "mean",
    binary: bool = False,
    shown_in: tuple[DisplayGroup, ...] = ("main",),
    place: int = 1000,
    with_interval: bool = True,
    aliases: tuple[str, ...] = (),
    share: bool = False,
    repeats: str = "",
    answers: AnswerKind = "any",
    label_of_words: str = "",
    limits: tuple[float, float] = (-math.inf, math.inf),
    of_all_tokens: float | None = None,
) -> Callable[[Callable[[ArmRows], FloatArray]], Metric]:
    """Makes a metric of the function below it, which gives (n,) one value per probe, and registers it."""

    def decorate(value: Callable[[ArmRows], FloatArray]) -> Metric:
        made = Metric(
            name, label, definition, better, over, needs, value, form, binary, shown_in, place, with_interval, aliases,
            share, repeats, answers, label_of_words, limits, of_all_tokens,
        )  # fmt: skip
        METRICS.add(name, made)
        return made

    return decorate


def metric_named(name: str) -> Metric:
    return METRICS.get(name)


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
}
