"""How arms are written and read, those included whose budget differs from probe to probe; which arms a run gets."""

import json
from dataclasses import dataclass, fields
from typing import Any, ClassVar, cast

import pytest

from sightline import SELECTORS, Budget, Role, Selection, Selector, SightlineError, TokenView
from sightline.arms.arm import parameters, parse_arm, parse_arms, plan_arms
from tests.refusals import Refused


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("target:0.3", "target:0.3"),
        ("target:0.30", "target:0.3"),
        ("full", "full"),
        ("random:192t", "random:192t"),
        ("target:0.30/tile", "target:0.3/tile"),
        ("grid:64t/tile", "grid:64t/tile"),
        ("scope:0.4/tile:alpha=0", "scope:0.4/tile:alpha=0.0"),
        ("target:0.3/tile+remove_evidence", "target:0.3/tile+remove_evidence"),
        ("scope:0.4:alpha=0", "scope:0.4:alpha=0.0"),
        ("target:0.3:weight=0.85", "target:0.3"),
        ("soft_evidence:0.5:beta=0.1,top=4", "soft_evidence:0.5:top=4,beta=0.1"),
        ("fastv:0.50+blank", "fastv:0.5+blank"),  # an image can be changed where an arm has no mask of its tokens
        ("visionzip:0.40+blank", "visionzip:0.4+blank"),
    ],
)
def test_arms_have_one_canonical_form(text: str, canonical: str) -> None:
    arm = parse_arm(text)
    assert arm.text == canonical
    assert parse_arm(arm.text).text == canonical


FALLBACK = "policy:confidence_fallback:target_grid:0.3/0.7:threshold=1.2"
CASCADE = "policy:confidence_fallback:target:0.3"
REFUSED = [
    # what is misspelt or missing, and a likely slip, which is answered with what was meant
    *[
        "target",
        "target:0",
        "target:1.01",
        "target:0t",
        "target:abc",
        "target:0.3:top=two",
        "target:0.3:score=oracle",
        "grid",
    ],
    *["target:0.3:top=1,top=2", "target:top=2", "full:0.5", "engine:0.3", "masks:0.3:file=kept.jsonl"],
    *["target:0.3:nothing=1", "masks", "masks:", "target:30", "target:30%", "target:30%/tile", "target:192"],
    # a number that no method can use, and ranges, which hold in every class made from the one that states them
    *["hybrid:0.3:core=nan", "target:0.3:weight=inf", "random:0.3:seed=99999999999999999999", "hybrid:0.3:core=1e308"],
    *["hybrid:0.3:core=2", "gprune:0.3:iterations=99999999999", "pyramiddrop:0.3:stages=99999999999"],
    *["target:0.3:top=0", "hybrid:0.3:top=-1", "protected:0.3:top=-99999999999,reserve=1"],
    # a budget by tiles where it means nothing
    *[
        "full:1.0/tile",
        "masks:0.3/tile:file=kept.jsonl",
        "resize:0.3/tile",
        "target:0.3/row",
        "target:/tile",
        "target:0t/tile",
    ],
    *["target:30/tile", "policy:answer_stability:target:0.3/0.7/tile"],
    # policies
    *["policy", "policy:confidence_fallback:target", "policy:confidence_fallback:target:threshold=1"],
    *["policy:confidence_fallback:target:0.7:threshold=1", "policy:confidence_fallback:target:0.7/0.3:threshold=1"],
    *(f"{CASCADE}/{rest}" for rest in ["192t:threshold=1", "70:threshold=1", "0.7", "0.7:threshold=-1", "0.7:mass=1"]),
    *f"{CASCADE}/0.7:threshold=nan policy:answer_stability:target:0.3/0.5/0.7:target.reserve=1".split(),
    *["policy:answer_stability:target:0.3/0.7", "policy:confidence_fallback:full:0.3/0.7:threshold=1"],
    *["policy:confidence_fallback:resize:0.3/0.7:threshold=1", "policy:evidence_saturation:random:0.3/0.7"],
    *f"{CASCADE}/:threshold=1 policy:evidence_saturation:fastv:0.3/0.7 {FALLBACK}+remove_evidence".split(),
    # no mask to change
    *["fastv:0.5+remove_evidence", "visionzip:0.4+remove_evidence"],
]
"""What cannot be an arm; the snapshot has what each refusal says."""


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_work_is_refused_in_one_line(text: str, refused: Refused) -> None:
    refused(f"arm '{text}'", parse_arm, text)


def test_a_mistyped_name_is_suggested_and_a_number_beyond_all_is_refused(refused: Refused) -> None:
    refused("unknown selector 'targe'; did you mean", parse_arm, "targe:0.3")
    refused("unknown policy 'falback'", parse_arm, "policy:falback:target:0.3/0.7:threshold=1")
    refused("unknown selector 'targett'", parse_arm, "policy:confidence_fallback:targett:0.3/0.7:threshold=1")
    refused("is not a usable number", parse_arm, f"random:0.3:seed={'9' * 400}")


ARTIFACT = {"profile": "artifact"}


@pytest.mark.parametrize(
    ("text", "settings", "canonical"),
    [
        ("random:0.3", {"seed": 5}, "random:0.3:seed=5"),
        ("random:0.3:seed=7", {"seed": 5}, "random:0.3:seed=7"),
        ("random:0.3", ARTIFACT, "random:0.3:seed=13"),
        ("random:0.3", {**ARTIFACT, "seed": 17}, "random:0.3"),
        ("random:0.3:seed=5", ARTIFACT, "random:0.3:seed=5"),
        ("grid:0.3", ARTIFACT, "grid:0.3:cells=truncated"),
        ("grid:0.3:cells=covering", ARTIFACT, "grid:0.3"),
        ("protected:0.4", {**ARTIFACT, "model_type": "llava"}, "protected:0.4:score=prompt"),
        ("protected:0.3", {**ARTIFACT, "model_type": "qwen3_vl"}, "protected:0.3"),
        ("protected:0.5", {**ARTIFACT, "model_type": "internvl"}, "protected:0.5"),
        ("shuffled:0.4", {**ARTIFACT, "model_type": "llava"}, "shuffled:0.4:score=prompt,seed=13"),
        ("shuffled:0.3", {**ARTIFACT, "model_type": "qwen3_vl"}, "shuffled:0.3:seed=13"),
        ("protected:0.4:score=target", {**ARTIFACT, "model_type": "llava"}, "protected:0.4"),
        ("grid:0.3", {**ARTIFACT, "model_type": "llava"}, "grid:0.3:cells=truncated"),
    ],
)
def test_a_profile_sets_arguments_a_seed_wins_over_it_and_the_arm_over_both(
    text: str, settings: dict[str, Any], canonical: str
) -> None:
    arm = parse_arm(text, **settings)
    assert arm.text == canonical
    assert parse_arm(canonical).arguments == arm.arguments, "its text alone says all that matters"


def test_the_same_arm_twice_is_refused(refused: Refused) -> None:
    refused("twice", parse_arms, ["target:0.3", "target:0.30"], seed=17, profile="paper")
    refused("no arms", parse_arms, [], seed=17, profile="paper")
    refused("applies to none of the arms", plan_arms, ["merging_plug_in:0.3"], interventions=["deletion"])


def test_a_budget_is_the_ceiling_in_double_precision_and_two_methods_need_none() -> None:
    for n, keep, k in ((576, 0.4, 231), (100, 0.07, 8), (100, 0.55, 56), (5, 0.01, 1), (7, 1.0, 7)):
        assert Budget.ratio(keep).resolve(n) == Budget.tokens(k).resolve(n) == k
    assert {name for name, kind in SELECTORS.items() if not kind.needs_budget} == {"full", "masks"}
    assert parse_arm("masks:file=kept.jsonl").budget == Budget.ratio(1.0)


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


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("target:0.3/tile", Budget.ratio(0.3, "tile")),
        ("grid:64t/tile", Budget.tokens(64, "tile")),
        ("target:0.3", Budget.ratio(0.3)),
    ],
)
def test_a_budget_says_what_it_is_counted_over(text: str, budget: Budget) -> None:
    arm = parse_arm(text)
    assert arm.budget == budget
    assert arm.requested == str(budget) == text.partition(":")[2]


def test_a_policy_has_selector_levels_and_arguments_of_both_and_leaves_out_defaults() -> None:
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


@pytest.mark.parametrize(("columns", "fits"), [({"margin"}, True), ({"answer_loss"}, True), ({"answer"}, False)])
def test_a_policy_that_looks_at_confidence_needs_a_scorer_that_says_it(
    columns: set[str], fits: bool, refused: Refused
) -> None:
    parse_arm("policy:answer_stability:target:0.3/0.5/0.7").refuse_answers(columns)
    if fits:
        parse_arm(FALLBACK).refuse_answers(columns)
        return
    refused("margin or answer_loss", parse_arm(FALLBACK).refuse_answers, columns)


# Which arms a run gets, decided by what selectors say about themselves.


@dataclass(frozen=True)
class Plain(Selector):
    """It does not say whether it merges."""

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


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    SELECTORS.names()  # so that all others are known
    added = {kind.name: kind for kind in (Plain, Merging, Deleting)}
    monkeypatch.setattr(SELECTORS, "_entries", {**SELECTORS._entries, **added})


def edited(plan: Any, name: str) -> list[str]:
    return [str(arm.intervention) for arm in plan.arms if arm.selector.name == name and arm.intervention]


def test_deletion_leaves_alone_who_merges_and_who_does_not_say_with_the_line_to_add(capsys: Any) -> None:
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


@pytest.mark.parametrize(
    ("texts", "settings", "controls"),
    [
        (["target:0.3", "random:0.5", "grid:0.3", "target:0.4"], {}, ["random:0.3", "random:0.4", "grid:0.4"]),
        (["target:0.3/tile", "target:0.3"], {}, ["random:0.3/tile", "grid:0.3/tile", "random:0.3", "grid:0.3"]),
        (
            ["target:0.3"],
            {"profile": "artifact", "model_type": "llava"},
            ["random:0.3:seed=13", "grid:0.3:cells=truncated"],
        ),
    ],
    ids=["another budget is no match", "by tiles", "under a profile"],
)
def test_controls_are_matched_to_every_budget(texts: list[str], settings: dict[str, Any], controls: list[str]) -> None:
    assert plan_arms(texts, **settings).controls == controls
    assert plan_arms(["deleting_plug_in:0.3"]).controls == []
    assert plan_arms(["merging_plug_in:0.3"]).controls == ["random:0.3", "grid:0.3"]


def test_a_smaller_image_is_compared_with_random_and_grid_and_changed_as_an_image_only() -> None:
    plan = plan_arms(["full", "resize:0.3"], interventions=["deletion", "positions", "occlusion"])
    assert plan.controls == ["random:0.3", "grid:0.3"]
    changed = {str(arm.intervention) for arm in plan.arms if arm.plain == "resize:0.3" and arm.intervention}
    assert changed == {"occlude_evidence", "occlude_random"}
    assert plan_arms(["full", "resize:1.0"]).controls == [], "all tokens are nothing to be compared"
    arms = plan_arms(["full", "target:0.3", "resize:192t", "resize:192t+blank"], controls=False).arms
    assert [arm.image_budget and str(arm.image_budget) for arm in arms] == [None, None, "192t", "192t"]


@pytest.mark.parametrize("change", ["remove_evidence", "restore_evidence=0.5", "restore_random=1.0"])
def test_a_smaller_image_has_no_mask_to_change(change: str) -> None:
    with pytest.raises(SightlineError, match=r"resize keeps every token of a smaller image.*occlusion and blank"):
        plan_arms([f"resize:0.3+{change}"])


class _Plain(Selector):
    """Says no more than its name and how it chooses."""

    name = "plain_class"

    def select(self, view: TokenView, k: int) -> Selection:
        raise NotImplementedError


class _Insisting(_Plain):
    def __init__(self, depth: int) -> None:
        self.depth = depth


def test_a_class_that_is_no_dataclass_is_a_method_without_arguments(
    monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setitem(SELECTORS._entries, "plain_class", _Plain)
    monkeypatch.setitem(SELECTORS._entries, "insisting", _Insisting)
    arm = parse_arm("plain_class:0.3", seed=5)
    assert (arm.text, arm.arguments) == ("plain_class:0.3", "{}")
    assert parameters(_Plain) == ""
    refused("'depth=3' is not an argument of plain_class; it takes none", parse_arm, "plain_class:0.3:depth=3")
    with pytest.raises(SightlineError, match=r"arm 'insisting:0\.3': .*'depth'"):
        parse_arm("insisting:0.3")
