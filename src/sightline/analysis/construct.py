"""Does coverage measure what it should? Correlations with what interventions do, and at a fixed budget across arms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from sightline.analysis.comparison import Record, by_model, clustered_mean, interval_columns
from sightline.analysis.outcomes import OUTCOMES, SCALES, STRATA, samples, tertiles
from sightline.errors import SightlineError
from sightline.statistics.bootstrap import DRAWS
from sightline.statistics.correlation import conditional_spearman, pearson, spearman_interval
from sightline.statistics.plain_rows import plain_rows

PREDICTORS = ("ecr", "lpp", "geo_f1")
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
        for outcome in OUTCOMES:
            measured = rows.dropna(subset=[outcome, *PREDICTORS])
            if len(measured) < minimum:
                continue
            for predictor in PREDICTORS:
                records += [
                    {"model": model, "arm": arm, "outcome": outcome, "predictor": predictor, **record}
                    for record in _three(measured, predictor, outcome, draws)
                ]
    if not records:
        raise SightlineError(
            "no arm has both coverage and an intervention on enough positives; "
            "run again with --interventions deletion,occlusion"
        )
    return pd.DataFrame(records)


def _three(rows: pd.DataFrame, predictor: str, outcome: str, draws: int) -> list[Record]:
    x, y = rows[predictor].astype(float), rows[outcome].astype(float)
    marginal = spearman_interval(x, y, images=rows["image_id"], draws=draws)
    linear = pearson(x, y)
    records: list[Record] = [
        {"correlation": "spearman", "n": len(rows), "controls": 0, **interval_columns("estimate", marginal)},
        {
            "correlation": "pearson", "n": len(rows), "controls": 0,
            "estimate": linear, "estimate_low": math.nan, "estimate_high": math.nan,
        },
    ]  # fmt: skip
    known = rows.dropna(subset=["evidence_area", "median_cell_area", "full_margin"])
    if len(known) > 4:
        held = controls(known)
        varying = sum(float(np.ptp(column)) > 0.0 for column in held)
        partial = spearman_interval(
            known[predictor].astype(float), known[outcome].astype(float), held, known["image_id"], draws=draws
        )
        records.append(
            {
                "correlation": "partial_spearman",
                "n": len(known),
                "controls": varying,
                **interval_columns("estimate", partial),
            }
        )
    return records


def scale_strata_table(frame: pd.DataFrame, scales: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """Coverage and drops by thirds of evidence area, cell area and their ratio."""
    return strata(samples(frame, scales), draws=draws)


def strata(joined: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """The table of ``scale_strata_table`` from joined samples."""
    records: list[Record] = []
    for (model, arm), rows in joined.groupby(["model", "arm"], sort=False):
        for scale in SCALES:
            if not rows[scale].notna().any():
                continue
            third = tertiles(rows[scale])
            for stratum in STRATA:
                members = rows[third == stratum]
                for metric in (*PREDICTORS, *OUTCOMES):
                    values = members[["image_id", metric]].dropna()
                    if len(values):
                        mean = clustered_mean(values[metric].astype(float), values["image_id"], draws)
                        records.append(
                            {
                                "model": model, "arm": arm, "scale": scale, "stratum": stratum,
                                "from": float(members[scale].min()), "to": float(members[scale].max()),
                                "metric": metric, "n": len(values),
                                **interval_columns("mean", mean),
                            }
                        )  # fmt: skip
    if not records:
        raise SightlineError("no probe has regions and cells to be sorted by size")
    return pd.DataFrame(records)


def conditional_table(
    frame: pd.DataFrame,
    scales: pd.DataFrame,
    *,
    coverage: str = "ecr",
    predictors: Sequence[str] = PREDICTORS,
    draws: int = DRAWS,
) -> pd.DataFrame:
    """At each budget that several arms share: does the arm that covers more of an image keep more of its margin?

    Outcome: the arm's margin minus Full's, on positives. Two specifications: measured controls with arm effects, and
    image with arm effects. Two scopes: all arms, and those that only delete. ``coverage="anchor_ecr"`` counts merged
    tokens by their anchors alone, as the published figures did.
    """
    plain = plain_rows(frame)
    records: list[Record] = []
    for model, rows in by_model(plain):
        merging = set(rows.loc[rows["lineage_mask"].notna(), "arm"]) if "lineage_mask" in rows else set()
        joined = samples(rows, scales).assign(covered=lambda found: found[coverage])
        joined = joined.dropna(subset=["full_margin", "covered", "lpp", "geo_f1", "evidence_area"])
        for budget, every in joined.groupby("budget", sort=False):
            scopes = {"all": every, "deletion_only": every[~every["arm"].isin(merging)]}
            for scope, members in scopes.items():
                if scope == "deletion_only" and len(members) == len(every):
                    continue
                records += [
                    {"model": model, "budget": budget, "scope": scope, **record}
                    for record in _conditional(members, predictors, draws)
                ]
    if not records:
        raise SightlineError(
            "no budget has two pruning arms and a Full arm on three or more images with regions; add arms at one budget"
        )
    return pd.DataFrame(records)


def _conditional(rows: pd.DataFrame, predictors: Sequence[str], draws: int) -> list[Record]:
    counts = rows.groupby("image_id")["arm"].nunique()
    arms = rows["arm"].nunique()
    rows = rows[rows["image_id"].isin(counts.index[counts == arms])].sort_values(["image_id", "arm"])
    if arms < 2 or rows["image_id"].nunique() < 3:
        return []
    change = rows["selected_margin"].astype(float) - rows["full_margin"].astype(float)
    records: list[Record] = []
    for name, held in (("measured controls, arm effects", controls(rows)), ("image and arm effects", None)):
        for predictor in predictors:
            x = rows["covered" if predictor == "ecr" else predictor].astype(float)
            estimate = conditional_spearman(x, change, rows["image_id"], rows["arm"], held, draws=draws)
            records.append(
                {
                    "arms": arms, "images": rows["image_id"].nunique(), "n": len(rows), "predictor": predictor,
                    "specification": name, **interval_columns("estimate", estimate),
                }
            )  # fmt: skip
    return records
