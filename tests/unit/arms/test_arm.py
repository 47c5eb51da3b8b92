"""How arms are written and read, those included whose budget differs from probe to probe; which arms a run gets."""

import json
from dataclasses import fields
from typing import Any, ClassVar, cast

import pytest

from sightline import SELECTORS, Budget, Role, Selection, Selector, SightlineError, TokenView
from sightline.arms.arm import parameters, parse_arm, parse_arms, plan_arms
from tests.refusals import Refused

CANONICAL = {
    "target:0.3": "target:0.3", "target:0.30": "target:0.3", "full": "full", "random:192t": "random:192t",
    "target:0.30/tile": "target:0.3/tile", "grid:64t/tile": "grid:64t/tile",
    "scope:0.4:alpha=0": "scope:0.4:alpha=0.0", "scope:0.4/tile:alpha=0": "scope:0.4/tile:alpha=0.0",
    "target:0.3:weight=0.85": "target:0.3", "soft_evidence:0.5:beta=0.1,top=4": "soft_evidence:0.5:top=4,beta=0.1",
    "target:0.3/tile+remove_evidence": "target:0.3/tile+remove_evidence",
    # An image can be changed where an arm has no mask of its tokens.
    "fastv:0.50+blank": "fastv:0.5+blank", "visionzip:0.40+blank": "visionzip:0.4+blank",
}  # fmt: skip


def test_arms_have_one_canonical_form() -> None:
    assert {text: parse_arm(text).text for text in CANONICAL} == CANONICAL
    assert [parse_arm(text).text for text in CANONICAL.values()] == list(CANONICAL.values())


def test_a_budget_says_what_it_is_counted_over() -> None:
    for text, budget in {
        "target:0.3/tile": Budget.ratio(0.3, "tile"),
        "grid:64t/tile": Budget.tokens(64, "tile"),
        "target:0.3": Budget.ratio(0.3),
        "masks:file=kept.jsonl": Budget.ratio(1.0),
    }.items():
        assert parse_arm(text).budget == budget
        assert parse_arm(text).requested == str(budget)
    assert {name for name, kind in SELECTORS.items() if not kind.needs_budget} == {"full", "masks"}


def test_a_budget_is_the_ceiling_in_double_precision() -> None:
    for n, keep, k in ((576, 0.4, 231), (100, 0.07, 8), (100, 0.55, 56), (5, 0.01, 1), (7, 1.0, 7)):
        assert Budget.ratio(keep).resolve(n) == Budget.tokens(k).resolve(n) == k


FALLBACK = "policy:confidence_fallback:target_grid:0.3/0.7:threshold=1.2"
CASCADE = "policy:confidence_fallback:target:0.3"
REFUSED = f"""
    target target:0 target:1.01 target:0t target:abc target:0.3:top=two target:0.3:score=oracle grid target:top=2
    target:0.3:top=1,top=2 full:0.5 engine:0.3 masks:0.3:file=kept.jsonl target:0.3:nothing=1 masks masks:
    target:30 target:30% target:30%/tile target:192

    hybrid:0.3:core=nan target:0.3:weight=inf random:0.3:seed=99999999999999999999 hybrid:0.3:core=1e308
    hybrid:0.3:core=2 gprune:0.3:iterations=99999999999 pyramiddrop:0.3:stages=99999999999 target:0.3:top=0
    hybrid:0.3:top=-1 protected:0.3:top=-99999999999,reserve=1

    full:1.0/tile masks:0.3/tile:file=kept.jsonl resize:0.3/tile target:0.3/row target:/tile target:0t/tile
    target:30/tile policy:answer_stability:target:0.3/0.7/tile

    policy policy:confidence_fallback:target policy:confidence_fallback:target:threshold=1
    policy:confidence_fallback:target:0.7:threshold=1 policy:confidence_fallback:target:0.7/0.3:threshold=1
    {CASCADE}/192t:threshold=1 {CASCADE}/70:threshold=1 {CASCADE}/0.7 {CASCADE}/0.7:threshold=-1
    {CASCADE}/0.7:mass=1 {CASCADE}/0.7:threshold=nan {CASCADE}/:threshold=1
    policy:answer_stability:target:0.3/0.5/0.7:target.reserve=1 policy:answer_stability:target:0.3/0.7
    policy:confidence_fallback:full:0.3/0.7:threshold=1 policy:confidence_fallback:resize:0.3/0.7:threshold=1
    policy:evidence_saturation:random:0.3/0.7 policy:evidence_saturation:fastv:0.3/0.7 {FALLBACK}+remove_evidence

    fastv:0.5+remove_evidence visionzip:0.4+remove_evidence
"""
"""What cannot be an arm; the snapshot has what each refusal says.

What is misspelt or missing, and a likely slip, which is answered with what was meant; numbers that no method can use,
and ranges, which hold in every class made from the one that states them; budgets by tiles where they mean nothing;
policies; no mask to change.
"""


@pytest.mark.parametrize("text", REFUSED.split())
def test_what_cannot_work_is_refused_in_one_line(text: str, refused: Refused) -> None:
    refused(f"arm '{text}'", parse_arm, text)


def test_a_mistyped_name_is_suggested(refused: Refused) -> None:
    refused("unknown selector 'targe'; did you mean", parse_arm, "targe:0.3")
    refused("unknown policy 'falback'", parse_arm, "policy:falback:target:0.3/0.7:threshold=1")
    refused("unknown selector 'targett'", parse_arm, "policy:confidence_fallback:targett:0.3/0.7:threshold=1")


def test_a_number_beyond_all_is_refused_and_so_are_no_arms_and_the_same_arm_twice(refused: Refused) -> None:
    refused("is not a usable number", parse_arm, f"random:0.3:seed={'9' * 400}")
    refused("twice", parse_arms, ["target:0.3", "target:0.30"], seed=17, profile="paper")
    refused("no arms", parse_arms, [], seed=17, profile="paper")


def test_no_numeric_argument_of_any_method_takes_nan_or_infinity() -> None:
    tried = 0
    for name, kind in SELECTORS.items():
        for field in fields(cast(Any, kind)):
            if isinstance(field.default, float):
                for value in ("nan", "inf", "-inf"):
                    with pytest.raises(SightlineError, match=r"usable number|cannot be|must be"):
                        parse_arm(f"{name}:0.3:{field.name}={value}")
                    tried += 1
    assert tried > 60


ARTIFACT = {"profile": "artifact"}
LLAVA, QWEN, INTERNVL = ({**ARTIFACT, "model_type": name} for name in ("llava", "qwen3_vl", "internvl"))


def test_a_profile_sets_arguments_a_seed_wins_over_it_and_the_arm_over_both() -> None:
    for text, settings, canonical in [
        ("random:0.3", {"seed": 5}, "random:0.3:seed=5"),
        ("random:0.3:seed=7", {"seed": 5}, "random:0.3:seed=7"),
        ("random:0.3", ARTIFACT, "random:0.3:seed=13"),
        ("random:0.3", {**ARTIFACT, "seed": 17}, "random:0.3"),
        ("random:0.3:seed=5", ARTIFACT, "random:0.3:seed=5"),
        ("grid:0.3", ARTIFACT, "grid:0.3:cells=truncated"),
        ("grid:0.3:cells=covering", ARTIFACT, "grid:0.3"),
        ("protected:0.4", LLAVA, "protected:0.4:score=prompt"),
        ("protected:0.3", QWEN, "protected:0.3"),
        ("protected:0.5", INTERNVL, "protected:0.5"),
        ("shuffled:0.4", LLAVA, "shuffled:0.4:score=prompt,seed=13"),
        ("shuffled:0.3", QWEN, "shuffled:0.3:seed=13"),
        ("protected:0.4:score=target", LLAVA, "protected:0.4"),
        ("grid:0.3", LLAVA, "grid:0.3:cells=truncated"),
    ]:
        arm = parse_arm(text, **cast(Any, settings))
        assert arm.text == canonical
        assert parse_arm(canonical).arguments == arm.arguments, "its text alone says all that matters"


def test_a_policy_has_selector_levels_and_arguments_of_both_and_leaves_out_defaults() -> None:
    arm = parse_arm(f"{FALLBACK},target_grid.reserve=0.25")
    assert arm.text == f"{FALLBACK},target_grid.reserve=0.25"
    assert arm.levels == (Budget.ratio(0.3), Budget.ratio(0.7))
    assert (arm.budget, arm.requested) == (Budget.ratio(0.7), "0.3/0.7")
    fixed = [f"target_grid:{keep}:reserve=0.25" for keep in (0.3, 0.7)]
    assert [arm.at(level).text for level in arm.levels] == fixed
    assert arm.at(arm.budget) == parse_arm(fixed[1])
    assert json.loads(arm.arguments)["policy"] == "confidence_fallback(threshold=1.2)"
    arm = parse_arm("policy:evidence_saturation:target_grid:0.30/0.5/0.7:mass=0.72,cells=0.5")
    assert arm.text == "policy:evidence_saturation:target_grid:0.3/0.5/0.7:cells=0.5"
    assert parse_arm(arm.text) == arm
    arm = parse_arm("policy:answer_stability:target_grid:10t/20t/30t", profile="artifact")
    assert arm.text == "policy:answer_stability:target_grid:10t/20t/30t:target_grid.cells=truncated"
    assert arm.at(Budget.tokens(20)) == parse_arm("target_grid:20t", profile="artifact")
    assert parse_arm("policy:confidence_fallback:fastv:0.3/0.7:threshold=1").inside


def test_a_run_gets_the_fixed_budgets_of_policies_and_interventions_leave_them_alone() -> None:
    plan = plan_arms(["full", FALLBACK, "target_grid:0.7"])
    assert plan.controls == ["target_grid:0.3", "random:0.7", "grid:0.7"], "chance is matched to arms that are named"
    assert plan_arms([FALLBACK], controls=False).controls == []
    plan = plan_arms([FALLBACK, "target:0.3"], interventions=["deletion", "occlusion"], controls=False)
    assert {arm.plain for arm in plan.arms if arm.intervention} == {"full", "target:0.3"}


def test_a_policy_that_looks_at_confidence_needs_a_scorer_that_says_it(refused: Refused) -> None:
    parse_arm("policy:answer_stability:target:0.3/0.5/0.7").refuse_answers({"answer"})
    for columns in ({"margin"}, {"answer_loss"}):
        parse_arm(FALLBACK).refuse_answers(columns)
    refused("margin or answer_loss", parse_arm(FALLBACK).refuse_answers, {"answer"})


# Which arms a run gets, decided by what selectors say about themselves.


class Plain(Selector):
    """Says no more than its name and how it chooses: not whether it merges, and not what an arm may set."""

    name: ClassVar[str] = "plain_plug_in"
    merges: ClassVar[bool | None] = None

    def select(self, view: TokenView, k: int) -> Selection:
        raise AssertionError("an arm is planned, not run")


class Merging(Plain):
    name: ClassVar[str] = "merging_plug_in"
    merges: ClassVar[bool | None] = True


class Deleting(Plain):
    name: ClassVar[str] = "deleting_plug_in"
    merges: ClassVar[bool | None] = False
    role: ClassVar[Role] = "control"


class Insisting(Plain):
    name: ClassVar[str] = "insisting"

    def __init__(self, depth: int) -> None:
        self.depth = depth


@pytest.fixture
def plugged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    SELECTORS.names()  # so that all others are known
    for kind in (Plain, Merging, Deleting, Insisting):
        monkeypatch.setitem(SELECTORS._entries, kind.name, kind)


def edited(plan: Any, name: str) -> list[str]:
    return [str(arm.intervention) for arm in plan.arms if arm.selector.name == name and arm.intervention]


@pytest.mark.usefixtures("plugged_in")
def test_deletion_leaves_alone_who_merges_and_who_does_not_say_with_the_line_to_add(
    capsys: Any, refused: Refused
) -> None:
    plan = plan_arms(["target:0.3/tile", "merging_plug_in:0.3"], interventions=["deletion", "positions"])
    assert "remove_evidence" in edited(plan, "target")
    assert edited(plan, "merging_plug_in") == ["swap_positions"]
    assert capsys.readouterr().err == ""
    plan = plan_arms(["target:0.3", "plain_plug_in:0.3", "plain_plug_in:0.5"], interventions=["deletion"])
    assert edited(plan, "plain_plug_in") == []
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("plain_plug_in: no deletion, because Plain does not say whether it merges")
    assert "merges: ClassVar[bool] = False" in line
    assert plan_arms(["plain_plug_in:0.3+remove_evidence"]).arms[0].intervention is not None
    refused("applies to none of the arms", plan_arms, ["merging_plug_in:0.3"], interventions=["deletion"])


@pytest.mark.usefixtures("plugged_in")
def test_controls_are_matched_to_every_budget_by_tiles_and_under_a_profile() -> None:
    assert plan_arms(["deleting_plug_in:0.3"]).controls == []
    assert plan_arms(["merging_plug_in:0.3"]).controls == ["random:0.3", "grid:0.3"]
    for arms, controls in [
        ("target:0.3 random:0.5 grid:0.3 target:0.4", "random:0.3 random:0.4 grid:0.4"),
        ("target:0.3/tile target:0.3", "random:0.3/tile grid:0.3/tile random:0.3 grid:0.3"),
    ]:
        assert plan_arms(arms.split()).controls == controls.split()
    under_a_profile = plan_arms(["target:0.3"], profile="artifact", model_type="llava")
    assert under_a_profile.controls == ["random:0.3:seed=13", "grid:0.3:cells=truncated"]


def test_a_smaller_image_is_compared_with_random_and_grid_and_changed_as_an_image_only() -> None:
    plan = plan_arms(["full", "resize:0.3"], interventions=["deletion", "positions", "occlusion"])
    assert plan.controls == ["random:0.3", "grid:0.3"]
    assert set(edited(plan, "resize")) == {"occlude_evidence", "occlude_random"}
    assert plan_arms(["full", "resize:1.0"]).controls == [], "all tokens are nothing to be compared"
    arms = plan_arms(["full", "target:0.3", "resize:192t", "resize:192t+blank"], controls=False).arms
    assert [arm.image_budget and str(arm.image_budget) for arm in arms] == [None, None, "192t", "192t"]


def test_a_smaller_image_has_no_mask_to_change(refused: Refused) -> None:
    for change in ("remove_evidence", "restore_evidence=0.5", "restore_random=1.0"):
        refused(f"resize:0.3+{change}", plan_arms, [f"resize:0.3+{change}"])


@pytest.mark.usefixtures("plugged_in")
def test_a_class_that_is_no_dataclass_is_a_method_without_arguments(refused: Refused) -> None:
    arm = parse_arm("plain_plug_in:0.3", seed=5)
    assert (arm.text, arm.arguments, parameters(Plain)) == ("plain_plug_in:0.3", "{}", "")
    refused("'depth=3' is not an argument of plain_plug_in; it takes none", parse_arm, "plain_plug_in:0.3:depth=3")
    refused("arm 'insisting:0.3'", parse_arm, "insisting:0.3")
