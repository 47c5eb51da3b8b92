"""Does coverage measure what it should: correlations, strata, arms at one budget, and what orders answer changes."""

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata, spearmanr

from sightline.analysis.outcomes import OUTCOMES, samples
from sightline.report.sections.geometry import answer_changes, ordering_frame
from sightline.report.sections.validity import PREDICTORS, association_frame, correlations, pooled_arms, strata
from sightline.rows.images import probe_scales
from sightline.rows.run import load_run
from sightline.statistics.correlation import spearman_intervals
from tests.refusals import Refused
from tests.runs.yes_no import make_run

DRAWS = 200
IMAGES = 30
FOUR = ["target:0.3", "random:0.3", "grid:0.3", "visionzip:0.3"]


ROLES = {"full": "reference", "random": "control", "grid": "control", "evidence_only": "oracle"}


def rows_of(arm: str, rng: np.random.Generator) -> pd.DataFrame:
    """One positive per image under one arm; VisionZip merges, so that its lineage covers everything."""
    selector, _, rest = arm.partition(":")
    seed = arm.partition("seed=")[2] or "17"
    covered, precise = rng.random(IMAGES), rng.random(IMAGES)
    merges = selector == "visionzip"
    own = {"anchor_ecr": covered, "anchor_lpp": precise, "anchor_geo_f1": 2 * covered * precise / (covered + precise)}
    lineage = {"ecr": np.ones(IMAGES), "lpp": np.full(IMAGES, 0.2), "geo_f1": np.full(IMAGES, 1 / 3)}
    return pd.DataFrame(
        {
            "model": "m", "arm": arm, "plain_arm": arm, "selector": selector, "role": ROLES.get(selector, "method"),
            "arguments": f'{{"seed": {seed}}}' if selector == "random" else "{}",
            "budget": rest.partition(":")[0] or "1.0",
            "intervention": "none", "view": "orig", "label": "yes", "correct": True,
            "probe_id": [f"p{i}" for i in range(IMAGES)], "image_id": [f"i{i}" for i in range(IMAGES)],
            "margin": rng.normal(size=IMAGES) + covered, **own,
            **(lineage if merges else {name.removeprefix("anchor_"): values for name, values in own.items()}),
            "lineage_mask": [b"all" if merges else None] * IMAGES,
        }
    )  # fmt: skip


@pytest.fixture
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    arms = ("full", "target:0.3", "random:0.3", "random:0.3:seed=101", *FOUR[2:], "evidence_only:0.3", "target:0.5")
    return pd.concat([rows_of(arm, rng) for arm in arms], ignore_index=True)


@pytest.fixture
def scales() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    sizes = {name: rng.random(IMAGES) for name in ("evidence_area", "median_cell_area", "box_cell_ratio")}
    return pd.DataFrame(sizes, index=pd.Index([f"p{i}" for i in range(IMAGES)], name="probe_id"))


def by_hand(rows: pd.DataFrame, scales: pd.DataFrame, arms: list[str], column: str) -> float:
    """Measured controls and arm indicators, spelled out with least squares."""
    full = rows[rows["arm"] == "full"].set_index("probe_id")["margin"]
    chosen = rows[rows["arm"].isin(arms)]
    held = [np.log(chosen["probe_id"].map(scales[name])) for name in ("evidence_area", "median_cell_area")]
    before = chosen["probe_id"].map(full)
    dummies = [(chosen["arm"] == arm).to_numpy(dtype=float) for arm in arms[1:]]
    design = np.column_stack([np.ones(len(chosen)), *(rankdata(column) for column in (*held, before)), *dummies])
    left, right = (
        rankdata(values) - design @ np.linalg.lstsq(design, rankdata(values), rcond=None)[0]
        for values in (chosen[column], chosen["margin"] - before)
    )
    return float(np.corrcoef(left, right)[0, 1])


def estimate(found: pd.DataFrame, predictor: str = "ecr", scope: str = "all") -> Any:
    lines = found[
        (found["predictor"] == predictor)
        & (found["scope"] == scope)
        & found["specification"].str.startswith("measured")
        & (found["budget"] == "0.3")
    ]
    assert len(lines) == 1
    return lines.iloc[0]


def test_oracles_and_further_seeds_are_left_out_unless_they_are_chosen(
    rows: pd.DataFrame, scales: pd.DataFrame, refused: Refused
) -> None:
    assert pooled_arms(rows) == ["full", *FOUR, "target:0.5"]
    found = association_frame(rows, scales, draws=DRAWS)
    assert set(found["budget"]) == {"0.3"}, "one arm alone has nobody to be compared with"
    assert estimate(found)["arms"] == 4
    assert estimate(found)["estimate"] == pytest.approx(by_hand(rows, scales, FOUR, "anchor_ecr"), abs=1e-12)
    chosen = ["target:0.3", "random:0.3:seed=101", "evidence_only:0.3"]
    found = association_frame(rows, scales, arms=chosen, draws=DRAWS)
    assert estimate(found)["arms"] == 3
    assert estimate(found)["estimate"] == pytest.approx(by_hand(rows, scales, chosen, "anchor_ecr"), abs=1e-12)
    refused("3' to pool; did you mean 'target:0", association_frame, rows, scales, arms=["targt:0.3"], draws=DRAWS)


def test_merged_tokens_count_by_anchor_or_by_lineage(
    rows: pd.DataFrame, scales: pd.DataFrame, refused: Refused
) -> None:
    anchor = association_frame(rows, scales, draws=DRAWS)
    lineage = association_frame(rows, scales, coverage="lineage", draws=DRAWS)
    for predictor in PREDICTORS:
        for found, column in ((anchor, f"anchor_{predictor}"), (lineage, predictor)):
            assert estimate(found, predictor)["estimate"] == pytest.approx(
                by_hand(rows, scales, FOUR, column), abs=1e-12
            )
            deletion = estimate(found, predictor, "deletion_only")
            assert deletion["arms"] == 3
            assert deletion["estimate"] == pytest.approx(by_hand(rows, scales, FOUR[:3], column), abs=1e-12)
        assert estimate(anchor, predictor)["estimate"] != pytest.approx(
            estimate(lineage, predictor)["estimate"], abs=1e-3
        )
    refused("counted by anchor or lineage", association_frame, rows, scales, coverage=cast(Any, "cells"), draws=DRAWS)


@pytest.mark.usefixtures("plain_percentiles")
def test_correlations_and_strata_made_together_are_those_made_one_by_one(scales: pd.DataFrame) -> None:
    # Occlusion on the first half alone, as a run has it that occluded some of its probes.
    rng = np.random.default_rng(2)
    columns = {name: rng.normal(size=IMAGES) for name in (*PREDICTORS, *OUTCOMES, "full_margin")}
    joined = pd.DataFrame({"model": "m", "arm": "target:0.3", "image_id": [f"i{i}" for i in range(IMAGES)], **columns})
    joined.loc[IMAGES // 2 :, ["occlusion_drop", "occlusion_specific_drop"]] = math.nan
    joined = joined.join(scales.reset_index(drop=True))
    found = correlations(joined, draws=DRAWS)
    assert list(found["outcome"].unique()) == list(OUTCOMES)
    for _, line in found[found["correlation"] != "pearson"].iterrows():
        rows = joined.dropna(subset=[line["outcome"]])
        partial = line["correlation"] == "partial_spearman"
        held = [np.log(rows["evidence_area"]), np.log(rows["median_cell_area"]), rows["full_margin"]] if partial else []
        x, y = ({name: rows[name]} for name in (line["predictor"], line["outcome"]))
        (alone,) = spearman_intervals(x, y, held, rows["image_id"], draws=DRAWS).values()
        assert line["n"] == len(rows)
        assert (line["estimate"], line["estimate_low"], line["estimate_high"]) == pytest.approx(
            (alone.value, alone.low, alone.high), abs=1e-12
        )
    assert len(found) == 3 * len(OUTCOMES) * len(PREDICTORS)
    found = strata(joined, draws=DRAWS)
    for _, line in found.iterrows():
        inside = joined[line["scale"]].between(line["from"], line["to"])
        values = joined.loc[inside, line["metric"]].dropna()
        assert line["n"] == len(values)
        assert line["mean"] == pytest.approx(values.mean())
        assert line["mean_low"] < line["mean"] < line["mean_high"]
    assert list(found["metric"].unique()) == [*PREDICTORS, *OUTCOMES]


LOSSES = {"resize:0.4": (1.0, 6.0), "resize:0.25": (1.0, 3.0), "grid:0.5": (0.6, 9.0), "grid:0.3": (0.4, 8.0)}
"""Arm -> coverage and legibility; answers change with what is illegible."""


def frame(images: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    difficulty = rng.permutation(np.linspace(-2.5, 2.5, images))
    parts = []
    for arm, (ecr, legible) in {"full": (1.0, 12.0), **LOSSES}.items():
        margin = 2.6 - difficulty - 0.4 * (12.0 - legible)
        parts.append(
            pd.DataFrame(
                {
                    "arm": arm, "selector": arm.partition(":")[0], "probe_id": [f"p{i}" for i in range(images)],
                    "image_id": [f"im{i // 2}" for i in range(images)], "label": "yes", "margin": margin,
                    "predicted": np.where(margin >= 0, "yes", "no"),
                    "ecr": np.clip(ecr + 0.02 * rng.normal(size=images), 0, 1),
                    "legibility": legible + 0.1 * rng.normal(size=images),
                }
            )
        )  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def line(table: pd.DataFrame, over: str, change: str) -> pd.Series:
    return table[(table["over"] == over) & (table["change"] == change)].iloc[0]


def test_the_measure_that_the_answers_follow_orders_arms_and_answers() -> None:
    rows = frame()
    table = ordering_frame(rows, draws=DRAWS)
    arms = line(table, "arms", "changed")
    assert arms["n"] == len(LOSSES)
    assert arms["legibility"] == pytest.approx(-1.0)
    assert arms["ecr"] > 0.0, "shrunken pages cover most and change most"
    assert arms["advantage"] == pytest.approx(arms["ecr"] - arms["legibility"])
    assert arms["advantage_low"] > 0.0
    changes = answer_changes(rows)
    assert len(changes) == len(LOSSES) * 40
    for measure in ("ecr", "legibility"):
        for change in ("changed", "margin_change"):
            found = line(table, "answers", change)
            assert found[measure] == pytest.approx(spearmanr(changes[measure], changes[change]).statistic)
            assert found[f"{measure}_low"] <= found[measure] <= found[f"{measure}_high"]


def test_what_rows_lack_leaves_out_what_needs_it_or_is_named(refused: Refused) -> None:
    rows = frame()
    alike = ordering_frame(rows.assign(ecr=rows["legibility"] / 12.0), draws=DRAWS)
    assert alike["advantage"].abs().max() < 1e-12, "nobody is ahead where both measures say the same"
    assert alike["advantage_low"].isna().all(), "no image differs, which is no proof that none would"
    same = line(ordering_frame(rows.assign(ecr=1.0), draws=DRAWS), "arms", "changed")
    assert math.isnan(same["ecr"]), "arms that cover alike have no order by coverage"
    assert same["legibility"] == pytest.approx(-1.0)
    two = ordering_frame(rows[rows["arm"].isin(["full", "grid:0.5", "grid:0.3"])], draws=DRAWS)
    assert set(two["over"]) == {"answers"}, "two arms are compared by their answers alone"
    assert set(ordering_frame(rows.drop(columns="margin"), draws=DRAWS)["change"]) == {"changed"}
    one = ordering_frame(rows.assign(image_id="the only one"), draws=DRAWS)
    assert one["legibility"].notna().all()
    assert one["legibility_low"].isna().all(), "one image gives values without intervals"
    refused("--arm full", ordering_frame, rows[rows["arm"] != "full"])
    for lacking in (rows.drop(columns="legibility"), rows.assign(legibility=np.nan)):
        refused("no pruned row with a region has a legibility", ordering_frame, lacking)


@pytest.mark.parametrize("first", ["full", "full+remove_evidence", "full+swap_positions"])
def test_the_full_margin_is_the_plain_one_whichever_arm_was_named_first(
    tmp_path: Path, first: str, refused: Refused
) -> None:
    arms = [*dict.fromkeys([first, "full", "full+remove_evidence", "full+swap_positions", "full+occlude_evidence"])]
    run = load_run(make_run(tmp_path / "run", images=6, arms=[*arms, "target:0.3"]))
    plain = run.frame().query("arm == 'full'").set_index("probe_id")["margin"]
    found = samples(run.frame(), probe_scales(run)).set_index("probe_id")
    assert found["full_margin"].to_dict() == plain[found.index].to_dict()
    grayed = run.frame().query("arm == 'full+occlude_evidence'").set_index("probe_id")["margin"]
    assert found["occlusion_drop"].tolist() == pytest.approx((plain - grayed)[found.index].tolist())
    unpruned = run.frame()[lambda rows: rows["selector"] == "full"]
    refused("no positive probe of a pruning arm has regions", samples, unpruned, probe_scales(run))
