"""Who takes part: every registered method and control at every budget, and why some cannot on a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sightline.arms.arm import Arm, parse_arm
from sightline.arms.plan import MATCHED
from sightline.backbones.served import Served
from sightline.core.selection import Budget, Role
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS

FULL, RANDOM = "full", "random"
"""The reference of all, and the control that every gain is counted from."""
COMPARED: tuple[Role, ...] = ("method", "control")
"""Roles that take part; oracles and replays are diagnostics of something else."""


@dataclass(frozen=True)
class Entry:
    """A method at a budget."""

    method: str
    """As it was named, without its budget: ``scope`` or ``scope:alpha=0``."""
    budget: str
    """Empty for Full."""
    arm: str
    """What its rows are called."""


@dataclass(frozen=True)
class Refusal:
    """A method that does not take part on a model."""

    method: str
    budget: str
    """Empty where it holds for every budget."""
    reason: str


@dataclass(frozen=True)
class Lineup:
    """The entries of one model, Full first, and the methods that it cannot serve."""

    entries: tuple[Entry, ...]
    refusals: tuple[Refusal, ...]


def chosen_methods(given: Sequence[str]) -> list[str]:
    """Those named, which must exist; without any, every registered method and control, other packages' included."""
    for method in given:
        SELECTORS.get(method.partition(":")[0])
    return list(given) or [name for name, kind in SELECTORS.items() if kind.role in COMPARED]


def lineup(checkpoint: Path, methods: Sequence[str], budgets: Sequence[str], *, clip: bool) -> Lineup:
    """What ``config.json`` says that the checkpoint can serve; Random and Grid are there at every budget."""
    served = Served.by_description(checkpoint)
    entries, refusals = [Entry(FULL, "", FULL)], []
    for method in dict.fromkeys([*MATCHED, *methods]):
        reasons: dict[str, str] = {}
        for budget in budgets:
            try:
                arm = _arm(method, budget)
                served.refuse(arm.selector, clip=clip)
            except SightlineError as error:
                reasons[budget] = str(error)
            else:
                entries.append(Entry(method, budget, arm.text))
        refusals += said_once(method, reasons, len(budgets))
    return Lineup(tuple(entries), tuple(refusals))


def said_once(method: str, reasons: Mapping[str, str], budgets: int) -> list[Refusal]:
    """Refusals by budget, or a single one where all ``budgets`` of a method share the reason."""
    if len(reasons) == budgets and len(set(reasons.values())) == 1:
        return [Refusal(method, "", next(iter(reasons.values())))]
    return [Refusal(method, budget, reason) for budget, reason in reasons.items()]


def _arm(method: str, budget: str) -> Arm:
    """The method at a budget; refused where it takes none, or cannot be made without further arguments."""
    name, _, arguments = method.partition(":")
    kind = SELECTORS.get(name)
    if kind.role not in COMPARED:
        raise SightlineError(f"{name} is {_article(kind.role)}, which is not ranked; leave it out")
    if not kind.needs_budget:
        raise SightlineError(f"{name} chooses its own budget, so that it has no place beside others at one")
    return parse_arm(":".join(filter(None, (name, budget, arguments))))


def _article(role: Role) -> str:
    return f"an {role}" if role[0] in "aeiou" else f"a {role}"


def read_budgets(given: Sequence[str]) -> list[str]:
    """``0.1,0.3`` and repeated options alike, as arms spell them, ascending; each once."""
    budgets = {}
    for text in (part.strip() for item in given for part in item.split(",") if part.strip()):
        budget: Budget = parse_arm(f"{RANDOM}:{text}").budget
        if budget.keep == 1.0:
            raise SightlineError(f"--budgets {text} keeps everything, which Full does already; name smaller ones")
        budgets[str(budget)] = (budget.count or 0, budget.keep or 0.0)
    if not budgets:
        raise SightlineError("--budgets names none; write for example --budgets 0.1,0.3,0.5")
    return sorted(budgets, key=lambda text: budgets[text])
