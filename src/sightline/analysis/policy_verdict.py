"""Whether a budget that adapts is worth it, and the settings of a policy that development rows suggest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import numpy as np
import pandas as pd

from sightline.analysis.policy_replay import FixedAnswers, Replayed, fixed_answers
from sightline.arms.arm import parse_arm
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.policies import POLICIES, Policy
from sightline.policies.base import Objective
from sightline.rows.run import Run
from sightline.statistics.arm_rows import ArmRows, plain_rows
from sightline.statistics.bootstrap import DRAWS, SEED, difference_interval, metric_interval
from sightline.statistics.intervals import Estimate
from sightline.statistics.metrics import UNIT, Direction, Metric, point
from sightline.statistics.summaries import LEAST_IMAGES, LEAST_N, nothing_to_read

# Is a budget of each sample's own worth it? A policy beside every fixed budget, and the paper's gate in words.
#
# The gate asks three things of held-out probes: every task's score within a tolerance of a fixed reference, the mean
# kept fraction of the answers' prefixes, and the cost of all prefixes that were run. The paper's gate reads points;
# this one reads bounds, and is refused where probes are too few or answers say nothing.

ROUNDING = 1e-12
"""Sums of doubles that differ by less are equal."""


def _mean(name: str, label: str, definition: str, better: Direction) -> Metric:
    """The mean of a column that is ``Played``'s own."""
    return Metric(name, label, definition, better, "all probes", (name,), lambda rows: rows.columns[name], limits=UNIT)


SCORE = _mean("task_score", "Score", "mean of what each answer's task gives it", "higher")
KEEP = _mean("keep", "Keep", "mean kept fraction of the prefixes that gave the answers", "lower")
SPENT = _mean("spent", "Cost", "mean kept fractions of all prefixes that were run for an answer", "lower")


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


def figures(played: Replayed) -> PolicyFigures:
    asked = played.asked
    scores = {str(task): float(played.scores[asked.tasks == task].mean()) for task in np.unique(asked.tasks)}
    alarms = 1.0 - played.scores[asked.negative]
    hfpr = float(alarms.mean()) if len(alarms) else math.nan
    return PolicyFigures(
        played.name, len(asked.ids), scores, hfpr, float(played.keep.mean()), float(played.spent.mean())
    )


@dataclass(frozen=True)
class GatePart:
    """One question of the gate, answered: passed where the bound of its interval holds."""

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
    refused: str = ""
    """Why nothing is decided, whatever the parts say; "" where it is."""

    @property
    def go(self) -> bool:
        return not self.refused and all(part.passed for part in self.parts)

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
    def words(self) -> str:
        """``... within 0.01 of fixed 70 %: no (-0.031 [-0.052, -0.012] on docvqa); ...: yes ...; ... -> no-go``"""
        if self.refused:
            return f"refused: {self.refused}"
        return f"{'; '.join(part.words for part in self.parts)} -> {'go' if self.go else 'no-go'}"


def verdict(
    policy: Replayed,
    fixed: Mapping[Budget, Replayed],
    reference: Budget,
    limits: PolicyLimits = PolicyLimits(),  # noqa: B008  # frozen
    *,
    nothing: str = "",
    least_n: int = LEAST_N,
    draws: int = DRAWS,
    seed: int = SEED,
) -> PolicyVerdict:
    """A policy against every fixed budget on the same probes, ``reference`` being the one that it must hold up to.

    It is refused on fewer than ``least_n`` probes, and where ``nothing`` says why answers cannot be read
    (``statistics.summaries``).
    """
    if reference not in fixed:
        known = ", ".join(map(str, fixed))
        raise SightlineError(f"there is no fixed arm at {reference} to compare with; there are {known}")
    differences = score_differences(policy, fixed[reference], draws, seed)
    own, rows = figures(policy), _rows(policy)
    # An answer costs at most every level once.
    spent = replace(SPENT, limits=(0.0, sum(float(each.keep.max()) for each in fixed.values())))
    parts = (
        _scores_part(differences, reference, limits.tolerance),
        _bound_part("mean keep", _estimate(rows, KEEP, draws, seed), "<=", limits.keep),
        _bound_part("overhead-aware cost", _estimate(rows, spent, draws, seed), "<", limits.cost),
    )
    few = f"{own.n} probes are fewer than the least n of {least_n} (--least-n)" if own.n < least_n else ""
    beside = [figures(each) for each in fixed.values()]
    return PolicyVerdict(own, beside, fixed[reference].name, differences, parts, few or nothing)


def _estimate(rows: ArmRows, metric: Metric, draws: int, seed: int) -> Estimate:
    """With its image-cluster interval; without one where there are fewer than two images to resample."""
    if rows.n_images < 2:
        return Estimate(point(metric, rows), math.nan, math.nan)
    return metric_interval(rows, metric, draws=draws, seed=seed)


def score_differences(policy: Replayed, reference: Replayed, draws: int, seed: int) -> dict[str, Estimate]:
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


def _rows(played: Replayed) -> ArmRows:
    right = np.ones(len(played.scores), dtype=bool)
    return ArmRows.of(right, images=played.asked.images, task_score=played.scores, keep=played.keep, spent=played.spent)


def _scores_part(differences: Mapping[str, Estimate], reference: Budget, tolerance: float) -> GatePart:
    """Passed where no task's lower bound is a larger loss; the task with the lowest one is named."""
    count = len(differences)
    subject = {1: "the score", 2: "both task scores"}.get(count, f"all {count} task scores")
    task, worst = min(differences.items(), key=lambda item: item[1].low if math.isfinite(item[1].low) else -math.inf)
    share = f"{reference.keep * 100:g} %" if reference.keep is not None else str(reference)
    passed = worst.low >= -tolerance - ROUNDING
    said = _said(passed, failed=worst.high < -tolerance - ROUNDING)
    where = f" on {task}" if count > 1 else ""
    numbers = f"{worst.value:+.3f}{_interval(worst, '+.3f')}{where}"
    return GatePart(f"{subject} within {tolerance:g} of fixed {share}: {said} ({numbers})", passed)


def _bound_part(name: str, found: Estimate, sign: str, bound: float) -> GatePart:
    def holds(value: float) -> bool:
        return value < bound - ROUNDING if sign == "<" else value <= bound + ROUNDING

    passed = holds(found.high)
    said = _said(passed, failed=math.isfinite(found.low) and not holds(found.low))
    return GatePart(f"{name} {found.value:.3f}{_interval(found, '.3f')} {sign} {bound:.2f}: {said}", passed)


def _said(passed: bool, *, failed: bool) -> str:
    """The bound holds, the whole interval breaks it, or it cannot be told."""
    return "yes" if passed else "no" if failed else "not shown"


def _interval(found: Estimate, form: str) -> str:
    return f" [{found.low:{form}}, {found.high:{form}}]" if math.isfinite(found.low) else ", no interval"


# A policy's arguments, chosen on the development half of a run and judged on the other.

ALARMS, ALARM_PRICE = 0.224, 2.0
"""Hallucination rate that is free, and the price of each point above it."""
KEEP_PRICE, COST_PRICE = 0.05, 0.02
"""Of yes/no answers: price of the kept fraction, and of all that was run."""
OPEN_KEEP_PRICE = 0.10
NEAR = 0.015
"""``least_keep`` wants every task's score this near to the reference's."""
TRIED_ON = 10
"""Fewer development probes, or held-out ones, decide nothing."""


@dataclass(frozen=True)
class TunedPolicy:
    """The policy that development probes chose, and what held-out ones say of it."""

    policy: Policy
    tried: int
    objective: Objective
    development: PolicyFigures
    verdict: PolicyVerdict


def tune(
    run: Run,
    name: str,
    selector: str,
    levels: tuple[Budget, ...],
    *,
    given: Mapping[str, Any] | None = None,
    reference: Budget | None = None,
    objective: Objective | None = None,
    limits: PolicyLimits = PolicyLimits(),  # noqa: B008  # frozen
    least_n: int = LEAST_N,
    draws: int = DRAWS,
    seed: int = SEED,
) -> TunedPolicy:
    """Tries every candidate on the development half; the reference is the highest level unless another is named."""
    untuned = POLICIES.get(name).untuned(**(given or {}))
    answers = fixed_answers(run, selector, levels, untuned)
    sides = answers.asked.sides
    development, held_out = answers.chosen(sides == "dev"), answers.chosen(sides == "test")
    for what, part in (("development", development), ("held-out", held_out)):
        if len(part.asked.ids) < TRIED_ON:
            raise SightlineError(
                f"{run.path} has {len(part.asked.ids)} {what} probes; a policy needs {TRIED_ON} of each"
            )
    compared = reference or levels[-1]
    if compared not in levels:
        raise SightlineError(f"the reference {compared} is not among the levels {'/'.join(map(str, levels))}")
    judged_by = objective or untuned.objective
    candidates = _candidates(untuned, given or {}, development)
    if not candidates:
        raise SightlineError(f"{name} has nothing to try with the levels {'/'.join(map(str, levels))}; name more")
    best = chosen_by(judged_by, [figures(development.replay(one)) for one in candidates], development, compared)
    policy = candidates[best]
    policy.check_levels(levels)
    fixed = {level: held_out.fixed(level) for level in levels}
    nothing = _nothing(plain_rows(run.frame(texts=False)), least_n, draws, seed)
    played = held_out.replay(policy)
    found = verdict(played, fixed, compared, limits, nothing=nothing, least_n=least_n, draws=draws, seed=seed)
    return TunedPolicy(policy, len(candidates), judged_by, figures(development.replay(policy)), found)


def _candidates(untuned: Policy, given: Mapping[str, Any], development: FixedAnswers) -> list[Policy]:
    """Those worth trying; the one that is given where it is given whole."""
    fixed = [name for name in untuned.tuned if name in given]
    if fixed and len(fixed) < len(untuned.tuned):
        raise SightlineError(f"{untuned.name} chooses {' and '.join(untuned.tuned)} together: give all of them or none")
    return [type(untuned)(**given)] if fixed else list(untuned.candidates(development.levels, development.samples))


def chosen_by(objective: Objective, tried: Sequence[PolicyFigures], answers: FixedAnswers, reference: Budget) -> int:
    """Which of the tried is best on development probes; the first of those that are equally good."""
    if objective not in get_args(Objective):
        raise SightlineError(f"unknown objective '{objective}'; choose {' or '.join(get_args(Objective))}")
    if objective == "penalised":
        return int(np.argmax([penalised(each, answers.asked.yes_or_no) for each in tried]))
    target = figures(answers.fixed(reference))
    near = [all(each.scores[task] >= target.scores[task] - NEAR for task in target.scores) for each in tried]
    if any(near):
        return int(np.argmin([each.keep if fits else math.inf for each, fits in zip(tried, near, strict=True)]))
    return int(np.argmax([each.score for each in tried]))  # none is near enough: the best there is


def penalised(found: PolicyFigures, yes_or_no: bool) -> float:
    """The objective of the paper's pilots: score less what tokens, and false alarms above a rate, cost."""
    if not yes_or_no:
        return found.score - OPEN_KEEP_PRICE * found.keep
    excess = max(0.0, found.hfpr - ALARMS) if math.isfinite(found.hfpr) else 0.0
    return found.score - ALARM_PRICE * excess - KEEP_PRICE * found.keep - COST_PRICE * found.cost


def judge_run(
    run: Run,
    arms: Sequence[str] = (),
    *,
    everything: bool = False,
    reference: Budget | None = None,
    limits: PolicyLimits = PolicyLimits(),  # noqa: B008  # frozen
    least_n: int = LEAST_N,
    draws: int = DRAWS,
    seed: int = SEED,
) -> list[PolicyVerdict]:
    """Every policy arm of a run against the fixed arms of its levels, over held-out probes or ``everything``."""
    frame = plain_rows(run.frame(texts=False))
    present = [str(arm) for arm in frame["arm"].unique()]
    named = list(arms) or [str(arm) for arm in frame.loc[frame["policy"].fillna("none") != "none", "arm"].unique()]
    if not named:
        raise SightlineError(f"{run.path} has no arm with a policy; add one, for example policy:NAME:SELECTOR:LEVELS")
    verdicts = []
    judge = partial(verdict, nothing=_nothing(frame, least_n, draws, seed), least_n=least_n, draws=draws, seed=seed)
    for text in named:
        if text not in present:
            raise SightlineError(f"{run.path} has no rows of an arm '{text}'; it has {', '.join(present)}")
        arm = parse_arm(text)
        if arm.policy is None:
            raise SightlineError(f"'{text}' has no policy to judge")
        fixed = {level: arm.at(level).text for level in arm.levels}
        missing = [name for name in fixed.values() if name not in present]
        if missing:
            raise SightlineError(f"{run.path} has no arm '{missing[0]}', which {text} is judged by; run it too")
        played = {name: _played(name, frame[frame["arm"] == name], everything) for name in (text, *fixed.values())}
        compared = {level: played[name] for level, name in fixed.items()}
        verdicts.append(judge(played[text], compared, reference or arm.levels[-1], limits))
    return verdicts


def _nothing(frame: pd.DataFrame, least_n: int, draws: int, seed: int) -> str:
    """Why nothing can be read from the run's answers, all of its plain rows considered; "" where something can."""
    return nothing_to_read(frame, least_images=min(LEAST_IMAGES, least_n), draws=draws, seed=seed)


def _played(name: str, rows: Any, everything: bool) -> Replayed:
    played = Replayed.of(name, rows.sort_values("probe_id"))
    chosen = played if everything else played.chosen(played.asked.sides == "test")
    if not len(chosen.asked.ids):
        raise SightlineError(f"'{name}' has no held-out probes; --all judges all of them")
    return chosen
