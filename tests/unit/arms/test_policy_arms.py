"""Arms whose budget differs from probe to probe: how they are written, and what a run adds for them."""

from __future__ import annotations

import json

import pytest

from sightline.arms.arm import parse_arm, recorded_arm
from sightline.arms.plan import plan_arms
from sightline.core.selection import Budget
from sightline.errors import SightlineError

FALLBACK = "policy:confidence_fallback:target_grid:0.3/0.7:threshold=1.2"


def test_name_selector_levels_and_arguments_of_both() -> None:
    arm = parse_arm(f"{FALLBACK},target_grid.reserve=0.25")
    assert arm.text == f"{FALLBACK},target_grid.reserve=0.25"
    assert arm.levels == (Budget.ratio(0.3), Budget.ratio(0.7))
    assert (arm.budget, arm.requested) == (Budget.ratio(0.7), "0.3/0.7")
    assert [arm.at(level).text for level in arm.levels] == [
        "target_grid:0.3:reserve=0.25",
        "target_grid:0.7:reserve=0.25",
    ]
    assert arm.at(arm.budget) == parse_arm("target_grid:0.7:reserve=0.25")
    assert json.loads(arm.arguments)["policy"] == "confidence_fallback(threshold=1.2)"


def test_defaults_are_left_out_and_the_recorded_form_is_the_same_arm() -> None:
    arm = parse_arm("policy:evidence_saturation:target_grid:0.30/0.5/0.7:mass=0.72,cells=0.5")
    assert arm.text == "policy:evidence_saturation:target_grid:0.3/0.5/0.7:cells=0.5"
    assert recorded_arm(arm.text) == arm


def test_a_profile_sets_the_selectors_arguments_too() -> None:
    arm = parse_arm("policy:answer_stability:target_grid:10t/20t/30t", profile="artifact")
    assert arm.text == "policy:answer_stability:target_grid:10t/20t/30t:target_grid.cells=truncated"
    assert arm.at(Budget.tokens(20)) == parse_arm("target_grid:20t", profile="artifact")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("policy", "write policy:NAME:SELECTOR:LEVELS"),
        ("policy:confidence_fallback:target", "write policy:NAME:SELECTOR:LEVELS"),
        ("policy:confidence_falback:target:0.3/0.7:threshold=1", "did you mean 'confidence_fallback'"),
        ("policy:confidence_fallback:targett:0.3/0.7:threshold=1", "did you mean 'target'"),
        ("policy:confidence_fallback:target:threshold=1", "has no levels"),
        ("policy:confidence_fallback:target:0.7:threshold=1", "two or more ascending budgets"),
        ("policy:confidence_fallback:target:0.7/0.3:threshold=1", "two or more ascending budgets"),
        ("policy:confidence_fallback:target:0.3/192t:threshold=1", "two or more ascending budgets"),
        ("policy:confidence_fallback:target:0.3/70:threshold=1", "did you mean 0.7"),
        ("policy:confidence_fallback:target:0.3/0.7", r"needs threshold: write .*0.3/0.7:threshold=THRESHOLD"),
        ("policy:confidence_fallback:target:0.3/0.7:threshold=-1", "must be at least 0"),
        ("policy:confidence_fallback:target:0.3/0.7:threshold=nan", "not a usable number"),
        ("policy:confidence_fallback:target:0.3/0.7:mass=1", "not an argument of confidence_fallback"),
        ("policy:answer_stability:target:0.3/0.5/0.7:target.reserve=1", "not an argument of target"),
        ("policy:answer_stability:target:0.3/0.7", "runs all of 2 levels"),
        ("policy:confidence_fallback:full:0.3/0.7:threshold=1", "has no budget to choose"),
        ("policy:confidence_fallback:resize:0.3/0.7:threshold=1", "shows every level another image"),
        ("policy:evidence_saturation:random:0.3/0.7", "looks at token scores"),
        ("policy:evidence_saturation:fastv:0.3/0.7", "chooses between layers"),
        (f"{FALLBACK}+remove_evidence", "put the intervention on a fixed budget"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(SightlineError, match=reason) as refused:
        parse_arm(text)
    assert "\n" not in str(refused.value)


def test_a_cascade_over_a_method_that_prunes_between_layers_is_served() -> None:
    assert parse_arm("policy:confidence_fallback:fastv:0.3/0.7:threshold=1").inside


def test_a_run_gets_the_fixed_budgets_that_a_policy_is_judged_by() -> None:
    plan = plan_arms(["full", FALLBACK, "target_grid:0.7"])
    assert plan.controls == ["target_grid:0.3", "random:0.7", "grid:0.7"], "chance is matched to arms that are named"
    assert plan_arms([FALLBACK], controls=False).controls == []


def test_interventions_leave_policies_alone() -> None:
    plan = plan_arms([FALLBACK, "target:0.3"], interventions=["deletion", "occlusion"], controls=False)
    assert {arm.plain for arm in plan.arms if arm.intervention} == {"full", "target:0.3"}


@pytest.mark.parametrize(("columns", "fits"), [({"margin"}, True), ({"answer_loss"}, True), ({"answer"}, False)])
def test_a_policy_that_looks_at_confidence_needs_a_scorer_that_says_it(columns: set[str], fits: bool) -> None:
    parse_arm("policy:answer_stability:target:0.3/0.5/0.7").refuse_answers(columns)
    if fits:
        parse_arm(FALLBACK).refuse_answers(columns)
        return
    with pytest.raises(SightlineError, match="margin or answer_loss"):
        parse_arm(FALLBACK).refuse_answers(columns)
