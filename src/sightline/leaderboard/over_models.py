"""All models together: a method's ranks side by side, their mean, and what it gains over chance on average."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from sightline.leaderboard.lineup import RANDOM
from sightline.leaderboard.standings import Line, Standings, number
from sightline.statistics.arrays import FloatArray
from sightline.statistics.intervals import ImageShares, interval


def overview(models: Mapping[str, Standings]) -> list[Line]:
    """One line per method, best mean rank first among those that were ranked equally often.

    A *cell* is a model at a budget. ``ranks`` are by model and budget, ``mean_rank`` is over the cells in which the
    method has one, ``cells`` says how many these are: means over different cells do not compare, so ``place`` counts
    within a panel among methods with the same number. ``gain`` is the mean difference to Random over its cells.
    """
    found = [_line(method, models) for method in dict.fromkeys(line["method"] for _, _, line in _all(models))]
    found.sort(key=lambda line: (line["panel"], -line["cells"], line["mean_rank"] or 0.0, line["method"]))
    for line in found:
        alike = [other for other in found if (other["panel"], other["cells"]) == (line["panel"], line["cells"])]
        line["place"] = 1 + sum((other["mean_rank"] or 0.0) < (line["mean_rank"] or 0.0) for other in alike)
    return found


def _all(models: Mapping[str, Standings]) -> Iterator[tuple[str, str, Line]]:
    """(model, budget, line) of every cell."""
    for model, standings in models.items():
        for budget, lines in standings.by_budget.items():
            yield from ((model, budget, line) for line in lines)


def _line(method: str, models: Mapping[str, Standings]) -> Line:
    own = [(model, budget, line) for model, budget, line in _all(models) if line["method"] == method]
    ranked = [(model, budget, line) for model, budget, line in own if line["rank"] is not None]
    gains = [line["gain"] for _, _, line in ranked if line["gain"] is not None]
    low, high = _interval([(models[model], budget, line["arm"]) for model, budget, line in ranked])
    first = own[0][2]
    return {
        "method": method,
        "role": first["role"],
        "panel": first["panel"],
        "cells": len(ranked),
        "mean_rank": number(np.mean([line["rank"] for _, _, line in ranked])) if ranked else None,
        "gain": number(np.mean(gains)) if gains else None,
        "gain_low": low,
        "gain_high": high,
        "ranks": [{"model": model, "budget": budget, "rank": line["rank"]} for model, budget, line in ranked],
    }


def _interval(cells: list[tuple[Standings, str, str]]) -> tuple[float | None, float | None]:
    """Of the mean gain: each draw resamples the images once for all cells. None where models saw different images."""
    if not cells or len({standings.images for standings, _, _ in cells}) > 1:
        return None, None
    gains: list[FloatArray] = []
    shares: list[ImageShares] = []
    for standings, budget, arm in cells:
        chance = next(line["arm"] for line in standings.by_budget[budget] if line["method"] == RANDOM)
        if arm == chance:
            return None, None  # 0 by construction
        mine, theirs = standings.drawn[arm], standings.drawn[chance]
        gains.append(mine.draws - theirs.draws)
        shares.append(mine.shares.minus(theirs.shares))
    found = interval(np.mean(gains, axis=0), ImageShares.mean(shares))
    return number(found.low), number(found.high)
