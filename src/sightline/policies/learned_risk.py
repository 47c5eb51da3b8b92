"""A level by a risk that is learned on a development set, from the question, the masks and a first answer."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.policies.base import (
    POLICIES,
    FilePolicy,
    LevelAnswer,
    Noticed,
    Policy,
    Reads,
    Sight,
    TuningSample,
    blocks_of,
    check_fitted_levels,
    cuts,
    dispersion,
    read_fitted,
)

# Logistic regression by gradient descent, in numpy.

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Descent:
    """How long and how far: steps, step size and the weight of the squared coefficients."""

    steps: int
    rate: float
    l2: float


@dataclass(frozen=True)
class Logistic:
    """P(event) = 1 / (1 + exp(-(bias + weights . (x - means) / scales)))."""

    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float

    def risk(self, x: list[float]) -> float:
        """Of one sample with these features."""
        each = zip(x, self.means, self.scales, self.weights, strict=True)
        raised = self.bias + sum(weight * (value - mean) / scale for value, mean, scale, weight in each)
        return float(1.0 / (1.0 + np.exp(-np.clip(raised, -60.0, 60.0))))


def fit_logistic(x: Floats, events: NDArray[np.bool_], how: Descent) -> Logistic:
    """(n, F) features and (n,) events; features are standardised, and the bias starts at the rate of events."""
    means, scales = x.mean(axis=0), x.std(axis=0)
    scales = np.where(scales > 1e-12, scales, 1.0)
    standard = (x - means) / scales
    wanted = events.astype(np.float64)
    start = 0.98 * wanted.mean() + 0.01
    weights, bias = np.zeros(x.shape[1]), float(np.log(start / (1.0 - start)))
    for _ in range(how.steps):
        error = 1.0 / (1.0 + np.exp(-np.clip(standard @ weights + bias, -60.0, 60.0))) - wanted
        weights = weights - how.rate * (standard.T @ error / len(wanted) + how.l2 * weights)
        bias -= how.rate * float(error.mean())
    return Logistic(tuple(means.tolist()), tuple(scales.tolist()), tuple(weights.tolist()), bias)


# What risk is learned from, in groups by what has to be done to know it. Right answers and regions are in none.

QUESTION = ("question_words", "question_joins", "question_fields")
MASK = ("tokens", "mask_dispersion", "mask_blocks")
STABILITY = ("mask_stability",)
ANSWER = ("confidence", "answer_words", "answer_yes")
GROUPS: Mapping[str, tuple[str, ...]] = {
    "question": QUESTION,
    "mask": MASK,
    "stability": (*MASK, *STABILITY),
    "combined": (*QUESTION, *MASK, *STABILITY),
    "combined and low answer": (*QUESTION, *MASK, *STABILITY, *ANSWER),
}
"""``question``: its words alone. ``mask``: what the selector keeps at the lowest level. ``stability``: also how much of
that the highest level keeps. The last group needs an answer at the lowest level, so that falling back costs twice."""

BLOCKS = 4
"""The image is cut into this many blocks each way."""
_WORD = re.compile(r"[a-z0-9]+")
_JOINS = {"and", "both", "between", "during", "from", "to", "per", "versus", "vs", "respectively"}
_FIELDS = {
    "date", "year", "total", "amount", "number", "value", "price", "address", "organization", "company", "name",
    "invoice", "account", "form", "page", "table",
}  # fmt: skip


def before_answer(sight: Sight) -> dict[str, float]:
    """Everything that question and masks tell."""
    words = _WORD.findall(sight.question.lower())
    lowest, highest = sight.masks[0], sight.masks[-1]
    weights = lowest / max(1, lowest.sum())
    return {
        "question_words": float(len(words)),
        "question_joins": float(any(word in _JOINS for word in words)),
        "question_fields": float(any(word in _FIELDS for word in words)),
        "tokens": float(np.log(len(lowest))),
        "mask_dispersion": dispersion(sight.cells, weights),
        "mask_blocks": len(np.unique(blocks_of(sight.cells, BLOCKS)[lowest])) / BLOCKS**2,
        "mask_stability": float((lowest & highest).sum() / max(1, lowest.sum())),
    }


def vector(names: Sequence[str], noticed: Noticed, answered: LevelAnswer | None) -> list[float]:
    """The features of these names, in their order."""
    known = dict(noticed)
    if answered is not None:
        known |= {"confidence": answered.confidence or 0.0, "answer_words": len(answered.answer.split())}
        known["answer_yes"] = answered.answer.strip().lower() == "yes"
    return [float(known[name]) for name in names]


LOST = 0.25
"""A sample was worth more tokens when the highest level's score is this much above the lowest level's."""
OF_CHOICES, OF_TEXTS = Descent(5000, 0.03, 0.05), Descent(500, 0.08, 0.02)
"""How the paper's pilots were fitted: on yes/no answers, and on open ones."""
TRIED = {2: 40, 3: 14}
"""Thresholds tried per threshold to be chosen, by number of levels; fewer where there are more of them."""


@dataclass(frozen=True)
class RiskModel:
    """Which features count how much, and from which risk on each higher level is taken."""

    group: str
    features: tuple[str, ...]
    logistic: Logistic
    thresholds: tuple[float, ...]
    """One for each level above the lowest, ascending."""
    levels: str = ""
    """That it was fitted on, as an arm writes them."""

    @cached_property
    def reads_answer(self) -> bool:
        return any(name in ANSWER for name in self.features)

    @staticmethod
    def of(found: Mapping[str, Any], file: str) -> RiskModel:
        try:
            numbers = {name: tuple(map(float, found["logistic"][name])) for name in ("means", "scales", "weights")}
            features, thresholds = tuple(map(str, found["features"])), tuple(map(float, found["thresholds"]))
            model = RiskModel(
                str(found["group"]),
                features,
                Logistic(**numbers, bias=float(found["logistic"]["bias"])),
                thresholds,
                str(found["levels"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise SightlineError(f"learned_risk: {file} holds no fitted model ({error})") from None
        known = {name for names in GROUPS.values() for name in names}
        sizes = {len(features), *map(len, numbers.values())}
        if not set(features) <= known or len(sizes) > 1 or list(thresholds) != sorted(thresholds):
            raise SightlineError(f"learned_risk: {file} holds a model that is not whole; fit it again")
        return model


@POLICIES.register("learned_risk")
@dataclass(frozen=True)
class LearnedRisk(FilePolicy):
    """A level by the risk, learned on a development set, that the lowest level loses what the highest would get right.

    ``file`` is what ``sightline policy fit`` wrote: a logistic regression on features of the question, of the masks
    and, if that was better, of the answer at the lowest level. With the latter it is a cascade.
    """

    name: ClassVar[str] = "learned_risk"
    reads: ClassVar[frozenset[Reads]] = frozenset({"masks", "confidence"})
    tuned: ClassVar[tuple[str, ...]] = ("file",)

    def __post_init__(self) -> None:
        _ = self.model  # a file that cannot be used is refused with its arm

    @cached_property
    def model(self) -> RiskModel:
        return RiskModel.of(read_fitted(self.file, self.name), self.file)

    @classmethod
    def made_of(cls, model: RiskModel) -> LearnedRisk:
        """Not from a file: one that was just fitted."""
        policy = cls.untuned(file="")
        vars(policy)["model"] = model
        return policy

    def check_levels(self, levels: Sequence[Budget]) -> None:
        check_fitted_levels(self.model.levels, levels, self.name)

    def look(self, sight: Sight) -> Noticed:
        return before_answer(sight)

    def decide(self, levels: Sequence[Budget], noticed: Noticed, passes: Sequence[LevelAnswer]) -> Budget | None:
        if not passes and self.model.reads_answer:
            return levels[0]
        if len(passes) > self.model.reads_answer:
            return None
        risk = self.model.logistic.risk(vector(self.model.features, noticed, passes[0] if passes else None))
        wanted = levels[bisect_right(self.model.thresholds, risk)]
        return None if passes and wanted == levels[0] else wanted

    def candidates(self, levels: Sequence[Budget], samples: Sequence[TuningSample]) -> Iterable[Policy]:
        """One regression per group of features, cut between its own risks, or not at all."""
        lost = np.array([sample.scores[levels[-1]] - sample.scores[levels[0]] >= LOST for sample in samples])
        answers = {sample.passes[level].answer for sample in samples for level in levels}
        how = OF_CHOICES if answers <= {"yes", "no"} else OF_TEXTS
        for group, names in GROUPS.items():
            x = [vector(names, sample.noticed, sample.passes[levels[0]]) for sample in samples]
            logistic = fit_logistic(np.array(x), lost, how)
            tried = cuts(map(logistic.risk, x), TRIED.get(len(levels), 6))
            for thresholds in combinations_with_replacement([0.0, *tried, 1.0], len(levels) - 1):
                yield self.made_of(RiskModel(group, names, logistic, thresholds, "/".join(map(str, levels))))

    def contents(self) -> Mapping[str, Any]:
        return asdict(self.model)

    def __str__(self) -> str:
        cut = "/".join(f"{threshold:.3f}" for threshold in self.model.thresholds)
        return f"{self.name}({self.model.group} >= {cut})"
