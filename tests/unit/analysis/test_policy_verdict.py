"""The paper's gate in words, on figures computed by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from sightline.analysis.policy_replay import AskedProbes, Played
from sightline.analysis.policy_verdict import PolicyLimits, figures, verdict
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


def test_the_three_questions_are_answered_in_words() -> None:
    cascade = played("cascade", [1.0, 1.0, 0.5, 0.938], [0.3, 0.7, 0.3, 0.7], [0.3, 1.0, 0.3, 1.0])
    found = verdict(cascade, FIXED, HIGH, draws=200)
    assert found.words == (
        "both task scores within 0.01 of fixed 70 %: no (-0.031 on docvqa); mean keep 0.500 <= 0.60: yes; "
        "overhead-aware cost 0.650 < 0.70: yes -> no-go"
    )
    assert not found.go
    assert (found.policy.keep, found.policy.cost) == pytest.approx((0.5, 0.65))
    assert found.policy.scores == pytest.approx({"textvqa": 1.0, "docvqa": 0.719})
    assert found.policy.score == pytest.approx((1.0 + 0.719) / 2), "tasks count alike"


def test_it_goes_when_all_three_hold() -> None:
    found = verdict(played("wise", [1.0, 1.0, 0.5, 1.0], [0.3, 0.7, 0.3, 0.7]), FIXED, HIGH, draws=200)
    assert found.words.endswith("-> go")
    assert found.go
    assert found.no_worse == [], "fixed 70 % scores as much, and costs more"


@pytest.mark.parametrize(
    ("limits", "go"),
    [
        (PolicyLimits(tolerance=0.5, keep=0.5, cost=0.66), True),
        (PolicyLimits(tolerance=0.5, keep=0.49, cost=0.66), False),
        (PolicyLimits(tolerance=0.5, keep=0.5, cost=0.65), False),
        (PolicyLimits(tolerance=0.0, keep=0.5, cost=0.66), False),
    ],
)
def test_each_bound_counts_and_cost_must_be_below_its_own(limits: PolicyLimits, go: bool) -> None:
    cascade = played("cascade", [1.0, 1.0, 0.5, 0.938], [0.3, 0.7, 0.3, 0.7], [0.3, 1.0, 0.3, 1.0])
    assert verdict(cascade, FIXED, HIGH, limits, draws=200).go is go


def test_a_higher_score_than_the_reference_is_near_enough() -> None:
    fixed = {
        budget: played(f"target:{budget}", [0.5] * 4, [budget.keep or 0] * 4, tasks=["all"] * 4) for budget in FIXED
    }
    found = verdict(played("better", [1.0] * 4, [0.5] * 4, tasks=["all"] * 4), fixed, HIGH, draws=200)
    assert found.parts[0].words == "the score within 0.01 of fixed 70 %: yes (+0.500)"


def test_a_fixed_budget_that_scores_as_much_for_less_is_named() -> None:
    found = verdict(played("idle", [1.0, 0.0, 0.5, 0.5], [0.3] * 4, [0.6] * 4), FIXED, HIGH, draws=200)
    assert found.no_worse == ["target:0.3"]


def test_a_pass_that_the_interval_does_not_carry_is_noted() -> None:
    reference = played("target:0.7", [1.0, 0.0] * 20, [0.7] * 40, tasks=["all"] * 40)
    swapped = played("p", [0.0, 1.0] * 20, [0.5] * 40, tasks=["all"] * 40)
    found = verdict(swapped, {HIGH: reference}, HIGH, draws=500)
    assert found.parts[0].passed
    assert found.differences["all"].low < -0.01
    assert "is within the interval: 40 probes decide little" in found.notes[0]
    assert verdict(reference, {HIGH: reference}, HIGH, draws=500).notes == []


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
