"""Classes written for the first release, which asked for methods of certain names and for no base class."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from sightline.core.selection import Budget, LayerSelector, Selector
from sightline.errors import SightlineError

NEW_WORDS = frozenset(
    {
        "artifact",
        "batches",
        "check_probes",
        "count",
        "inside",
        "merges_vision",
        "needs_budget",
        "official_ms",
        "ranges",
        "resizes",
        "role",
    }
)
"""Names that mean something since methods have a base class; an argument called so would be taken for that."""


def adopted(kind: type[Any]) -> type[Selector] | type[LayerSelector]:
    """The class itself, or a subclass of it that is a method too and claims nothing its author has not said.

    Whether such a class merges or reads boxes is unknown (None) unless it has an attribute of that name.
    """
    if issubclass(kind, Selector | LayerSelector):
        return kind
    body: dict[str, Any] = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    body |= {trait: None for trait in ("merges", "reads_boxes") if not hasattr(kind, trait)}
    if is_dataclass(kind):
        clash = sorted(NEW_WORDS & {field.name for field in fields(kind)})
        if clash:
            raise SightlineError(f"argument '{clash[0]}' of {kind.__qualname__} means something else now; rename it")
        # A field without default has no class attribute: a property of the base would stand in its way.
        body |= {field.name: None for field in fields(kind) if not hasattr(kind, field.name)}
    if callable(getattr(kind, "budget", None)) and not hasattr(kind, "count"):
        body["count"] = _count_of_the_first_release
    base: type[Selector] | type[LayerSelector] = LayerSelector if hasattr(kind, "cut") else Selector
    return type(kind.__name__, (kind, base), body)


def _count_of_the_first_release(method: Any, probe_id: str, n: int, budget: Budget) -> int:
    """What was ``budget(probe_id, n)``, for methods that know their own count."""
    return int(method.budget(probe_id, n))
