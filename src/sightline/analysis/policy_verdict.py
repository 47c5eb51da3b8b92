"""Is a budget of each sample's own worth it? A policy beside every fixed budget, and the paper's gate in words.

The gate asks three things of held-out probes: every task's score within a tolerance of a fixed reference, the mean kept
fraction of the answers' prefixes, and the cost of all prefixes that were run. It reads points, as the paper's does; the
paired interval of each difference stands beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sightline.analysis.policy_replay import Played
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.bootstrap import DRAWS, SEED, difference_interval
from sightline.statistics.intervals import Estimate
from sightline.statistics.metrics import Metric

ROUNDING = 1e-12
"""Sums of doubles that differ by less are equal."""
SCORE = Metric(
    "task_score",
    "Score",
    "mean of what each answer's task gives it",
    better="higher",
    over="all probes",
    needs=("task_score",),
    value=lambda rows: rows.columns["task_score"],
)


@dataclass(frozen=True)
class PolicyLimits:
    """The bounds of the gate; the paper's."""

    tolerance: float = 0.01
    """How much lower than the reference's a task's score may be."""
    keep: float = 0.60
    """Largest mean kept fraction."""
    cost: float = 0.70
    """The overhead-aware cost must be below it."""


@dataclass(frozen=True)
class PolicyFigures:
    """A fixed budget or a policy over some probes, in numbers."""

    name: str
    n: int
    scores: Mapping[str, float]
    """By task."""
    hfpr: float
    """Share of negatives answered yes; NaN where answers are not yes or no."""
    keep: float
    cost: float
    """Mean of the kept fractions of all passes: what was run, not only what gave the answer."""

    @property
    def score(self) -> float:
        """Tasks count alike, however many questions they have."""
        return float(np.mean(list(self.scores.values())))


def figures(played: Played) -> PolicyFigures:
    asked = played.asked
    scores = {str(task): float(played.scores[asked.tasks == task].mean()) for task in np.unique(asked.tasks)}
    alarms = 1.0 - played.scores[asked.negative]
    hfpr = float(alarms.mean()) if len(alarms) else math.nan
    return PolicyFigures(
        played.name, len(asked.ids), scores, hfpr, float(played.keep.mean()), float(played.spent.mean())
    )


@dataclass(frozen=True)
class GatePart:
    """One question of the gate, answered."""

    words: str
    passed: bool


@dataclass(frozen=True)
class PolicyVerdict:
    """A policy on probes that did not choose it."""

    policy: PolicyFigures
    fixed: Sequence[PolicyFigures]
    """The same probes at every fixed level."""
    reference: str
    """Name of the fixed arm that it must hold up against."""
    differences: Mapping[str, Estimate]
    """By task the policy's score minus the reference's, with its paired image-cluster interval."""
    parts: Sequence[GatePart]
    tolerance: float

    @property
    def go(self) -> bool:
        return all(part.passed for part in self.parts)

    @property
    def no_worse(self) -> list[str]:
        """Fixed budgets that score as much in every task and cost no more: where there is one, the policy is idle."""
        return [
            each.name
            for each in self.fixed
            if each.cost <= self.policy.cost + ROUNDING
            and all(each.scores[task] >= score - ROUNDING for task, score in self.policy.scores.items())
        ]

    @property
    def notes(self) -> list[str]:
        """What these probes cannot tell."""
        open_losses = [
            f"{found.low:+.3f}{f' on {task}' if len(self.differences) > 1 else ''}"
            for task, found in self.differences.items()
            if found.value >= -self.tolerance - ROUNDING and not found.low >= -self.tolerance
        ]
        if not open_losses:
            return []
        return [f"a loss down to {', '.join(open_losses)} is within the interval: {self.policy.n} probes decide little"]

    @property
    def words(self) -> str:
        """``... within 0.01 of fixed 70 %: no (-0.031 on docvqa); ...: yes; ...: no -> no-go``"""
        return f"{'; '.join(part.words for part in self.parts)} -> {'go' if self.go else 'no-go'}"


def verdict(
    policy: Played,
    fixed: Mapping[Budget, Played],
    reference: Budget,
    limits: PolicyLimits = PolicyLimits(),  # noqa: B008  # frozen
    *,
    draws: int = DRAWS,
    seed: int = SEED,
) -> PolicyVerdict:
    """A policy against every fixed budget on the same probes, ``reference`` being the one that it must hold up to."""
    if reference not in fixed:
        known = ", ".join(map(str, fixed))
        raise SightlineError(f"there is no fixed arm at {reference} to compare with; there are {known}")
    differences = score_differences(policy, fixed[reference], draws, seed)
    own = figures(policy)
    parts = (
        _scores_part(differences, reference, limits.tolerance),
        _bound_part("mean keep", own.keep, "<=", limits.keep),
        _bound_part("overhead-aware cost", own.cost, "<", limits.cost),
    )
    beside = [figures(each) for each in fixed.values()]
    return PolicyVerdict(own, beside, fixed[reference].name, differences, parts, limits.tolerance)


def score_differences(policy: Played, reference: Played, draws: int, seed: int) -> dict[str, Estimate]:
    """By task; without an interval where there are fewer than two images to resample."""
    if not np.array_equal(policy.asked.ids, reference.asked.ids):
        raise SightlineError(f"'{policy.name}' and '{reference.name}' have other probes: finish the run")
    found = {}
    for task in np.unique(policy.asked.tasks):
        which = policy.asked.tasks == task
        one, other = _rows(policy.chosen(which)), _rows(reference.chosen(which))
        if one.n_images < 2:
            value = float(policy.scores[which].mean() - reference.scores[which].mean())
            found[str(task)] = Estimate(value, math.nan, math.nan, 0)
        else:
            found[str(task)] = difference_interval(one, other, SCORE, draws=draws, seed=seed)
    return found


def _rows(played: Played) -> ArmRows:
    right = np.ones(len(played.scores), dtype=bool)
    return ArmRows.of(right, images=played.asked.images, task_score=played.scores)


def _scores_part(differences: Mapping[str, Estimate], reference: Budget, tolerance: float) -> GatePart:
    count = len(differences)
    subject = {1: "the score", 2: "both task scores"}.get(count, f"all {count} task scores")
    task, worst = min(differences.items(), key=lambda item: item[1].value)
    passed = worst.value >= -tolerance - ROUNDING
    where = f" on {task}" if count > 1 else ""
    share = f"{reference.keep * 100:g} %" if reference.keep is not None else str(reference)
    said = f"{'yes' if passed else 'no'} ({worst.value:+.3f}{where})"
    return GatePart(f"{subject} within {tolerance:g} of fixed {share}: {said}", passed)


def _bound_part(name: str, value: float, sign: str, bound: float) -> GatePart:
    passed = value < bound - ROUNDING if sign == "<" else value <= bound + ROUNDING
    return GatePart(f"{name} {value:.3f} {sign} {bound:.2f}: {'yes' if passed else 'no'}", passed)
