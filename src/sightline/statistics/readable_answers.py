"""Whether anything about pruning can be read from a model's answers here: one rule for every verdict.

A model that guesses loses nothing when tokens are pruned, and one that answers nothing right has nothing to lose: "as
good as Full" then means nothing. Whoever calls an arm as good or worse asks here first.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from sightline.statistics.bootstrap import DRAWS, SEED
from sightline.statistics.intervals import FEW_DIFFER
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_summary

LEAST_N = 50
"""A verdict over fewer probes than this is refused: an interval of so few depends on a handful of them."""
LEAST_IMAGES = FEW_DIFFER
"""On fewer images than this resamples are too much alike for any interval."""
CHANCE = 0.5
"""Balanced accuracy of whoever answers yes or no without looking."""
NEXT_TO_NOTHING = 0.05
"""Mean score, or share of right answers that are not yes or no, that a model must surely exceed."""
NOTHING = "nothing about pruning can be read from its answers"
DECIDED_BY = ("score", "balanced_accuracy", "accuracy", "yes_rate")
"""Metrics that ``nothing_in`` looks at."""


def nothing_to_read(
    frame: pd.DataFrame, *, least_images: int = LEAST_IMAGES, draws: int = DRAWS, seed: int = SEED
) -> str:
    """Why nothing can be read from the answers of a run, in a clause with its numbers; "" where something can.

    ``frame`` holds the plain rows of all arms.
    """
    full = frame[frame["selector"] == "full"]
    arms = arm_summary(full if len(full) else frame, metrics=DECIDED_BY, draws=draws, seed=seed)
    selectors = frame[["arm", "selector"]].drop_duplicates("arm").astype(str).set_index("arm")["selector"]
    return nothing_in(arms.assign(selector=arms["arm"].map(selectors)), least_images=least_images)


def nothing_in(arms: pd.DataFrame, *, least_images: int = LEAST_IMAGES) -> str:
    """The same from lines of ``arm_summary`` that have ``selector`` beside the metrics of ``DECIDED_BY``.

    Full speaks for the model, or in a run without Full the arm that answers best: if that one guesses, so do all.
    """
    full = arms[arms["selector"] == "full"]
    best = max((line for _, line in (full if len(full) else arms).iterrows()), key=_goodness)
    images = int(best["n_images"])
    if images < least_images:
        return f"{images} image{'s are' if images != 1 else ' is'} fewer than {least_images}: {NOTHING}"
    name, floor = _measure(best)
    value, low, high = (best[f"{name}{end}"] for end in ("", "_low", "_high"))
    if not math.isfinite(value) or low > floor:
        return ""
    called = "Full" if len(full) else f"{best['arm']}, the best arm of a run without Full,"
    numbers = f"{METRICS[name].label} of {called} is {value:.3f} ({low:.3f} to {high:.3f})"
    if floor == CHANCE:
        return f"the model answers {'below' if high < floor else 'at'} chance: {NOTHING}; {numbers}"
    return f"the model answers next to nothing right: {NOTHING}; {numbers}, not surely above {floor:g}"


def _measure(line: pd.Series[Any]) -> tuple[str, float]:
    """The metric that tells whether a model answers at all, and what it has to exceed."""
    if math.isfinite(line.get("score", math.nan)):
        return "score", NEXT_TO_NOTHING
    if math.isfinite(line["balanced_accuracy"]):
        return "balanced_accuracy", CHANCE
    return "accuracy", CHANCE if math.isfinite(line["yes_rate"]) else NEXT_TO_NOTHING


def _goodness(line: pd.Series[Any]) -> float:
    value = float(line[_measure(line)[0]])
    return value if math.isfinite(value) else -math.inf
