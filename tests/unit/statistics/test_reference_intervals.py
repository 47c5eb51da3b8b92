"""Intervals of the reference analyses, from our statistics fed with the draws of each convention it used.

Where the reference drew probes, twisted generators or cut percentiles elsewhere, the test's name says so; the package
itself always resamples images with PCG64 and takes np.quantile.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sightline.statistics.arm_rows import ArmRows, FloatArray
from sightline.statistics.bootstrap import SEED, ImageSums
from sightline.statistics.correlation import (
    conditional_residuals,
    conditional_spearman,
    fixed_residual_draws,
    partial_spearman,
    partial_spearman_draws,
    pearson,
    spearman,
)
from sightline.statistics.intervals import percentile_interval
from sightline.statistics.metrics import METRICS, point
from sightline.statistics.paired_scores import two_stage_difference, two_stage_draws
from tests.unit.statistics.golden_rows import (
    counts,
    development,
    floor_index_interval,
    linear_interval,
    lower_rank_interval,
    run_frame,
    run_rows,
    table,
    twister_indices,
)


@pytest.fixture(scope="module")
def analysis(data: Path) -> Path:
    return data / "golden_e2e" / "analysis"


def metric_draws(rows: ArmRows, name: str, weights: FloatArray) -> FloatArray:
    drawn: FloatArray = ImageSums.of(rows, [METRICS[name]]).at(weights)[:, 0]
    return drawn


def test_image_cluster_differences_under_the_twister_and_floor_index_percentiles(data: Path, analysis: Path) -> None:
    prefix = {"qwen": "qwen3_8b", "llava": "llava15_7b"}
    columns = [
        ("acc", "accuracy"), ("hFPR", "hfpr"), ("ECR", "pn_average"), ("PosECR", "pos_ecr"), ("NegSRC", "neg_src"),
        ("PosAnchorECR", "anchor_ecr"),
    ]  # fmt: skip
    for row in table(analysis / "confirmation_image_cluster_stats.csv"):
        model, _, pair = row["comparison"].partition("_")
        runs = [n if n == "full" else f"{n[:-2]}_0p{n[-2:]}" for n in pair.split("_vs_")]
        left, right = (run_rows(data, f"textocr_confirmation/{prefix[model]}_{run}") for run in runs)
        for offset, (column, name) in enumerate(columns):
            seed, draws = int(row["seed"]) + offset, int(row["bootstrap_draws"])
            weights = counts(twister_indices(seed, draws, left.n_images))
            low, high = floor_index_interval(metric_draws(left, name, weights) - metric_draws(right, name, weights))
            difference = point(METRICS[name], left) - point(METRICS[name], right)
            expected = [float(row[f"{column}_{key}"]) for key in ("diff", "ci_low", "ci_high")]
            assert [difference, low, high] == pytest.approx(expected, abs=6e-7), (row["comparison"], name)


def test_probe_bootstrap_of_paired_statistics_under_the_twister(data: Path, analysis: Path) -> None:
    """The reference resamples probes here, so every probe is made its own image."""
    for index, row in enumerate(table(analysis / "paired_stats.csv")):
        arms = []
        for run in (row["left"], row["right"]):
            frame = run_frame(data, run)
            # Ids that sort like the rows keep the reference's order of units.
            ids = [f"{i:06d}" for i in range(len(frame))]
            arms.append(ArmRows.of(frame["polarity"] == "positive", frame["margin"], ids))
        weights = counts(twister_indices(13 + index, 10_000, arms[0].n_images))
        for stem, name in (("acc", "accuracy"), ("hfpr", "hfpr")):
            found = linear_interval(metric_draws(arms[0], name, weights) - metric_draws(arms[1], name, weights))
            expected = (float(row[f"{stem}_diff_ci_low"]), float(row[f"{stem}_diff_ci_high"]))
            assert found == pytest.approx(expected, abs=1e-12), (row["label"], name)


def test_auroc_of_image_free_controls_under_the_twister(data: Path, analysis: Path) -> None:
    for row in table(analysis / "image_free" / "image_free_summary.csv"):
        if row["condition"] == "matched_image_full":
            continue
        run = f"problem_optimization_audit/image_free_controls/{row['model_key']}/{row['condition']}"
        frame = run_frame(data, run)
        if row["model_key"] == "internvl":
            frame = frame[~development(frame)]
        arm = ArmRows.of(frame["polarity"] == "positive", frame["margin"], frame["image_id"])
        found = linear_interval(metric_draws(arm, "auroc", counts(twister_indices(20260723, 1000, arm.n_images))))
        assert found == pytest.approx((float(row["auroc_ci_low"]), float(row["auroc_ci_high"])), abs=1e-12)


def test_scope_ablation_under_the_twister_and_lower_rank_percentiles(data: Path, analysis: Path) -> None:
    report = json.loads((analysis / "scope_ablation" / "scope_coverage_ablation.json").read_text())
    pure, both = (
        run_rows(data, report["inputs"][name].removeprefix("runs/").removesuffix("/probe_scores.jsonl"))
        for name in ("conf_alpha0", "conf_alpha1")
    )
    comparison = report["confirmation_comparison"]
    names = {"accuracy": "accuracy", "hfpr": "hfpr", "positive_ecr": "pos_ecr", "negative_source_coverage": "neg_src"}
    for offset, (column, name) in enumerate(names.items()):
        seed, draws = comparison["seed"] + offset, comparison["bootstrap_draws"]
        weights = counts(twister_indices(seed, draws, pure.n_images))
        found = lower_rank_interval(metric_draws(pure, name, weights) - metric_draws(both, name, weights))
        assert found == pytest.approx(comparison[column]["ci_95"], abs=1e-12), column


def two_stage(arm: ArmRows, seeded: list[ArmRows], name: str, seeds: FloatArray, images: FloatArray) -> FloatArray:
    drawn = np.stack([metric_draws(rows, name, images) for rows in seeded])
    return metric_draws(arm, name, images) - np.einsum("ds,sd->d", seeds, drawn) / len(seeded)


def test_two_stage_confirmation_in_pcg_blocks_of_500(data: Path, analysis: Path) -> None:
    folder = analysis / "random_seed_confirmation"
    arm = run_rows(data, "textocr_confirmation/qwen3_8b_target_0p30")
    runs = [row["run"] for row in table(folder / "per_seed_metrics.csv")]
    seeded = [run_rows(data, f"textocr_confirmation/{run}") for run in runs]
    expected = table(folder / "target_minus_random_two_stage_bootstrap.csv")
    for index, (row, name) in enumerate(zip(expected, ("accuracy", "pos_ecr"), strict=True)):
        rng = np.random.default_rng(20260725 + index)
        blocks = []
        for _ in range(int(row["draws"]) // 500):
            blocks.append([rng.integers(0, n, (500, n)) for n in (len(seeded), arm.n_images)])
        seeds, images = (counts(np.concatenate(part)) for part in zip(*blocks, strict=True))
        found = linear_interval(two_stage(arm, seeded, name, seeds, images))
        assert found == pytest.approx((float(row["ci_low"]), float(row["ci_high"])), abs=1e-12)
        ours = two_stage_draws({"arm": arm}, seeded, [METRICS[name]], draws=100_000, seed=SEED)["arm"][:, 0]
        value = two_stage_difference(arm, seeded, METRICS[name], draws=100).value
        assert value == pytest.approx(float(row["difference"]), abs=1e-12)
        # Ours has other draws of the same distribution. The p-quantile of n draws has the standard error
        # sqrt(p (1 - p) / n) / density; for a normal at p = 0.025 that is sqrt(0.024375) / 0.05845 = 2.67 standard
        # deviations over sqrt(n). Both bounds are noisy, and 3 standard errors are allowed: 0.004 and 0.006 here.
        deviation = (found[1] - found[0]) / (2 * 1.96)
        error = 2.67 * deviation * np.sqrt(1 / 100_000 + 1 / int(row["draws"]))
        assert percentile_interval(ours) == pytest.approx(found, abs=3 * error)


def test_two_stage_development_under_the_twister_and_floor_index_percentiles(data: Path, analysis: Path) -> None:
    """Per draw the reference takes seeds, then images, from one stream; its seeds are in name order."""
    stem = "prune_textocr_hard_full1000/qwen3_8b_textocr_hard_full1000"
    arm = run_rows(data, f"{stem}_target_embed_topk_0p30_targetfix_802816")
    names = sorted(f"{stem}_random_0p30{suffix}" for suffix in ("", *(f"_seed{s}" for s in (17, 101, 202, 303, 404))))
    seeded = [run_rows(data, name) for name in names]
    rows = table(analysis / "random_seed_integrated_stats.csv")
    for index, (row, name) in enumerate(zip(rows, ("accuracy", "pos_ecr"), strict=True)):
        rng = random.Random(20260724 + index)
        sizes = (len(seeded), arm.n_images)
        drawn = [[[rng.randrange(n) for _ in range(n)] for n in sizes] for _ in range(int(row["draws"]))]
        seeds, images = (counts(np.array(part)) for part in zip(*drawn, strict=True))
        found = floor_index_interval(two_stage(arm, seeded, name, seeds, images))
        assert found == pytest.approx((float(row["ci_low"]), float(row["ci_high"])), abs=1e-12)


OUTCOMES = [
    "occlusion_drop", "occlusion_specific_drop", "deletion_drop", "evidence_restoration_gain",
    "restoration_specific_gain",
]  # fmt: skip
DRAWS = 2000
PREDICTORS = ["ecr", "local_provenance_precision", "geo_f1"]


@pytest.fixture(scope="module")
def construct(analysis: Path) -> pd.DataFrame:
    return pd.read_csv(analysis / "ecr_construct" / "construct_validity_sample_rows.csv")


def test_marginal_correlations_and_spearman_intervals_in_pcg_blocks_of_256(
    construct: pd.DataFrame, analysis: Path
) -> None:
    models = list(construct["model"].unique())
    for row in table(analysis / "ecr_construct" / "construct_validity_correlations.csv"):
        rows = construct[(construct["model"] == row["model"]) & construct[row["intervention"]].notna()]
        x, y = rows[row["predictor"]].to_numpy(), rows[row["intervention"]].to_numpy()
        correlate = {"spearman": spearman, "pearson": pearson}[row["correlation"]]
        assert correlate(x, y) == pytest.approx(float(row["estimate"]), abs=1e-11)
        if row["correlation"] == "spearman":
            seed = 20260722 + 1000 * models.index(row["model"])
            seed += 100 * OUTCOMES.index(row["intervention"]) + 10 * PREDICTORS.index(row["predictor"])
            rng = np.random.default_rng(seed)
            blocks = [rng.integers(0, len(x), (min(256, DRAWS - i), len(x))) for i in range(0, DRAWS, 256)]
            drawn = partial_spearman_draws(x, y, [], counts(np.concatenate(blocks)).T)
            assert np.isfinite(drawn).sum() == int(row["valid_bootstrap_draws"])
            found = percentile_interval(drawn)
            assert found == pytest.approx((float(row["ci_low"]), float(row["ci_high"])), abs=1e-11)


def test_partial_correlations_and_intervals_with_one_pcg_call_per_draw(construct: pd.DataFrame, analysis: Path) -> None:
    models = list(construct["model"].unique())
    outcomes = ["occlusion_specific_drop", "deletion_drop"]
    for row in table(analysis / "ecr_construct" / "construct_validity_partial_correlations.csv"):
        rows = construct[(construct["model"] == row["model"]) & construct[row["intervention"]].notna()]
        x, y = rows[row["predictor"]].to_numpy(), rows[row["intervention"]].to_numpy()
        controls = [np.log(rows["evidence_area"]), np.log(rows["median_cell_area"]), rows["full_margin"]]
        assert partial_spearman(x, y, controls) == pytest.approx(float(row["estimate"]), abs=1e-11)
        seed = 20260722 + 10_000 + 100 * models.index(row["model"])
        seed += 10 * outcomes.index(row["intervention"]) + PREDICTORS.index(row["predictor"])
        rng = np.random.default_rng(seed)
        indices = np.stack([rng.integers(0, len(x), len(x)) for _ in range(DRAWS)])
        drawn = partial_spearman_draws(x, y, controls, counts(indices).T)
        assert np.isfinite(drawn).sum() == int(row["valid_bootstrap_draws"])
        found = percentile_interval(drawn)
        assert found == pytest.approx((float(row["ci_low"]), float(row["ci_high"])), abs=1e-11)


def test_conditional_correlations_with_fixed_residuals_in_pcg_blocks_of_250(analysis: Path) -> None:
    folder = analysis / "conditional_construct"
    everything = pd.read_csv(folder / "conditional_construct_sample_rows.csv").sort_values(["image_id", "method"])
    for index, row in enumerate(table(folder / "conditional_construct_correlations.csv")):
        rows = everything[everything["method"].isin(row["methods"].split(";"))]
        measured = [np.log(rows["evidence_area"]), np.log(rows["median_cell_area"]), rows["full_margin"]]
        controls = measured if row["specification"] == "measured_controls_method_fe" else None
        x, y = rows[row["predictor"]], rows["margin_retention"]
        ours = conditional_spearman(x, y, rows["image_id"], rows["method"], controls, draws=200)
        assert ours.value == pytest.approx(float(row["estimate"]), abs=1e-12)
        images = rows["image_id"].nunique()
        rng = np.random.default_rng(20260725 + index)
        blocks = [rng.integers(0, images, (250, images)) for _ in range(int(row["draws"]) // 250)]
        left, right = conditional_residuals(x, y, rows["image_id"], rows["method"], controls)
        drawn = fixed_residual_draws(left, right, rows["image_id"], counts(np.concatenate(blocks)))
        assert linear_interval(drawn) == pytest.approx((float(row["ci_low"]), float(row["ci_high"])), abs=1e-12)
