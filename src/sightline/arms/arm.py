"""An arm: a selector, a budget, arguments. ``target:0.3``, ``scope:0.4:alpha=0``, ``random:192t:seed=5``.

Behind a plus an arm may carry one intervention: ``target:0.3+remove_evidence``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from sightline.core.prefix import PositionPolicy
from sightline.core.probe import ORIGINAL
from sightline.core.selection import Budget, LayerSelector, Selector
from sightline.errors import SightlineError
from sightline.interventions import Intervention, split_arm
from sightline.selectors import SELECTORS

LARGEST = 2.0**63
"""No argument is beyond this: it would not fit the integers that methods compute with."""
SEED, ARTIFACT_SEED = 17, 13
"""Of the artifact's own configurations; its confirmation scripts passed 17."""


@dataclass(frozen=True)
class Arm:
    """One column of the audit."""

    selector: Selector | LayerSelector
    budget: Budget
    text: str
    """Canonical form: name, budget, the arguments that differ from their defaults, and the intervention."""
    intervention: Intervention | None = None

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
        return json.dumps({f.name: getattr(self.selector, f.name) for f in fields(cast(Any, self.selector))})

    @property
    def inside(self) -> bool:
        """Whether the method prunes between language layers instead of before them."""
        return self.selector.inside

    @property
    def image_budget(self) -> Budget | None:
        """What the image itself is made small enough for; None: it is looked at in its usual size."""
        return self.budget if self.selector.resizes else None

    def input_digest(self) -> str | None:
        """Of the file that the selector reads, if it reads one."""
        return self.selector.digest()

    def refuse_execution(self, execution: str, way_out: str) -> None:
        """A method that prunes between layers is refused by name where the layers run as one."""
        if self.inside and execution != "eager":
            raise SightlineError(
                f"{self.selector.name} prunes between layers, which only eager execution does; {way_out}"
            )


def parse_arm(text: str, *, seed: int | None = None, profile: str = "paper", model_type: str = "") -> Arm:
    """Reads ``NAME[:BUDGET][:key=value,...][+INTERVENTION]``.

    Under the profile ``artifact`` a selector gets the arguments that it was run with on models of ``model_type``, and
    the artifact's seed. ``seed`` wins over that, and what the arm names over both.
    """
    text, intervention = split_arm(text)
    name, _, rest = text.strip().partition(":")
    kind = SELECTORS.get(name)
    budget_text, _, argument_text = rest.partition(":")
    if "=" in budget_text:
        budget_text, argument_text = "", rest
    known = {f.name: f for f in fields(cast(Any, kind)) if f.init}
    hints = get_type_hints(kind)
    arguments: dict[str, Any] = {}
    if profile == "artifact":
        arguments.update({**kind.artifact.get("*", {}), **kind.artifact.get(model_type, {})})
        seed = ARTIFACT_SEED if seed is None else seed
    if "seed" in known and seed is not None:
        arguments["seed"] = seed
    for pair in filter(None, argument_text.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or key not in known:
            raise SightlineError(
                f"arm '{text}': '{pair}' is not an argument of {name}; it takes {', '.join(known) or 'none'}"
            )
        arguments[key] = _checked(_coerce(value, hints[key], key, text), key, kind, text)
    for key, field in known.items():
        if key not in arguments and _default(field) is MISSING:
            raise SightlineError(f"arm '{text}' needs {key}: write {name}:{key}={key.upper()}")
    try:
        selector = kind(**arguments)
    except (TypeError, ValueError) as error:
        raise SightlineError(f"arm '{text}': {error}") from None
    budget = _budget(budget_text, text, needed=selector.needs_budget)
    changed = [
        f"{key}={_print(getattr(selector, key))}" for key, f in known.items() if getattr(selector, key) != _default(f)
    ]
    parts = [name, *([str(budget)] if budget_text else []), *([",".join(changed)] if changed else [])]
    arm = Arm(selector, budget, ":".join(parts))
    return arm if intervention is None else arm.under(intervention)


def recorded_arm(text: str) -> Arm:
    """An arm from its canonical form, which says all that differs from the defaults: no other setting matters."""
    return parse_arm(text)


def parse_arms(
    texts: Sequence[str], *, seed: int | None = None, profile: str = "paper", model_type: str = ""
) -> list[Arm]:
    """All arms of a run, duplicates refused."""
    if not texts:
        raise SightlineError("no arms given; name at least one, for example --arm full --arm target:0.3")
    arms = [parse_arm(text, seed=seed, profile=profile, model_type=model_type) for text in texts]
    seen: set[str] = set()
    for arm in arms:
        if arm.text in seen:
            raise SightlineError(f"arm '{arm.text}' is given twice")
        seen.add(arm.text)
    return arms


def _checked(value: Any, name: str, kind: type[Selector] | type[LayerSelector], arm: str) -> Any:
    """An argument's value, if it is a number within the range that the method states; infinity and nan never are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    least, most = kind.ranges.get(name, (-math.inf, math.inf))
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise SightlineError(f"arm '{arm}': {name}={value} is not a usable number")
    if not least <= value <= most:
        bounds = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
        raise SightlineError(f"arm '{arm}': {name}={value}; it must be {bounds}")
    return value


def _budget(text: str, arm: str, *, needed: bool) -> Budget:
    if not text:
        if needed:
            raise SightlineError(
                f"arm '{arm}' has no budget; write for example {arm}:0.3 (kept fraction) or {arm}:192t"
            )
        return Budget.ratio(1.0)
    try:
        return Budget.tokens(int(text[:-1])) if text.endswith("t") else Budget.ratio(float(text))
    except ValueError as error:
        reason = (
            str(error) if "must be" in str(error) else f"'{text}' is neither a kept fraction nor a count such as 192t"
        )
        meant = ""
        if text.isdecimal() and int(text) > 1:
            share = f"{int(text) / 100:g} (that share of the tokens) or " if int(text) <= 100 else ""
            meant = f"; did you mean {share}{text}t (that many)?"
        raise SightlineError(f"arm '{arm}': {reason}{meant}") from None


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _coerce(value: str, hint: Any, name: str, arm: str) -> Any:
    """An argument's text as the type that the selector's field declares."""
    if get_origin(hint) in (Union, UnionType):
        if value.lower() == "none":
            return None
        hint = next(option for option in get_args(hint) if option is not type(None))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise SightlineError(f"arm '{arm}': {name}={value}; choose one of {', '.join(map(str, get_args(hint)))}")
        return value
    try:
        if hint is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[value.lower()]
        return hint(value) if hint in (int, float) else value
    except (KeyError, ValueError):
        raise SightlineError(f"arm '{arm}': {name}={value} is not a {hint.__name__}") from None


def _print(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def parameters(kind: Any) -> str:
    """A selector's arguments with their defaults, as they are written in an arm."""
    return ", ".join(
        f.name if _default(f) is MISSING else f"{f.name}={_print(_default(f))}" for f in fields(kind) if f.init
    )
