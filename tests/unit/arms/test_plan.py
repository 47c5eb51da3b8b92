"""Which arms a run gets, decided by what selectors say about themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from sightline.arms.plan import plan_arms
from sightline.core.selection import Role, Selection, Selector, TokenView
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS


@dataclass(frozen=True)
class Plain(Selector):
    """It merges, and does not say so."""

    name: ClassVar[str] = "plain_plug_in"
    merges: ClassVar[bool | None] = None

    def select(self, view: TokenView, k: int) -> Selection:
        mix = torch.full((k, view.tokens.shape[0]), 1.0 / view.tokens.shape[0])
        return Selection(torch.arange(k), mix)


@dataclass(frozen=True)
class Merging(Selector):
    name: ClassVar[str] = "merging_plug_in"
    merges: ClassVar[bool] = True

    def select(self, view: TokenView, k: int) -> Selection:
        return Plain().select(view, k)


@dataclass(frozen=True)
class Deleting(Selector):
    name: ClassVar[str] = "deleting_plug_in"
    role: ClassVar[Role] = "control"

    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k))


@pytest.fixture
def installed() -> Iterator[Callable[[Any], None]]:
    names: list[str] = []

    def install(kind: Any) -> None:
        SELECTORS.register(kind.name)(kind)
        names.append(kind.name)

    yield install
    for name in names:
        del SELECTORS._entries[name]


def edited(plan: Any, name: str) -> list[str]:
    return [str(arm.intervention) for arm in plan.arms if arm.selector.name == name and arm.intervention]


def test_a_method_that_says_it_merges_is_left_alone_by_deletion(installed: Any, capsys: Any) -> None:
    installed(Merging)
    plan = plan_arms(["target:0.3", "merging_plug_in:0.3"], interventions=["deletion", "positions"])
    assert "remove_evidence" in edited(plan, "target")
    assert edited(plan, "merging_plug_in") == ["swap_positions"]
    assert capsys.readouterr().err == ""


def test_a_method_that_does_not_say_is_left_alone_with_the_line_to_add(installed: Any, capsys: Any) -> None:
    installed(Plain)
    plan = plan_arms(["target:0.3", "plain_plug_in:0.3", "plain_plug_in:0.5"], interventions=["deletion"])
    assert edited(plan, "plain_plug_in") == []
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("plain_plug_in: no deletion, because Plain does not say whether it merges")
    assert "merges: ClassVar[bool] = False" in line


def test_an_arm_that_names_the_intervention_itself_is_taken_at_its_word(installed: Any) -> None:
    installed(Plain)
    assert plan_arms(["plain_plug_in:0.3+remove_evidence"]).arms[0].intervention is not None


def test_nothing_to_intervene_on_is_still_an_error(installed: Any) -> None:
    installed(Merging)
    with pytest.raises(SightlineError, match="applies to none of the arms"):
        plan_arms(["merging_plug_in:0.3"], interventions=["deletion"])


def test_a_control_of_another_package_needs_no_controls(installed: Any) -> None:
    installed(Deleting)
    installed(Merging)
    assert plan_arms(["deleting_plug_in:0.3"]).controls == []
    assert plan_arms(["merging_plug_in:0.3"]).controls == ["random:0.3", "grid:0.3"]


def test_a_control_of_another_budget_is_no_matched_control() -> None:
    plan = plan_arms(["target:0.3", "random:0.5", "grid:0.3", "target:0.4"])
    assert plan.controls == ["random:0.3", "random:0.4", "grid:0.4"]


def test_matched_controls_follow_the_profile() -> None:
    plan = plan_arms(["target:0.3"], profile="artifact", model_type="llava")
    assert plan.controls == ["random:0.3:seed=13", "grid:0.3:cells=truncated"]


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


def test_controls_are_matched_to_a_budget_by_tiles() -> None:
    plan = plan_arms(["target:0.3/tile", "target:0.3"], interventions=["deletion"])
    assert plan.controls == ["random:0.3/tile", "grid:0.3/tile", "random:0.3", "grid:0.3"]
    assert "target:0.3/tile+remove_evidence" in [arm.text for arm in plan.arms]
