"""The paper's gate in words, on figures computed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from sightline.analysis.policy_replay import AskedProbes, Played
from sightline.analysis.policy_verdict import PolicyLimits, PolicyVerdict, figures, verdict
from sightline.core.selection import Budget
from sightline.errors import SightlineError

LOW, HIGH = Budget.ratio(0.3), Budget.ratio(0.7)
TASKS = ("textvqa", "textvqa", "docvqa", "docvqa")


def played(
    name: str, scores: Sequence[float], keep: Sequence[float], spent: Sequence[float] = (), tasks: Sequence[str] = TASKS
) -> Played:
    ids = np.array([f"p{i}" for i in range(len(scores))])
    asked = AskedProbes(ids, ids, np.array(tasks), np.zeros(len(ids), dtype=bool), yes_or_no=False)
    return Played(name, asked, np.array(scores), np.array(keep), np.array(spent or keep), ("0.3",) * len(ids))


FIXED = {
    LOW: played("target:0.3", [1.0, 0.0, 0.5, 0.5], [0.3] * 4),
    HIGH: played("target:0.7", [1.0, 1.0, 0.5, 1.0], [0.7] * 4),
}


def judged(policy: Played, fixed: Mapping[Budget, Played], reference: Budget, *limits: PolicyLimits) -> PolicyVerdict:
    """On fifty of each probe: bounds are near the points."""
    many = {budget: fifty(each) for budget, each in fixed.items()}
    return verdict(fifty(policy), many, reference, *limits, draws=400)


def fifty(one: Played) -> Played:
    """Every probe on fifty images of its own."""
    ids = np.array([f"{probe}-{copy}" for copy in range(50) for probe in one.asked.ids])
    asked = AskedProbes(ids, ids, np.tile(one.asked.tasks, 50), np.tile(one.asked.negative, 50), one.asked.yes_or_no)
    scores, keep, spent = (np.tile(each, 50) for each in (one.scores, one.keep, one.spent))
    return Played(one.name, asked, scores, keep, spent, one.levels * 50)


def test_the_three_questions_are_answered_in_words() -> None:
    cascade = played("cascade", [1.0, 1.0, 0.5, 0.938], [0.3, 0.7, 0.3, 0.7], [0.3, 1.0, 0.3, 1.0])
    found = judged(cascade, FIXED, HIGH, PolicyLimits(cost=0.66))
    scores, keep, cost = found.parts
    assert scores.words.startswith("both task scores within 0.01 of fixed 70 %: no (-0.031 [-0.0")
    assert scores.words.endswith(" on docvqa)")
    assert keep.words.startswith("mean keep 0.500 [0.4")
    assert keep.words.endswith(" <= 0.60: yes")
    assert cost.words.startswith("overhead-aware cost 0.650 [0.6")
    assert cost.words.endswith(" < 0.66: not shown"), "the point is below, the upper bound is not"
    assert found.words == f"{scores.words}; {keep.words}; {cost.words} -> no-go"
    assert not found.go
    assert (found.policy.keep, found.policy.cost) == pytest.approx((0.5, 0.65))
    assert found.policy.scores == pytest.approx({"textvqa": 1.0, "docvqa": 0.719})
    assert found.policy.score == pytest.approx((1.0 + 0.719) / 2), "tasks count alike"


def test_it_goes_when_all_three_hold() -> None:
    found = judged(played("wise", [1.0, 1.0, 0.6, 1.0], [0.3, 0.7, 0.3, 0.7]), FIXED, HIGH, PolicyLimits(0.05))
    assert found.words.endswith("-> go")
    assert found.go
    assert found.no_worse == [], "fixed 70 % scores as much, and costs more"


@pytest.mark.parametrize(
    ("limits", "go"),
    [
        (PolicyLimits(tolerance=0.5, keep=0.6, cost=0.75), True),
        (PolicyLimits(tolerance=0.5, keep=0.51, cost=0.75), False),
        (PolicyLimits(tolerance=0.5, keep=0.6, cost=0.66), False),
        (PolicyLimits(tolerance=0.0, keep=0.6, cost=0.75), False),
    ],
)
def test_each_bound_counts_and_a_point_that_holds_is_not_enough(limits: PolicyLimits, go: bool) -> None:
    cascade = played("cascade", [1.0, 1.0, 0.5, 0.938], [0.3, 0.7, 0.3, 0.7], [0.3, 1.0, 0.3, 1.0])
    assert judged(cascade, FIXED, HIGH, limits).go is go


def test_a_higher_score_than_the_reference_is_near_enough() -> None:
    fixed = {
        budget: played(f"target:{budget}", [0.5] * 4, [budget.keep or 0] * 4, tasks=["all"] * 4) for budget in FIXED
    }
    found = judged(played("better", [1.0] * 4, [0.5] * 4, tasks=["all"] * 4), fixed, HIGH)
    assert found.parts[0].passed
    assert found.parts[0].words.startswith("the score within 0.01 of fixed 70 %: yes (+0.500 [+0.")


def test_a_fixed_budget_that_scores_as_much_for_less_is_named() -> None:
    found = verdict(played("idle", [1.0, 0.0, 0.5, 0.5], [0.3] * 4, [0.6] * 4), FIXED, HIGH, draws=200)
    assert found.no_worse == ["target:0.3"]


def test_a_score_that_the_interval_does_not_carry_is_not_shown_to_be_near() -> None:
    reference = played("target:0.7", [1.0, 0.0] * 30, [0.7] * 60, tasks=["all"] * 60)
    swapped = played("p", [0.0, 1.0] * 30, [0.5] * 60, tasks=["all"] * 60)
    found = verdict(swapped, {HIGH: reference}, HIGH, draws=500)
    assert found.differences["all"].value == 0.0
    assert "within 0.01 of fixed 70 %: not shown (+0.000 [-0.2" in found.words
    assert not found.go


def test_few_probes_and_answers_that_say_nothing_are_refused() -> None:
    wise = played("wise", [1.0, 1.0, 0.6, 1.0], [0.3, 0.7, 0.3, 0.7])
    found = verdict(wise, FIXED, HIGH, draws=200)
    assert (found.go, found.words) == (False, "refused: 4 probes are fewer than the least n of 50 (--least-n)")
    found = verdict(wise, FIXED, HIGH, nothing="the model answers at chance", least_n=4, draws=200)
    assert (found.go, found.words) == (False, "refused: the model answers at chance")
    alone = played("one", [1.0], [0.3], tasks=["all"])
    found = verdict(alone, {HIGH: alone}, HIGH, least_n=1, draws=200)
    assert found.words.count("not shown") == 3, "one image has no interval"


def test_false_alarms_are_those_of_negatives_alone() -> None:
    asked = AskedProbes(
        np.array(["a", "b", "c"]), np.array(["1", "1", "2"]), np.array(["all"] * 3), np.array([False, True, True]), True
    )
    found = figures(Played("x", asked, np.array([0.0, 1.0, 0.0]), np.ones(3), np.ones(3), ("1.0",) * 3))
    assert found.hfpr == 0.5
    assert np.isnan(figures(FIXED[LOW]).hfpr)


def test_other_probes_than_the_references_are_refused() -> None:
    short = played("short", [1.0, 1.0], [0.3, 0.3], tasks=TASKS[:2])
    with pytest.raises(SightlineError, match="have other probes"):
        verdict(short, FIXED, HIGH, draws=200)
    with pytest.raises(SightlineError, match=r"no fixed arm at 0\.5 to compare with"):
        verdict(short, FIXED, Budget.ratio(0.5), draws=200)
