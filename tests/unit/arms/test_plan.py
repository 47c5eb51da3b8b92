"""Which arms a run gets, decided by what selectors say about themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from sightline.arms.plan import plan_arms
from sightline.core.selection import Role, Selection, Selector, TokenView
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS


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


def test_a_method_that_says_it_merges_is_left_alone_by_deletion(capsys: Any) -> None:
    plan = plan_arms(["target:0.3/tile", "merging_plug_in:0.3"], interventions=["deletion", "positions"])
    assert "remove_evidence" in edited(plan, "target")
    assert edited(plan, "merging_plug_in") == ["swap_positions"]
    assert capsys.readouterr().err == ""


def test_a_method_that_does_not_say_is_left_alone_with_the_line_to_add(capsys: Any) -> None:
    plan = plan_arms(["target:0.3", "plain_plug_in:0.3", "plain_plug_in:0.5"], interventions=["deletion"])
    assert edited(plan, "plain_plug_in") == []
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("plain_plug_in: no deletion, because Plain does not say whether it merges")
    assert "merges: ClassVar[bool] = False" in line


def test_an_arm_that_names_the_intervention_itself_is_taken_at_its_word() -> None:
    assert plan_arms(["plain_plug_in:0.3+remove_evidence"]).arms[0].intervention is not None


def test_nothing_to_intervene_on_is_still_an_error() -> None:
    with pytest.raises(SightlineError, match="applies to none of the arms"):
        plan_arms(["merging_plug_in:0.3"], interventions=["deletion"])


def test_a_control_of_another_package_needs_no_controls() -> None:
    assert plan_arms(["deleting_plug_in:0.3"]).controls == []
    assert plan_arms(["merging_plug_in:0.3"]).controls == ["random:0.3", "grid:0.3"]


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


def test_a_smaller_image_is_compared_with_random_and_grid_and_changed_as_an_image_only() -> None:
    plan = plan_arms(["full", "resize:0.3"], interventions=["deletion", "positions", "occlusion"])
    assert plan.controls == ["random:0.3", "grid:0.3"]
    changed = {str(arm.intervention) for arm in plan.arms if arm.plain == "resize:0.3" and arm.intervention}
    assert changed == {"occlude_evidence", "occlude_random"}
    assert plan_arms(["full", "resize:1.0"]).controls == [], "all tokens are nothing to be compared"


@pytest.mark.parametrize("change", ["remove_evidence", "restore_evidence=0.5", "restore_random=1.0"])
def test_a_smaller_image_has_no_mask_to_change(change: str) -> None:
    with pytest.raises(SightlineError, match=r"resize keeps every token of a smaller image.*occlusion and blank"):
        plan_arms([f"resize:0.3+{change}"])


def test_arms_say_what_size_of_the_image_they_look_at() -> None:
    arms = plan_arms(["full", "target:0.3", "resize:192t", "resize:192t+blank"], controls=False).arms
    assert [arm.image_budget and str(arm.image_budget) for arm in arms] == [None, None, "192t", "192t"]
