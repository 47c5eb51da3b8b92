"""Does coverage measure what it should? Correlations with interventions, strata of scale, and arms at one budget."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from sightline.analysis.comparison import Record, by_model, clustered_means, interval_columns
from sightline.analysis.outcomes import COVERAGE, OUTCOMES, STRATA, samples, tertiles
from sightline.core.table import Table, TableColumn, format_value
from sightline.errors import SightlineError, refuse_unknown
from sightline.report.columns import build_table, collect, excludes_zero, has, signed, top
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker, any_run_has
from sightline.rows.images import SCALES
from sightline.rows.source import Audited, Source
from sightline.statistics.arm_rows import UNCHANGED, numbered, plain_rows
from sightline.statistics.bootstrap import DRAWS
from sightline.statistics.correlation import (
    FixedResiduals,
    conditional_residuals,
    fixed_residual_intervals,
    pearson,
    spearman_intervals,
)
from sightline.statistics.intervals import UNLIMITED, Estimate

PREDICTORS = ("ecr", "lpp", "geo_f1")
OUTCOME_WORDS = {
    "occlusion_drop": "evidence grayed",
    "occlusion_specific_drop": "evidence grayed, less another box",
    "deletion_drop": "evidence removed",
    "evidence_restoration_gain": "evidence restored",
    "restoration_specific_gain": "evidence restored, less random",
}
COVERAGE_WORDS = {"ecr": "ECR", "lpp": "LPP", "geo_f1": "Geo-F1"}
EDITS = ("remove_evidence", "occlude_evidence", "evidence_masked")


@SECTIONS.register("validity")
class Validity(SectionMaker):
    id = "validity"
    title = "Validity"
    order = 100
    lead = "Does coverage go with what the model does, and with what it loses when the evidence goes?"
    needs = (
        any_run_has(has("selector", "full")),
        any_run_has(has("intervention", *EDITS)),
        any_run_has(has("view", *EDITS)),
    )

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: association_table(context.source, context.draws))
        section.add(lambda: construct_table(context.source, context.draws))
        section.add(lambda: drop_strata_table(context.source, context.draws))


def _under_intervention(rows: pd.DataFrame) -> bool:
    return bool((rows["intervention"].isin(EDITS) | rows["view"].isin(EDITS)).any())


def _samples(audited: Audited) -> pd.DataFrame:
    """Positives of arms under an intervention; occlusion alone is measured on Full and holds for every pruning arm."""
    rows = audited.rows
    changed = set(audited.others.loc[audited.others["intervention"] != UNCHANGED, "arm_name"].unique())
    kept = rows[rows["arm"].isin(changed) | (rows["selector"] == "full")]
    return samples(kept, audited.scales)


FLOOR = 1e-12


def controls(rows: pd.DataFrame) -> list[pd.Series]:
    """Log evidence area, log median cell area, Full margin: what may move coverage and margin alike."""
    return [
        np.log(rows["evidence_area"].clip(lower=FLOOR)),
        np.log(rows["median_cell_area"].clip(lower=FLOOR)),
        rows["full_margin"],
    ]


FEWEST_POSITIVES = 5
"""With a measured drop: fewer are not correlated."""


def correlations(joined: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """Marginal and partial Spearman (and Pearson) of ECR, LPP and Geo-F1 with every measured drop, positives only.

    ``joined`` are ``outcomes.samples``. The partial correlation controls for log evidence area, log median cell area
    and the Full margin; its bootstrap ranks and regresses anew in every draw.
    """
    records: list[Record] = []
    for (model, arm), rows in joined.groupby(["model", "arm"], sort=False):
        found: list[Record] = []
        for outcomes, measured in _by_known_rows(rows, OUTCOMES, PREDICTORS):
            if len(measured) >= FEWEST_POSITIVES:
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


def construct_table(source: Source, draws: int) -> Table:
    """Marginal and partial Spearman of coverage with every measured drop, on the positives of every arm concerned."""
    keys = ["arm", "outcome", "predictor"]
    frame = collect(
        source,
        _under_intervention,
        lambda run: _side_by_side(correlations(_samples(run), draws=draws), keys, "correlation", "estimate"),
    )
    sentence = _construct_sentence(frame)
    frame["outcome"], frame["predictor"] = frame["outcome"].map(OUTCOME_WORDS), frame["predictor"].map(COVERAGE_WORDS)
    return build_table("construct_validity", frame, sentence=sentence, draws=f"{draws:,}")


def _side_by_side(found: pd.DataFrame, keys: list[str], by: str, value: str) -> pd.DataFrame:
    """One line per ``keys``; the ``value`` of each that ``by`` names in a column of its name, with its bounds."""
    lines = found.drop_duplicates(keys)[[*keys, "n"]].set_index(keys)
    for name, part in found.groupby(by, sort=False):
        values = part.set_index(keys)[[value, f"{value}_low", f"{value}_high"]]
        lines = lines.join(values.set_axis([str(name), f"{name}_low", f"{name}_high"], axis=1))
    return lines.reset_index()


def _construct_sentence(frame: pd.DataFrame) -> str:
    name = "partial_spearman" if "partial_spearman" in frame else "spearman"
    tested = frame[(frame["predictor"] == "ecr") & frame[f"{name}_low"].notna()]
    if tested.empty:
        return "Coverage or the drops do not vary enough to be correlated."
    apart = tested[
        [excludes_zero(low, high) for low, high in zip(tested[f"{name}_low"], tested[f"{name}_high"], strict=True)]
    ]
    what = name.replace("_", " ").replace("spearman", "Spearman")
    said = (
        f"The {what} of ECR with a margin drop excludes zero in {len(apart)} of {len(tested)} pairs of arm and outcome"
    )
    line = top(tested, tested[name].abs())
    return f"{said}; the strongest is {signed(line, name)}, {line['arm']}, {OUTCOME_WORDS[line['outcome']]}."


def strata(joined: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """Coverage and drops of joined samples by thirds of evidence area, cell area and their ratio."""
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


def drop_strata_table(source: Source, draws: int) -> Table:
    """Coverage and drops by thirds of evidence area, cell area and their ratio."""

    def make(run: Audited) -> pd.DataFrame:
        thirds = strata(_samples(run), draws=draws)
        varied = thirds[thirds["stratum"] != "constant"]
        return _side_by_side(varied if len(varied) else thirds, ["arm", "scale", "stratum"], "metric", "mean")

    frame = collect(source, _under_intervention, make)
    sentence = _strata_sentence(frame)
    frame["scale"] = frame["scale"].map(SCALES)
    measured = [outcome for outcome in OUTCOMES if outcome in frame]
    columns = [
        *(TableColumn(key, COVERAGE_WORDS[key], "score", interval=True) for key in ("ecr", "lpp")),
        *(TableColumn(key, OUTCOME_WORDS[key].capitalize(), "signed", interval=True) for key in measured),
    ]
    drawn = f"{draws:,}"
    return build_table("drop_strata", frame, columns={"measured": columns}, sentence=sentence, draws=drawn)


def _strata_sentence(frame: pd.DataFrame) -> str:
    scale = next((s for s in reversed(SCALES) if ((frame["scale"] == s) & (frame["stratum"] == "large")).any()), "")
    own = frame[(frame["scale"] == scale) & (frame["arm"] == frame["arm"].iloc[0])].set_index("stratum")
    if not {"small", "large"} <= set(own.index):
        return "Evidence and cells are all of one size here, so there is nothing to split by."

    def ends(key: str) -> str:
        return " and ".join(format_value(own.loc[third, key], "score") for third in ("small", "large"))

    return (
        f"From the smallest to the largest third by {SCALES[scale]}, ECR of {frame['arm'].iloc[0]} is "
        f"{ends('ecr')}, LPP {ends('lpp')}."
    )


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


def association_frame(
    frame: pd.DataFrame,
    scales: pd.DataFrame,
    *,
    arms: Sequence[str] | None = None,
    coverage: CoverageForm = "anchor",
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
    known = [str(arm) for arm in plain["plain_arm"].unique()]
    for arm in arms or ():
        refuse_unknown(arm, known, f"the run has no arm '{arm}' to pool", "arms:")
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
                    for record in _conditional(members, columns, draws)
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


def association_table(source: Source, draws: int) -> Table:
    """At each budget that several arms share: does the arm that covers more of an image keep more of its margin?"""

    def wanted(rows: pd.DataFrame) -> bool:
        told = ["selector", "plain_arm", "role", "arguments", "budget", "label", "ecr", "arm", "image_id"]
        rows = rows[[name for name in told if name in rows]]
        pooled = (rows["selector"] != "full") & rows["plain_arm"].isin(pooled_arms(rows))
        pruned = rows[pooled & (rows["label"] == "yes") & rows["ecr"].notna()]
        several = (pruned.groupby("budget")["arm"].nunique() > 1).any()
        return bool((rows["selector"] == "full").any() and several and pruned["image_id"].nunique() > 2)

    def make(run: Audited) -> pd.DataFrame:
        frame = run.frame.assign(arm=run.frame["arm_name"])
        found = association_frame(frame, run.scales, draws=draws)
        if frame["merged"].any():
            by_lineage = association_frame(frame, run.scales, coverage="lineage", draws=draws)
            # What only deletes has one coverage, whichever way merged tokens count.
            found = pd.concat([found, by_lineage[by_lineage["scope"] == "all"]], ignore_index=True)
        return found.assign(arm=found["budget"])

    frame = collect(source, wanted, make)
    frame["predictor"] = frame["predictor"].map(COVERAGE_WORDS)
    frame["scope"] = frame["scope"].map({"all": "all", "deletion_only": "without merging"})
    frame = frame.drop(columns="budget").rename(columns={"arm": "budget", "estimate": "r"})
    frame = frame.rename(columns={"estimate_low": "r_low", "estimate_high": "r_high"})
    line = frame[(frame["predictor"] == "ECR") & frame["specification"].str.startswith("image")].iloc[0]
    sentence = (
        f"At budget {line['budget']}, with image and arm held fixed, ECR and the margin change from Full have "
        f"r = {signed(line, 'r')}."
        if math.isfinite(line["r"])
        else f"At budget {line['budget']} coverage does not vary once image and arm are held fixed."
    )
    return build_table("association", frame, sentence=sentence)
