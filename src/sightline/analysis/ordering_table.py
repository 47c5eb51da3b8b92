"""Which measure of what was lost orders arms by what became of their answers, coverage or legibility?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from sightline.analysis.comparison import Record
from sightline.errors import SightlineError
from sightline.statistics.arrays import FloatArray, IntArray
from sightline.statistics.bootstrap import DRAWS, SEED, count_blocks
from sightline.statistics.correlation import FixedResiduals, correlation_shares, ranks
from sightline.statistics.intervals import ImageShares, interval, percentile_interval
from sightline.statistics.keyed import looked_up, numbered

MEASURES = ("ecr", "legibility")
CHANGES = ("changed", "margin_change")
FEWEST_ARMS = 3


def answer_changes(frame: pd.DataFrame) -> pd.DataFrame:
    """The plain rows about regions of every arm but Full, beside what Full answered to the same probe.

    ``changed`` is 1 where the answer is another one, ``margin_change`` the distance between the margins (absent where
    rows have none). Rows whose legibility nobody knows are left out.
    """
    told = ("arm", "selector", "probe_id", "image_id", "predicted", "margin", "ecr", "legibility")
    frame = frame[[name for name in told if name in frame]]
    is_full = frame["selector"] == "full"
    full = frame[is_full].drop_duplicates("probe_id").set_index("probe_id")
    if full.empty:
        raise SightlineError("no full arm, so no answer can be said to have changed; amend the run with --arm full")
    measured = frame["legibility"].notna() if "legibility" in frame else frame["selector"].isna()
    chosen = ~is_full & measured & frame["ecr"].notna() & frame["probe_id"].isin(full.index)
    rows = frame.drop(columns="selector")[chosen]
    if rows.empty:
        raise SightlineError(
            "no pruned row with a region has a legibility: rows of earlier releases lack it, and so do those of an "
            "architecture that does not say how many pixels a token is made from"
        )
    changed = (rows["predicted"] != looked_up(rows["probe_id"], full["predicted"])).astype(float)
    rows = rows.drop(columns="predicted").assign(changed=changed)
    if "margin" in rows:
        change = (rows["margin"] - looked_up(rows["probe_id"], full["margin"])).abs()
        rows = rows.drop(columns="margin").assign(margin_change=change)
    return rows


def ordering_table(frame: pd.DataFrame, *, draws: int = DRAWS, seed: int = SEED) -> pd.DataFrame:
    """Rank correlation of coverage and of legibility with answer changes, over arms and over single answers.

    A measure that orders well has a rho near -1: the more is left, the less changes. ``advantage`` is coverage's rho
    minus legibility's in the same draws of images: positive where legibility orders better. Over arms, means over
    probes are ranked anew in each draw; over answers, ranks are those of the whole sample.
    """
    rows = answer_changes(frame)
    image, _ = numbered(rows["image_id"])
    arm = pd.factorize(rows["arm"])[0]
    images, arms = int(image.max()) + 1, int(arm.max()) + 1
    lines: list[tuple[Record, Correlations, list[ImageShares]]] = []
    for change in (name for name in CHANGES if name in rows):
        columns = [rows[name].to_numpy(dtype=np.float64) for name in (*MEASURES, change)]
        if arms >= FEWEST_ARMS:
            lines.append(({"over": "arms", "change": change, "n": arms}, _over_arms(columns, arm, image), []))
        lines.append(({"over": "answers", "change": change, "n": len(rows)}, *_over_answers(columns, image)))
    # One image cannot be resampled; otherwise all lines share the draws, of which few are held at once.
    drawn: list[list[FloatArray]] = [[] for _ in lines]
    for counts in count_blocks(images, draws, seed) if images > 1 else ():
        for (_, correlations, _), found in zip(lines, drawn, strict=True):
            found.append(correlations(counts))
    return pd.DataFrame(
        [
            record
            | _with_intervals(
                correlations(np.ones((1, images)))[:, 0],
                np.concatenate(found, axis=1) if found else np.full((2, 1), np.nan),
                shares,
            )
            for (record, correlations, shares), found in zip(lines, drawn, strict=True)
        ]
    )


Correlations = Callable[[FloatArray], FloatArray]
"""(d, m) counts of images -> (2, d) rho of coverage and of legibility with the change, in each draw."""


def _over_arms(columns: list[FloatArray], arm: IntArray, image: IntArray) -> Correlations:
    shape = (int(image.max()) + 1, int(arm.max()) + 1)
    place = image * shape[1] + arm
    totals = [np.bincount(place, column, shape[0] * shape[1]).reshape(shape) for column in columns]
    rows = np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)

    def correlations(counts: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore", divide="ignore"):
            means = [(counts @ total) / (counts @ rows) for total in totals]
        # Arms whose means differ in the last digits alone are tied.
        coverage, legibility, change = (_centred_ranks(np.round(mean, 12)) for mean in means)
        return np.stack([_correlation(coverage, change), _correlation(legibility, change)])

    return correlations


def _centred_ranks(values: FloatArray) -> FloatArray:
    """(d, A) ranks within each row around 0; NaN in a row that has one."""
    ranked = rankdata(values, axis=1, nan_policy="propagate")
    centred: FloatArray = ranked - ranked.mean(axis=1, keepdims=True)
    return centred


def _correlation(first: FloatArray, second: FloatArray) -> FloatArray:
    """(d, A) and (d, A) -> (d,); NaN where one does not vary."""
    spread = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 0.0, (first * second).sum(axis=1) / spread, np.nan)


def _over_answers(columns: list[FloatArray], image: IntArray) -> tuple[Correlations, list[ImageShares]]:
    *measures, change = (ranks(column) for column in columns)
    pairs = [FixedResiduals.of(measure, change, image) for measure in measures]

    def correlations(counts: FloatArray) -> FloatArray:
        return np.stack([pair.at(counts) for pair in pairs])

    return correlations, [correlation_shares(measure, change, image) for measure in measures]


def _with_intervals(values: FloatArray, draws: FloatArray, shares: Sequence[ImageShares]) -> Record:
    """(2,) and (2, d) as columns, with the difference between the two.

    Ranks of a few arms move in steps, so that no image has a share in their correlation (``shares`` is empty): its
    percentiles stand where resampling moves it at all.
    """
    record: Record = {}
    every = zip((*MEASURES, "advantage"), (*values, values[0] - values[1]), (*draws, draws[0] - draws[1]), strict=True)
    of_each = (*shares, shares[0].minus(shares[1])) if shares else (None,) * 3
    for (name, value, drawn), own in zip(every, of_each, strict=True):
        if own is not None and np.isfinite(drawn).any():
            found = interval(drawn, own)
            low, high = found.low, found.high
        else:
            low, high = percentile_interval(drawn)
            low, high = (low, high) if high > low else (math.nan, math.nan)
        record |= {name: float(value), f"{name}_low": low, f"{name}_high": high}
    return record
