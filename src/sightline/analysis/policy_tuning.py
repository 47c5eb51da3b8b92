"""A policy's arguments, chosen on the development half of a run and judged on the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np
import pandas as pd

from sightline.analysis.policy_replay import FixedAnswers, Played, fixed_answers
from sightline.analysis.policy_verdict import PolicyFigures, PolicyLimits, PolicyVerdict, figures, verdict
from sightline.arms.arm import recorded_arm
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.policies import POLICIES, Policy
from sightline.policies.base import Objective
from sightline.statistics.bootstrap import DRAWS, SEED
from sightline.statistics.plain_rows import plain_rows
from sightline.statistics.readable_answers import LEAST_IMAGES, LEAST_N, nothing_to_read
from sightline.store import Run

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
        arm = recorded_arm(text)
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


def _played(name: str, rows: Any, everything: bool) -> Played:
    played = Played.of(name, rows.sort_values("probe_id"))
    chosen = played if everything else played.chosen(played.asked.sides == "test")
    if not len(chosen.asked.ids):
        raise SightlineError(f"'{name}' has no held-out probes; --all judges all of them")
    return chosen
