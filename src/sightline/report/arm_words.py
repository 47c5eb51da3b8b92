"""Arms and shares as sentences spell them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sightline.core.selection import PER_TILE


def family(arm_name: str) -> str:
    """An arm without its budget: ``scope:0.4:alpha=0`` and ``scope:0.3:alpha=0`` are both ``scope:alpha=0``.

    What a budget is counted over is no matter of size and stays: ``scope:0.4/tile`` is ``scope/tile``.
    """
    name, *rest = arm_name.split(":")
    budget = re.fullmatch(rf"[\d.eE+-]+t?({PER_TILE})?", rest[0]) if rest else None
    return ":".join([name, *rest] if budget is None else [name + (budget[1] or ""), *rest[1:]])


def listed(names: Sequence[str], most: int) -> str:
    """``a, b and c``, or ``a, b, c and 4 others`` where there are more than ``most``."""
    shown = list(names[:most]) if len(names) > most + 1 else list(names)
    if len(shown) < len(names):
        shown.append(f"{len(names) - len(shown)} others")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def share(value: float) -> str:
    """A percentage without decimals; what is not quite nothing or everything does not read as such."""
    if 0 < value < 0.005:
        return "<1%"
    return ">99%" if 0.995 < value < 1 else f"{100 * value:.0f}%"
