"""An arm: a selector, a budget, arguments (``target:0.3``, ``scope:0.4:alpha=0``); and which arms a run has.

A budget is of all visual tokens, or of every tile by itself: ``target:0.3/tile``, ``grid:64t/tile``.

Behind a plus an arm may carry one intervention: ``target:0.3+remove_evidence``. A policy in front of the selector gives
every probe its own budget: ``policy:confidence_fallback:target:0.3/0.7:threshold=1.2``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from itertools import pairwise
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

from sightline.core.probe import ORIGINAL, Probe
from sightline.core.selection import (
    PER_TILE,
    Budget,
    LayerSelector,
    Per,
    PositionPolicy,
    Selection,
    Selector,
    TokenView,
    argument_refusal,
)
from sightline.errors import SightlineError, located
from sightline.interventions import Intervention, families, split_arm
from sightline.policies import POLICIES, Policy
from sightline.policies.base import CONFIDENCE_COLUMNS
from sightline.selectors import SELECTORS

# ``key=value`` of an arm as the typed fields of what it names, a selector or a policy.

DEFAULT = "default"
"""What an arm of an engine says that sets no switch: ``engine:default``."""
LARGEST = 2.0**63
"""No argument is beyond this: it would not fit the integers that methods compute with."""


def from_pairs(kind: Any, name: str, pairs: Iterable[str], preset: Mapping[str, Any], arm: str, example: str) -> Any:
    """A ``kind``, called ``name`` in messages about ``arm``, from ``key=value`` pairs over what is preset.

    ``example`` says how a missing argument is written, up to its name.
    """
    given = {"switches": _switches(pairs, arm)} if kind is EngineSwitches else read_pairs(kind, name, pairs, arm)
    arguments = {**preset, **given}
    for key, field in arguments_of(kind).items():
        if key not in arguments and _default(field) is MISSING:
            raise SightlineError(f"arm '{arm}' needs {key}: write {example}{key}={key.upper()}")
    try:
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        raise SightlineError(f"arm '{arm}': {error}") from None


def read_pairs(kind: Any, name: str, pairs: Iterable[str], arm: str) -> dict[str, Any]:
    """``key=value`` pairs as values of the types that ``kind`` declares, within their ranges."""
    known, hints = arguments_of(kind), get_type_hints(kind)
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or key not in known:
            raise SightlineError(
                f"arm '{arm}': '{pair}' is not an argument of {name}; it takes {', '.join(known) or 'none'}"
            )
        if key in arguments:
            raise SightlineError(f"arm '{arm}' sets {key} twice")
        arguments[key] = _checked(_coerce(value, hints[key], key, arm), key, kind, arm)
    return arguments


def _switches(pairs: Iterable[str], arm: str) -> tuple[tuple[str, str], ...]:
    """Of an engine, which knows their names and values, in the order of their names."""
    split = [pair.partition("=") for pair in pairs]
    for name, equals, value in split:
        if not (name and equals and value):
            raise SightlineError(f"arm '{arm}': '{name}{equals}' is no switch; write engine:SWITCH=VALUE")
    found = {name: value for name, _, value in split}
    if len(found) < len(split):
        raise SightlineError(f"arm '{arm}' sets one switch twice")
    return tuple(sorted(found.items()))


def arguments_of(kind: Any) -> dict[str, Any]:
    """The fields that an arm may set, by name; a plain class has none."""
    return {f.name: f for f in fields(kind) if f.init} if is_dataclass(kind) else {}


def changed_arguments(made_of: Any) -> list[str]:
    """``key=value`` of every argument that differs from its default."""
    if isinstance(made_of, EngineSwitches):
        return [f"{key}={value}" for key, value in made_of.switches] or [DEFAULT]
    return [
        f"{key}={_print(getattr(made_of, key))}"
        for key, f in arguments_of(made_of).items()
        if getattr(made_of, key) != _default(f)
    ]


def values_of(made_of: Any) -> dict[str, Any]:
    """Every argument, defaults included."""
    if isinstance(made_of, EngineSwitches):
        return dict(made_of.switches)
    return {f.name: getattr(made_of, f.name) for f in fields(made_of)} if is_dataclass(made_of) else {}


def _checked(value: Any, name: str, kind: Any, arm: str) -> Any:
    """An argument's value, if its owner takes it; infinity and nan nobody does."""
    if isinstance(value, int | float) and not abs(value) <= LARGEST:  # so said, nan is refused too
        raise SightlineError(f"arm '{arm}': {name}={value} is not a usable number")
    if refusal := argument_refusal(kind, name, value):
        raise SightlineError(f"arm '{arm}': {refusal}")
    return value


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _coerce(value: str, hint: Any, name: str, arm: str) -> Any:
    """An argument's text as the type that the field declares."""
    if get_origin(hint) in (Union, UnionType):
        if value.lower() == "none":
            return None
        hint = next(option for option in get_args(hint) if option is not type(None))
    try:
        if hint is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[value.lower()]
        return hint(value) if hint in (int, float) else value
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[hint]
        raise SightlineError(f"arm '{arm}': {name}={value} is not {wanted}") from None


def _print(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def parameters(kind: Any) -> str:
    """The arguments of a selector or policy with their defaults, as they are written in an arm."""
    return ", ".join(
        name if _default(f) is MISSING else f"{name}={_print(_default(f))}" for name, f in arguments_of(kind).items()
    )


@dataclass(frozen=True)
class EngineSwitches(Selector):
    """What an engine does by itself, unseen: ``engine:pruning_ratio=30``, ``engine:default``.

    Which switches there are is the engine's to say (`sightline engines list`). Every engine has ``jpeg=QUALITY``: the
    image is shown as it comes out of JPEG.
    """

    name: ClassVar[str] = "engine"
    needs_budget: ClassVar[bool] = False
    switches: tuple[tuple[str, str], ...] = ()

    def select(self, view: TokenView, k: int) -> Selection:
        raise SightlineError("engine arms are for engines, which choose by themselves: --model openvino:DIR")


POLICY = "policy"
"""What an arm with a policy begins with."""
POLICY_FORM = (
    "policy:NAME:SELECTOR:LEVELS[:key=value,...], for example policy:confidence_fallback:target:0.3/0.7:threshold=1.2"
)
SEED, ARTIFACT_SEED = 17, 13
"""Of the artifact's own configurations; its confirmation scripts passed 17."""


@dataclass(frozen=True)
class Arm:
    """One column of the audit."""

    selector: Selector | LayerSelector
    budget: Budget
    """Under a policy the highest of its levels: no probe is answered with more."""
    text: str
    """Canonical form: name, budget, the arguments that differ from their defaults, and the intervention."""
    intervention: Intervention | None = None
    policy: Policy | None = None
    levels: tuple[Budget, ...] = ()
    """What the policy chooses from, ascending; empty without one."""

    @property
    def requested(self) -> str:
        """The budget as it was asked for, of a policy all levels: ``0.3/0.7``."""
        return "/".join(map(str, self.levels or (self.budget,)))

    def at(self, budget: Budget) -> Arm:
        """The arm of a fixed budget with the same selector: one pass of a policy, and what a policy is judged by."""
        return Arm(self.selector, budget, _text(self.selector, str(budget)))

    @property
    def plain(self) -> str:
        """The arm without its intervention: what its rows are paired with."""
        return self.text if self.intervention is None else self.text.removesuffix(f"+{self.intervention}")

    @property
    def view(self) -> str:
        """The version of the image that the arm looks at."""
        return ORIGINAL if self.intervention is None else self.intervention.view

    def positions(self, usual: PositionPolicy) -> PositionPolicy:
        return usual if self.intervention is None else self.intervention.positions(usual)

    def under(self, intervention: Intervention) -> Arm:
        """The arm with one thing changed on purpose."""
        if self.policy is not None:
            raise SightlineError(
                f"arm '{self.text}+{intervention}': a policy may run several prefixes, of which one would be changed; "
                f"put the intervention on a fixed budget, for example {self.at(self.levels[0]).text}+{intervention}"
            )
        if intervention.on_mask and (self.inside or self.selector.merges):
            how = "prunes between layers, so there is no one" if self.inside else "merges tokens, so its outputs are no"
            raise SightlineError(f"arm '{self.text}+{intervention}': {self.selector.name} {how} mask to change")
        if intervention.on_mask and self.selector.resizes:
            raise SightlineError(
                f"arm '{self.text}+{intervention}': {self.selector.name} keeps every token of a smaller image, so it "
                "has no mask to change; occlusion and blank, which change the image, go with it"
            )
        return replace(self, text=f"{self.text}+{intervention}", intervention=intervention)

    @property
    def arguments(self) -> str:
        """As JSON, defaults included; a policy stands among them as one."""
        policy = {} if self.policy is None else {POLICY: str(self.policy)}
        return json.dumps({**values_of(self.selector), **policy})

    @property
    def inside(self) -> bool:
        """Whether the method prunes between language layers instead of before them."""
        return self.selector.inside

    @property
    def deployed(self) -> bool:
        """Whether it is what an engine does by itself."""
        return isinstance(self.selector, EngineSwitches)

    @property
    def switches(self) -> dict[str, str]:
        """Of an engine, that the arm sets."""
        return dict(self.selector.switches) if isinstance(self.selector, EngineSwitches) else {}

    @property
    def image_budget(self) -> Budget | None:
        """What the image itself is made small enough for; None: it is looked at in its usual size."""
        return self.budget if self.selector.resizes else None

    def input_digest(self) -> str | None:
        """Of the file that the selector or the policy reads, if one of them does."""
        return self.selector.digest() or (self.policy.digest() if self.policy is not None else None)

    def refuse_execution(self, execution: str, way_out: str) -> None:
        """A method that prunes between layers is refused by name where the layers run as one."""
        if self.inside and execution == "graph":
            raise SightlineError(f"{self.selector.name} prunes between layers, which are one in a graph; {way_out}")

    def refuse_answers(self, columns: Container[str]) -> None:
        """A policy that looks at how sure an answer is needs a scorer whose ``columns`` say so."""
        if self.policy is None or "confidence" not in self.policy.reads:
            return
        if not any(name in columns for name in CONFIDENCE_COLUMNS):
            raise SightlineError(
                f"{self.policy.name} looks at how sure an answer is, which this scorer does not say: it needs one "
                f"whose rows have {' or '.join(CONFIDENCE_COLUMNS)}"
            )


def parse_arm(text: str, *, seed: int | None = None, profile: str = "paper", model_type: str = "") -> Arm:
    """Reads ``NAME[:BUDGET][:key=value,...][+INTERVENTION]`` or ``policy:NAME:SELECTOR:LEVELS[:key=value,...]``.

    Under the profile ``artifact`` a selector gets the arguments that it was run with on models of ``model_type``, and
    the artifact's seed. ``seed`` wins over that, and what the arm names over both. The canonical form, which runs
    record, says all that differs from the defaults: no other setting matters.
    """
    text, intervention = split_arm(text) if "+" in text else (text, None)
    name, _, rest = text.strip().partition(":")
    preset = _Preset(seed, profile, model_type)
    arm = _policy_arm(text.strip(), preset) if name == POLICY else _plain_arm(text, name, rest, preset)
    return arm if intervention is None else arm.under(intervention)


@dataclass(frozen=True)
class _Preset:
    """What a run says of all its arms."""

    seed: int | None
    profile: str
    model_type: str

    def of(self, kind: Any) -> dict[str, Any]:
        """Arguments that a selector of this class has unless its arm says otherwise."""
        arguments: dict[str, Any] = {}
        seed = self.seed
        if self.profile == "artifact":
            arguments.update({**kind.artifact.get("*", {}), **kind.artifact.get(self.model_type, {})})
            seed = ARTIFACT_SEED if seed is None else seed
        if "seed" in arguments_of(kind) and seed is not None:
            arguments["seed"] = seed
        return arguments


def _plain_arm(text: str, name: str, rest: str, preset: _Preset) -> Arm:
    kind: Any = EngineSwitches if name == EngineSwitches.name else SELECTORS.get(name)
    budget_text, _, argument_text = rest.partition(":")
    if "=" in budget_text:
        budget_text, argument_text = "", rest
    if kind is EngineSwitches and rest in ("", DEFAULT):
        budget_text = ""
    pairs = filter(None, argument_text.split(","))
    example = f"{name}:{budget_text}:" if budget_text else f"{name}:"
    selector = from_pairs(kind, name, pairs, preset.of(kind), text, example)
    budget = parse_budget(budget_text, text, needed=selector.needs_budget)
    _refuse_budget(selector, budget, text)
    return Arm(selector, budget, _text(selector, str(budget) if budget_text else "", name))


def _refuse_budget(selector: Selector | LayerSelector, budget: Budget, arm: str) -> None:
    """What keeps all tokens, or as many as a file says, has no other budget; one of every tile's own is for methods
    that choose tokens by a budget."""
    if not selector.needs_budget and budget != Budget.ratio(1.0):
        raise SightlineError(f"arm '{arm}': {selector.name} has no budget to set; leave out {budget}")
    reason = ""
    if selector.resizes:
        reason = "shows the whole image smaller, so there are no tiles to choose from"
    elif selector.budget_counts == "layers":
        reason = "spreads its budget over the language layers, not over tiles"
    if reason and budget.per == "tile":
        raise SightlineError(f"arm '{arm}': {selector.name} {reason}; leave out {PER_TILE}")


def _text(selector: Selector | LayerSelector, budget: str, name: str = "") -> str:
    """The canonical form of a selector, under the ``name`` that it is registered by, at a budget."""
    return ":".join(filter(None, (name or selector.name, budget, ",".join(changed_arguments(selector)))))


def _policy_arm(text: str, preset: _Preset) -> Arm:
    """Arguments are the policy's; those of the selector carry its name: ``target_grid.reserve=0.25``."""
    parts = text.split(":", 4)
    if len(parts) < 4:
        raise SightlineError(f"arm '{text}': write {POLICY_FORM}")
    _, name, selector_name, level_text, *rest = parts
    kind, of_policy = SELECTORS.get(selector_name), POLICIES.get(name)
    if level_text.count("=") or not level_text:
        raise SightlineError(f"arm '{text}' has no levels; write {POLICY_FORM}")
    pairs, prefix = list(filter(None, ",".join(rest).split(","))), f"{selector_name}."
    its = [pair.removeprefix(prefix) for pair in pairs if pair.startswith(prefix)]
    own = [pair for pair in pairs if not pair.startswith(prefix)]
    selector = from_pairs(
        kind, selector_name, its, preset.of(kind), text, f"{text}{',' if rest else ':'}{selector_name}."
    )
    policy: Policy = from_pairs(of_policy, name, own, {}, text, f"{text}{',' if rest else ':'}")
    levels = parse_levels(level_text, text)
    with located(f"arm '{text}'"):
        policy.check_levels(levels)
        _refuse_selector(policy, selector)
    arguments = [*changed_arguments(policy), *(f"{selector.name}.{pair}" for pair in changed_arguments(selector))]
    shown = "/".join(map(str, levels))
    canonical = ":".join(filter(None, (POLICY, policy.name, selector.name, shown, ",".join(arguments))))
    return Arm(selector, levels[-1], canonical, policy=policy, levels=levels)


def parse_levels(text: str, arm: str) -> tuple[Budget, ...]:
    """``0.3/0.5/0.7``, of an ``arm`` that messages name."""
    if text.endswith(PER_TILE):
        raise SightlineError(f"arm '{arm}': a policy chooses among budgets of the whole image; leave out {PER_TILE}")
    amounts = text.split("/")
    levels = tuple(parse_budget(amount, arm, needed=False) for amount in amounts)
    sizes = [level.keep if level.count is None else level.count for level in levels]
    mixed = len({level.keep is None for level in levels}) > 1
    if len(levels) < 2 or not all(amounts) or mixed or any((a or 0) >= (b or 0) for a, b in pairwise(sizes)):
        raise SightlineError(f"arm '{arm}': levels are two or more ascending budgets of one kind, such as 0.3/0.7")
    return levels


def _refuse_selector(policy: Policy, selector: Selector | LayerSelector) -> None:
    """What a policy reads must be there, and a level must make a difference to the prefix alone."""
    if not selector.needs_budget:
        raise SightlineError(f"{selector.name} has no budget to choose")
    if selector.resizes:
        raise SightlineError(f"{selector.name} shows every level another image; name a selector that prunes tokens")
    if selector.inside and "masks" in policy.reads:
        raise SightlineError(
            f"{policy.name} looks at masks before anything is answered, and {selector.name} chooses between layers"
        )
    from sightline.selectors.scores import Scored

    if "scores" in policy.reads and not isinstance(selector, Scored):
        raise SightlineError(f"{policy.name} looks at token scores, which {selector.name} does not give; try target")


def parse_arms(
    texts: Sequence[str], *, seed: int | None = None, profile: str = "paper", model_type: str = ""
) -> list[Arm]:
    """All arms of a run, duplicates refused."""
    if not texts:
        raise SightlineError("no arms given; name at least one, for example --arm full --arm target:0.3")
    arms = [parse_arm(text, seed=seed, profile=profile, model_type=model_type) for text in texts]
    texts = [arm.text for arm in arms]
    for text in texts:
        if texts.count(text) > 1:
            raise SightlineError(f"arm '{text}' is given twice")
    return arms


def parse_budget(text: str, arm: str, *, needed: bool) -> Budget:
    """``0.3`` or ``192t``, or either followed by ``/tile``, of an ``arm`` that messages name."""
    if not text:
        if needed:
            example = arm.partition(":")[0]
            raise SightlineError(
                f"arm '{arm}' has no budget; write for example {example}:0.3 (kept fraction) or {example}:192t"
            )
        return Budget.ratio(1.0)
    amount = text.removesuffix(PER_TILE)
    per: Per = "image" if amount == text else "tile"
    try:
        return Budget.tokens(int(amount[:-1]), per) if amount.endswith("t") else Budget.ratio(float(amount), per)
    except ValueError as error:
        reason = (
            str(error) if "must be" in str(error) else f"'{text}' is neither a kept fraction nor a count such as 192t"
        )
        meant = ""
        percent = amount.removesuffix("%")
        if percent != amount and percent.isdecimal() and 0 < int(percent) <= 100:
            meant = f"; did you mean {int(percent) / 100:g}{text.removeprefix(amount)} (that share of the tokens)?"
        elif amount.isdecimal() and int(amount) > 1:
            behind = text.removeprefix(amount)
            share = f"{int(amount) / 100:g}{behind} (that share of the tokens) or " if int(amount) <= 100 else ""
            meant = f"; did you mean {share}{amount}t{behind} (that many)?"
        raise SightlineError(f"arm '{arm}': {reason}{meant}") from None


# Which arms a run really has: those named, the controls matched to them, and their interventions.

MATCHED = ("random", "grid")
"""What every method is shown beside: chance, and an even spread."""


@dataclass(frozen=True)
class ArmPlan:
    arms: list[Arm]
    controls: list[str]
    """Arms that were added because an arm that claims coverage came without them."""

    @property
    def asked_for(self) -> ArmPlan:
        """Without those that were added as controls."""
        return ArmPlan([arm for arm in self.arms if arm.plain not in self.controls], [])


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
        arms += [arm.under(change) for arm in named for change in added_to_each if can_apply(change, arm)]
        _ask_who_merges(name, [arm for arm in named for change in added_to_each if might_apply(change, arm)])
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


def can_apply(intervention: Intervention, arm: Arm) -> bool:
    if arm.intervention is not None or arm.policy is not None:
        return False
    if arm.selector.resizes and intervention.view == ORIGINAL:
        return False  # nothing is pruned: there is no mask to change, and no gap between positions to close
    if intervention.on_mask:
        return claims_coverage(arm) and not arm.inside and arm.selector.merges is False
    changed_image = intervention.view != ORIGINAL and (arm.text == "full" or arm.deployed)
    return claims_coverage(arm) or changed_image


def might_apply(intervention: Intervention, arm: Arm) -> bool:
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
