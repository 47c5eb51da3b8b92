"""Which arms a run really has: those named, the controls matched to them, and their interventions."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sightline.arms.arm import Arm, parse_arm, parse_arms
from sightline.core.probe import ORIGINAL, Probe
from sightline.errors import SightlineError
from sightline.interventions import Intervention, families

MATCHED = ("random", "grid")
"""What every method is shown beside: chance, and an even spread."""


@dataclass(frozen=True)
class ArmPlan:
    arms: list[Arm]
    controls: list[str]
    """Arms that were added because an arm that claims coverage came without them."""


def plan_arms(
    texts: Sequence[str],
    *,
    interventions: Sequence[str] = (),
    controls: bool = True,
    seed: int | None = None,
    profile: str = "paper",
    model_type: str = "",
) -> ArmPlan:
    """Named arms first, then what they are to be compared with, then the interventions.

    Random and Grid at each budget that lacks them; for a policy its selector at each of its levels, fixed.

    Deletion and positions are applied to every pruning arm that claims coverage; changed images to Full as well, which
    is added when it is missing: what an occlusion does to the unpruned model is what its effect is compared with.
    """
    arms = parse_arms(texts, seed=seed, profile=profile, model_type=model_type)
    named, known = list(arms), families() if interventions else {}
    added = matched_controls(arms, seed=seed, profile=profile, model_type=model_type) if controls else []
    arms += added
    for name in interventions:
        if name not in known:
            raise SightlineError(f"unknown intervention '{name}'; choose from {', '.join(sorted(known))}")
        added_to_each = known[name]
        if any(change.view != ORIGINAL for change in added_to_each) and not any(arm.text == "full" for arm in arms):
            full = parse_arm("full")
            arms, named = [full, *arms], [full, *named]
        arms += [arm.under(change) for arm in named for change in added_to_each if applies(change, arm)]
        _ask_who_merges(name, [arm for arm in named for change in added_to_each if undecided(change, arm)])
    unique = {arm.text: arm for arm in arms}
    if interventions and not any(arm.intervention for arm in unique.values()):
        raise SightlineError(
            f"--interventions {','.join(interventions)} applies to none of the arms "
            f"({', '.join(texts)}): deletion and positions need a pruning arm that only deletes"
        )
    return ArmPlan(list(unique.values()), [arm.text for arm in added])


def matched_controls(arms: Iterable[Arm], *, seed: int | None, profile: str, model_type: str) -> list[Arm]:
    """Random and Grid at the budget of every arm that claims coverage, unless the run has them already.

    A policy is not compared with chance but with a fixed budget: the same selector at each of its levels.
    """
    arms = list(arms)
    present = {(arm.selector.name, arm.requested) for arm in arms if arm.intervention is None}
    named = {arm.text for arm in arms}
    added: dict[str, Arm] = {}
    for arm in arms:
        fixed = [arm.at(level) for level in arm.levels]
        added |= {each.text: each for each in fixed if each.text not in named}
        if fixed:
            continue
        for control in MATCHED if claims_coverage(arm) else ():
            if (control, str(arm.budget)) not in present:
                found = parse_arm(f"{control}:{arm.budget}", seed=seed, profile=profile, model_type=model_type)
                added[found.text] = found
    return list(added.values())


def claims_coverage(arm: Arm) -> bool:
    """Whether the arm spends less than all tokens in a way that is meant to keep what matters."""
    return (arm.selector.role == "method" or arm.selector.resizes) and arm.budget.keep != 1.0


def applies(intervention: Intervention, arm: Arm) -> bool:
    if arm.intervention is not None or arm.policy is not None:
        return False
    if arm.selector.resizes and intervention.view == ORIGINAL:
        return False  # nothing is pruned: there is no mask to change, and no gap between positions to close
    if intervention.on_mask:
        return claims_coverage(arm) and not arm.inside and arm.selector.merges is False
    return claims_coverage(arm) or (intervention.view != ORIGINAL and arm.text == "full")


def undecided(intervention: Intervention, arm: Arm) -> bool:
    """Whether the intervention would apply if the selector's class said that it merges nothing."""
    usable = arm.intervention is None and arm.policy is None and claims_coverage(arm) and not arm.inside
    return intervention.on_mask and usable and arm.selector.merges is None


def _ask_who_merges(intervention: str, arms: Iterable[Arm]) -> None:
    """One line for each class that leaves open whether it merges."""
    for name, kind in {arm.selector.name: type(arm.selector).__qualname__ for arm in arms}.items():
        print(
            f"{name}: no {intervention}, because {kind} does not say whether it merges tokens; "
            "add the line 'merges: ClassVar[bool] = False' to the class, or True if it does",
            file=sys.stderr,
        )


def refuse_unusable(arms: Iterable[Arm], probes: Iterable[Probe]) -> None:
    """What deletes or occludes evidence needs every probe to have some, and to be about its original image."""
    changes = [arm.intervention for arm in arms if arm.intervention is not None]
    for probe in probes if changes else ():
        for change in changes:
            if change.needs_regions and not probe.regions:
                raise SightlineError(
                    f"probe '{probe.id}' has no regions, so {change} has nothing to act on; "
                    "leave such probes out or run without that intervention"
                )
            if change.view != ORIGINAL and probe.view != ORIGINAL:
                raise SightlineError(
                    f"probe '{probe.id}' is already about the view '{probe.view}'; {change} starts from original images"
                )
