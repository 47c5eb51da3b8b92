"""The sentence that the lines of a card allow: the fastest pruned arm, and whether that may be chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from sightline.cost.presentation import Unit

Line = dict[Any, Any]
"""A record of a card with its bounds (``ms_low``, ``ms_high``) and stages (``vision_ms``)."""
CONDITIONS = ("model", "device", "dtype", "positions", "box_source", "execution", "batching")
"""What must agree before two lines of a card may be compared or drawn in one panel."""


class Say(Protocol):
    """Prints a value as the page does everywhere."""

    def __call__(self, value: Any, kind: Unit, /) -> str: ...


def is_full(arm: str) -> bool:
    """Whether an arm is the full prefix, as a card's ratios understand it."""
    return arm.split(":")[0] == "full"


def fastest_arm(lines: Sequence[Line], say: Say, before_selection: Sequence[str]) -> str:
    """The fastest pruned arm, said together with whether its samples stand apart from those of the full prefix."""
    pruned = [line for line in lines if not is_full(line["arm"])]
    known = [line for line in pruned if line.get("speedup", math.nan) > 0]
    if not pruned:
        return ""
    if not known:
        return "No full prefix was timed under the conditions of a pruned one: there is no speed-up to report."
    best = max(known, key=lambda line: float(line["speedup"]))
    if best["speedup"] <= 1.0:
        return "No pruned arm was faster than the full prefix under the same conditions."
    shared = (*CONDITIONS, "batch")
    full = next(line for line in lines if is_full(line["arm"]) and all(line[key] == best[key] for key in shared))
    share = best["kept_tokens"] / best["visual_tokens"]
    return (
        f"At best, {best['arm']} ({best['execution']}, batch {best['batch']}) is "
        f"{say(best['speedup'], 'ratio')} as fast as the full prefix, with {share:.0%} of the visual tokens"
        + _certainty(full, best)
        + _saved_early(full, best, before_selection)
    )


def _certainty(full: Line, best: Line) -> str:
    """How a ratio of two medians ends: it means little where the samples do not stand apart."""
    if 1 in (full["samples"], best["samples"]):
        return "; a single sample, whose spread is not known."
    return "." if best["ms_high"] < full["ms_low"] else "; the two spreads overlap, so that this may be chance."


def _saved_early(full: Line, best: Line, before_selection: Sequence[str]) -> str:
    """Says so when much of what was saved was saved before anything was selected: most likely noise, or a cache."""
    saved = full["ms"] - best["ms"]
    early = sum(full.get(f"{stage}_ms", 0.0) - best.get(f"{stage}_ms", 0.0) for stage in before_selection)
    if not early > 0.1 * saved:
        return ""
    return f" Of the {saved:.2f} ms saved, {early:.2f} lie before selection ({', '.join(before_selection)})."
