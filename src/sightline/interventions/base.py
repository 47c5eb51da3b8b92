"""What an intervention is: the same selector with the same salt, and one thing changed on purpose.

An arm carries at most one, behind a plus: ``target:0.3+remove_evidence``, ``full+occlude_evidence``. Everything else of
the arm stays, so that its rows pair with those of the plain arm probe by probe.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.core.probe import ORIGINAL, Probe
from sightline.core.registry import Registry
from sightline.core.selection import PositionPolicy
from sightline.errors import SightlineError, refuse_unknown

if TYPE_CHECKING:
    from torch import Tensor

INTERVENTIONS: Registry[type[Intervention]] = Registry(
    "intervention", group="sightline.interventions", package="sightline.interventions"
)
"""By the name behind the plus. ``@INTERVENTIONS.register("name")`` above a class is all that a new one needs."""

_SUFFIX = re.compile(r"^(.+)\+([A-Za-z_]\w*(?:=[^+,:]*)?)$")


@dataclass(frozen=True)
class Intervention:
    """Changes the mask, the image or the positions; override what it changes.

    A field without default is what stands behind the equals sign: ``restore_evidence=0.5``.
    """

    name: ClassVar[str]
    family: ClassVar[str]
    """``--interventions FAMILY`` adds it to every arm it applies to."""
    view: ClassVar[str] = ORIGINAL
    """The image that the arm looks at. Another name than ``orig`` is encoded apart and marks the rows."""
    on_mask: ClassVar[bool] = False
    """Whether it changes the set of kept tokens: nothing that merges, or prunes between layers, has one to change."""
    needs_regions: ClassVar[bool] = False

    @classmethod
    def usual(cls) -> tuple[Intervention, ...]:
        """Those that the family stands for: one, or one per value of its argument."""
        return (cls(),)

    def __str__(self) -> str:
        values = [getattr(self, field.name) for field in fields(self)]
        return "=".join([self.name, *map(str, values)])

    def kept(self, anchors: Tensor, cells: Tensor, probe: Probe) -> Tensor:
        """(K,) kept tokens, ascending, and (N, 4) cells -> the kept tokens instead, ascending; both on the CPU."""
        return anchors

    def seen(self, probe: Probe) -> Probe:
        """The probe about the changed image."""
        return probe

    def positions(self, usual: PositionPolicy) -> PositionPolicy:
        return usual


def parse_intervention(text: str) -> Intervention:
    """``NAME`` or ``NAME=VALUE``."""
    name, equals, value = text.strip().partition("=")
    refuse_unknown(name, INTERVENTIONS.names(), f"'{text}' is not an intervention on an arm", "choose one of")
    kind: Any = INTERVENTIONS.get(name)
    if bool(equals) != bool(fields(kind)):
        example = kind.usual()[-1]
        raise SightlineError(f"'{text}' is not an intervention on an arm; write {example}")
    return kind(value) if equals else kind()  # type: ignore[no-any-return]


def split_arm(text: str) -> tuple[str, Intervention | None]:
    """The plain arm and its intervention, from ``ARM`` or ``ARM+INTERVENTION``; a plus within arguments is left."""
    found = _SUFFIX.match(text.strip())
    if found is None:
        return text, None
    plain, suffix = found.groups()
    if suffix.partition("=")[0] not in INTERVENTIONS and "=" in plain:
        return text, None
    return plain, parse_intervention(suffix)


def families() -> dict[str, tuple[Intervention, ...]]:
    """What ``--interventions FAMILY`` adds, by family, in the order in which a table shows them."""
    members: dict[str, list[type[Intervention]]] = {}
    for _, kind in INTERVENTIONS.items():
        members.setdefault(kind.family, []).append(kind)
    found = {}
    for family, kinds in members.items():
        each = [kind.usual() for kind in kinds]
        single = [one for usual in each if len(usual) == 1 for one in usual]
        # Value by value: 25 % of this, 25 % of that, 50 % of this, ...
        several = zip(*(usual for usual in each if len(usual) > 1), strict=True)
        found[family] = (*single, *(one for step in several for one in step))
    return found
