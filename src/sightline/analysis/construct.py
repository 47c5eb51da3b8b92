"""Does coverage measure what it should? Correlations with what interventions do, and at a fixed budget across arms."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from sightline.analysis.comparison import Record, by_model, clustered_means, interval_columns
from sightline.analysis.outcomes import COVERAGE, OUTCOMES, STRATA, samples, tertiles
from sightline.errors import SightlineError
from sightline.rows.scales import SCALES
from sightline.statistics.arm_rows import FloatArray, IntArray, looked_up, numbered, plain_rows
from sightline.statistics.bootstrap import DRAWS, SEED, count_blocks
from sightline.statistics.correlation import (
    FixedResiduals,
    conditional_residuals,
    correlation_shares,
    fixed_residual_intervals,
    pearson,
    ranks,
    spearman_intervals,
)
from sightline.statistics.intervals import UNLIMITED, Estimate, ImageShares, interval, percentile_interval

PREDICTORS = ("ecr", "lpp", "geo_f1")
CoverageForm = Literal["anchor", "lineage"]
COVERAGE_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "anchor": {name: "anchor_" + name for name in PREDICTORS},
    "lineage": {name: name for name in PREDICTORS},
}
"""By what merged tokens count -> predictor -> row column. Both are the same for what only deletes."""
CONDITIONED = (
    "model", "plain_arm", "arm", "selector", "role", "arguments", "budget", "label", "view", "intervention", "probe_id",
    "image_id", "margin", "correct", "merged", "lineage_mask", *COVERAGE,
)  # fmt: skip
"""Columns that the conditional audit reads."""
FLOOR = 1e-12


def controls(rows: pd.DataFrame) -> list[pd.Series]:
    """Log evidence area, log median cell area, Full margin: what may move coverage and margin alike."""
    return [
        np.log(rows["evidence_area"].clip(lower=FLOOR)),
        np.log(rows["median_cell_area"].clip(lower=FLOOR)),
        rows["full_margin"],
    ]


def construct_validity_table(
    frame: pd.DataFrame, scales: pd.DataFrame, *, draws: int = DRAWS, minimum: int = 5
) -> pd.DataFrame:
    """Marginal and partial Spearman (and Pearson) of ECR, LPP and Geo-F1 with every measured drop, positives only.

    ``scales`` comes from ``outcomes.probe_scales(run)``. The partial correlation controls for log evidence area, log
    median cell area and the Full margin; its bootstrap ranks and regresses anew in every draw.
    """
    return correlations(samples(frame, scales), draws=draws, minimum=minimum)


def correlations(joined: pd.DataFrame, *, draws: int = DRAWS, minimum: int = 5) -> pd.DataFrame:
    """The table of ``construct_validity_table`` from joined samples."""
    records: list[Record] = []
    for (model, arm), rows in joined.groupby(["model", "arm"], sort=False):
        found: list[Record] = []
        for outcomes, measured in _by_known_rows(rows, OUTCOMES, PREDICTORS):
            if len(measured) >= minimum:
                found += _correlated(measured, outcomes, draws)
        found.sort(key=lambda record: OUTCOMES.index(record["outcome"]))
        records += [{"model": model, "arm": arm, **record} for record in found]
    if not records:
        raise SightlineError(
            "no arm has both coverage and an intervention on enough positives; "
            "run again with --interventions deletion,occlusion"
        )
    return pd.DataFrame(records)


def _by_known_rows(
    rows: pd.DataFrame, columns: Sequence[str], needed: Sequence[str] = ()
) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """Columns that are known on the same rows, and those rows: what is drawn for one of them serves all."""
    groups: dict[bytes, list[str]] = {}
    for column in columns:
        known = rows[[column, *needed]].notna().all(axis=1).to_numpy()
        groups.setdefault(known.tobytes(), []).append(column)
    for names in groups.values():
        yield names, rows.dropna(subset=[*names, *needed])


def _correlated(rows: pd.DataFrame, outcomes: Sequence[str], draws: int) -> list[Record]:
    """Three records per outcome and predictor: Spearman, Pearson, partial Spearman."""

    def intervals(members: pd.DataFrame, held: Sequence[pd.Series]) -> dict[tuple[str, str], Estimate]:
        x, y = ({name: members[name].astype(float) for name in names} for names in (PREDICTORS, outcomes))
        return spearman_intervals(x, y, held, members["image_id"], draws=draws)

    known = rows.dropna(subset=["evidence_area", "median_cell_area", "full_margin"])
    held = controls(known)
    varying = sum(float(np.ptp(column)) > 0.0 for column in held) if len(known) else 0
    marginal = intervals(rows, ())
    partial = intervals(known, held) if len(known) > 4 else {}
    records: list[Record] = []
    for outcome in outcomes:
        for predictor in PREDICTORS:
            pair = {"outcome": outcome, "predictor": predictor}
            linear = pearson(rows[predictor].astype(float), rows[outcome].astype(float))
            kinds = [
                ("spearman", len(rows), 0, marginal[predictor, outcome]),
                ("pearson", len(rows), 0, Estimate(linear, math.nan, math.nan)),
            ]
            if partial:
                kinds.append(("partial_spearman", len(known), varying, partial[predictor, outcome]))
            records += [
                {**pair, "correlation": kind, "n": n, "controls": count, **interval_columns("estimate", estimate)}
                for kind, n, count, estimate in kinds
            ]
    return records


def scale_strata_table(frame: pd.DataFrame, scales: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """Coverage and drops by thirds of evidence area, cell area and their ratio."""
    return strata(samples(frame, scales), draws=draws)


def strata(joined: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """The table of ``scale_strata_table`` from joined samples."""
    records: list[Record] = []
    order = {metric: place for place, metric in enumerate((*PREDICTORS, *OUTCOMES))}
    for (model, arm), rows in joined.groupby(["model", "arm"], sort=False):
        for scale in SCALES:
            if not rows[scale].notna().any():
                continue
            third = tertiles(rows[scale])
            for stratum in STRATA:
                members = rows[third == stratum]
                found: list[Record] = []
                for metrics, known in _by_known_rows(members, list(order)):
                    if known.empty:
                        continue
                    limits = [(0.0, 1.0) if metric in PREDICTORS else UNLIMITED for metric in metrics]
                    values = known[metrics].to_numpy(dtype=np.float64)
                    means = clustered_means(values, known["image_id"], draws, limits)
                    found += [
                        {
                            "model": model, "arm": arm, "scale": scale, "stratum": stratum,
                            "from": float(members[scale].min()), "to": float(members[scale].max()),
                            "metric": metric, "n": len(known), **interval_columns("mean", mean),
                        }
                        for metric, mean in zip(metrics, means, strict=True)
                    ]  # fmt: skip
                records += sorted(found, key=lambda record: order[record["metric"]])
    if not records:
        raise SightlineError("no probe has regions and cells to be sorted by size")
    return pd.DataFrame(records)


def pooled_arms(rows: pd.DataFrame) -> list[str]:
    """The plain arms that a conditional audit pools unless others are named: no oracles, one seed of each drawn arm.

    An oracle covers what it was told to, and a second seed of Random counts the same method twice. Rows of the first
    release do not say their role; name the arms there.
    """
    first = rows.drop_duplicates("plain_arm")
    if "role" in first:
        first = first[first["role"] != "oracle"]
    seen: dict[tuple[str, str, str], str] = {}
    for _, row in first.iterrows():
        arguments = json.loads(row.get("arguments") or "{}")
        seeded = arguments.pop("seed", None) is not None
        others = json.dumps(arguments, sort_keys=True) if seeded else str(row["plain_arm"])
        seen.setdefault((str(row["selector"]), str(row["budget"]), others), str(row["plain_arm"]))
    return list(seen.values())


def conditional_table(
    frame: pd.DataFrame,
    scales: pd.DataFrame,
    *,
    arms: Sequence[str] | None = None,
    coverage: CoverageForm = "anchor",
    predictors: Sequence[str] = PREDICTORS,
    draws: int = DRAWS,
) -> pd.DataFrame:
    """At each budget that several arms share: does the arm that covers more of an image keep more of its margin?

    Outcome: the arm's margin minus Full's, on positives. Two specifications: measured controls with arm effects, and
    image with arm effects. Two scopes: all arms, and those that only delete. ``arms`` are the plain arms to pool,
    ``pooled_arms`` by default. ECR, LPP and Geo-F1 count merged tokens by their anchors, as the published figures did;
    ``coverage="lineage"`` counts everything that was merged into them.
    """
    if coverage not in COVERAGE_COLUMNS:
        raise SightlineError(f"coverage is counted by {' or '.join(COVERAGE_COLUMNS)}, not by '{coverage}'")
    plain = plain_rows(frame[[name for name in CONDITIONED if name in frame]])
    _refuse_unknown(arms or (), plain)
    columns = COVERAGE_COLUMNS[coverage]
    records: list[Record] = []
    for model, rows in by_model(plain):
        wanted = set(arms if arms is not None else pooled_arms(rows))
        rows = rows[rows["plain_arm"].isin(wanted) | (rows["selector"] == "full")]
        merging = _merging_arms(rows)
        measured = ["selected_margin", "full_margin", "evidence_area", "median_cell_area", *columns.values()]
        joined = samples(rows, scales, ["image_id", "arm", "budget", *measured])
        joined = joined.assign(arm=joined["arm"].astype("category"))
        joined = joined.dropna(subset=["full_margin", *columns.values(), "evidence_area"])
        for budget, every in joined.groupby("budget", sort=False):
            scopes = {"all": every}
            if (merges := every["arm"].isin(merging)).any():
                scopes["deletion_only"] = every[~merges]
            for scope, members in scopes.items():
                records += [
                    {"model": model, "budget": budget, "scope": scope, "coverage": coverage, **record}
                    for record in _conditional(members, {name: columns[name] for name in predictors}, draws)
                ]
    if not records:
        raise SightlineError(
            "no budget has two pruning arms and a Full arm on three or more images with regions; add arms at one budget"
        )
    return pd.DataFrame(records)


def _merging_arms(rows: pd.DataFrame) -> set[str]:
    """Arms that merge tokens: their rows say so, or have the mask of everything that was merged."""
    if "merged" in rows:
        merged = rows["merged"]
    elif "lineage_mask" in rows:
        merged = rows["lineage_mask"].notna()
    else:
        return set()
    return {str(arm) for arm in rows.loc[merged, "plain_arm"].unique()}


def _refuse_unknown(arms: Sequence[str], rows: pd.DataFrame) -> None:
    known = [str(arm) for arm in rows["plain_arm"].unique()]
    for arm in arms:
        if arm not in known:
            close = difflib.get_close_matches(arm, known, n=1)
            hint = f"did you mean '{close[0]}'?" if close else f"arms: {', '.join(known)}"
            raise SightlineError(f"the run has no arm '{arm}' to pool; {hint}")


def _conditional(rows: pd.DataFrame, predictors: Mapping[str, str], draws: int) -> list[Record]:
    """``predictors`` map a name to the column that holds it."""
    counts = rows.groupby("image_id")["arm"].nunique()
    arms = rows["arm"].nunique()
    rows = rows[rows["image_id"].isin(counts.index[counts == arms])].sort_values(["image_id", "arm"])
    if arms < 2 or rows["image_id"].nunique() < 3:
        return []
    change = rows["selected_margin"].astype(float) - rows["full_margin"].astype(float)
    (image, _), (arm, _) = numbered(rows["image_id"]), numbered(rows["arm"])
    keys, pairs = [], []
    for name, held in (("measured controls, arm effects", controls(rows)), ("image and arm effects", None)):
        for predictor, column in predictors.items():
            x = rows[column].astype(float)
            keys.append({"predictor": predictor, "specification": name})
            pairs.append(FixedResiduals.of(*conditional_residuals(x, change, image, arm, held), image))
    sizes = {"arms": arms, "images": rows["image_id"].nunique(), "n": len(rows)}
    estimates = fixed_residual_intervals(pairs, draws=draws)
    return [
        {**sizes, **key, **interval_columns("estimate", estimate)}
        for key, estimate in zip(keys, estimates, strict=True)
    ]


# Which measure of what was lost orders arms by what became of their answers, coverage or legibility?

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
