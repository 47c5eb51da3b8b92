"""Which arms a run really has: those named, the controls matched to them, and their interventions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sightline.arms import Arm, parse_arm, parse_arms
from sightline.config import AuditConfig
from sightline.errors import SightlineError
from sightline.interventions.edits import INTERVENTIONS, Edit
from sightline.types import Probe

CONTROLS = frozenset(
    {"full", "random", "grid", "center", "shuffled", "bottom", "evidence_only", "anti_evidence", "masks"}
)
"""Arms that make no claim about where the evidence is: they need no control and are none of anybody's findings."""
MATCHED = ("random", "grid")
MERGING = frozenset(
    {"nuwa", "prumerge", "prumerge_plus", "sparsevlm", "tokencarve", "tome", "visionzip", "visionzip_qwen", "vlmpruner"}
)
"""Methods whose outputs mix several tokens, so that no single one can be deleted or restored."""


@dataclass(frozen=True)
class Plan:
    arms: list[Arm]
    controls: list[str]
    """Arms that were added because an arm that claims coverage came without them."""


def plan_arms(config: AuditConfig) -> Plan:
    """Named arms first, then Random and Grid at each budget that lacks them, then the edits.

    Deletion and positions are applied to every pruning arm that claims coverage; image edits to Full as well, which is
    added when it is missing: what an occlusion does to the unpruned model is what its effect is compared with.
    """
    arms = parse_arms(config.arms, seed=config.seed, profile=config.profile)
    named = list(arms)
    added = matched_controls(arms, seed=config.seed, profile=config.profile) if config.matched_controls else []
    arms += added
    for name in config.interventions:
        if name not in INTERVENTIONS:
            raise SightlineError(f"unknown intervention '{name}'; choose from {', '.join(INTERVENTIONS)}")
        edits = INTERVENTIONS[name]
        if any(edit.view != "orig" for edit in edits) and not any(arm.text == "full" for arm in arms):
            full = parse_arm("full")
            arms, named = [full, *arms], [full, *named]
        arms += [arm.edited(edit) for arm in named for edit in edits if applies(edit, arm)]
    unique = {arm.text: arm for arm in arms}
    if config.interventions and not any(arm.edit for arm in unique.values()):
        raise SightlineError(
            f"--interventions {','.join(config.interventions)} applies to none of the arms "
            f"({', '.join(config.arms)}): deletion and positions need a pruning arm that only deletes"
        )
    return Plan(list(unique.values()), [arm.text for arm in added])


def matched_controls(arms: Iterable[Arm], *, seed: int, profile: str) -> list[Arm]:
    """Random and Grid at the budget of every arm that claims coverage, unless the run has them already."""
    arms = list(arms)
    present = {(arm.selector.name, str(arm.budget)) for arm in arms if arm.edit is None}
    added: dict[str, Arm] = {}
    for arm in arms:
        for control in MATCHED if claims_coverage(arm) else ():
            if (control, str(arm.budget)) not in present:
                found = parse_arm(f"{control}:{arm.budget}", seed=seed, profile=profile)
                added[found.text] = found
    return list(added.values())


def claims_coverage(arm: Arm) -> bool:
    """Whether the arm prunes by a method that is meant to keep what matters."""
    return arm.selector.name not in CONTROLS and arm.budget.keep != 1.0


def applies(edit: Edit, arm: Arm) -> bool:
    if arm.edit is not None:
        return False
    if edit.on_mask:
        return claims_coverage(arm) and not arm.inside and arm.selector.name not in MERGING
    return claims_coverage(arm) or (edit.view != "orig" and arm.text == "full")


def refuse_unusable(arms: Iterable[Arm], probes: Iterable[Probe]) -> None:
    """Edits that delete or occlude evidence need every probe to have some, and to be about its original image."""
    edits = [arm.edit for arm in arms if arm.edit is not None]
    for probe in probes if edits else ():
        for edit in edits:
            if edit.needs_regions and not probe.regions:
                raise SightlineError(
                    f"probe '{probe.id}' has no regions, so {edit} has nothing to act on; "
                    "leave such probes out or run without that intervention"
                )
            if edit.view != "orig" and probe.view != "orig":
                raise SightlineError(
                    f"probe '{probe.id}' is already about the view '{probe.view}'; {edit} starts from original images"
                )
