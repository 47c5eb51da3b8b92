"""Published reference numbers, reproduced."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline.statistics import correlation
from sightline.statistics.agreement import box_agreement, kappa_draws, kappa_interval
from sightline.statistics.arm_rows import ArmRows, FloatArray
from sightline.statistics.bootstrap import SEED, ImageSums
from sightline.statistics.correct_positives import correct_positive_provenance
from sightline.statistics.intervals import percentile_interval, wilson
from sightline.statistics.metrics import METRICS, auroc, ece_bin, point
from sightline.statistics.paired import mcnemar, mcnemar_p, seed_summary, two_stage_difference, two_stage_draws
from sightline.statistics.thresholds import accuracy_optimal
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

EXACT = 1e-12


def run_of_score_file(path: str) -> str:
    return path.removeprefix("runs/").removesuffix("/probe_scores.jsonl")


def value(rows: ArmRows, name: str) -> float:
    return point(METRICS[name], rows)


@pytest.fixture(scope="module")
def analysis(data: Path) -> Path:
    return data / "golden_e2e" / "analysis"


def test_summary_of_every_run(data: Path) -> None:
    columns = {
        "accuracy": "accuracy", "hFPR": "hfpr", "auroc": "auroc", "PosECR": "pos_ecr", "NegSRC": "neg_src",
        "PosAnchorECR": "anchor_ecr", "mean_evidence_center_recall": "center_recall",
        "mean_evidence_patch_recall": "patch_recall",
    }  # fmt: skip
    rows = table(data / "golden_e2e" / "runs" / "summary.csv")
    checked = 0
    for row in rows:
        # The occlusion runs hold three views of each probe; their summary is checked view by view below.
        if "occlusion" in row["run"]:
            continue
        arm = run_rows(data, row["run"])
        for column, name in columns.items():
            if row[column]:
                assert value(arm, name) == pytest.approx(float(row[column]), abs=EXACT), (row["run"], name)
                checked += 1
    assert checked > 6 * 100


def test_occlusion_summaries_by_view(data: Path, analysis: Path) -> None:
    runs = {
        "qwen": "bbox_occlusion_qwen_textocr_hard_200/qwen3_8b_direct_802816",
        "llava": "bbox_occlusion_cross_model_textocr_hard_100/llava15_7b_direct",
    }
    columns = {
        "acc": "accuracy", "pos_acc": "positive_accuracy", "neg_acc": "negative_accuracy", "hFPR": "hfpr",
        "yes_rate": "yes_rate",
    }  # fmt: skip
    for model, run in runs.items():
        for row in table(analysis / f"occlusion_{model}" / f"{model}_summary.csv"):
            frame = run_frame(data, run, row["view"])
            arm = ArmRows.of(frame["polarity"] == "positive", frame["margin"], frame["image_id"])
            found = {column: value(arm, name) for column, name in columns.items()}
            assert found == pytest.approx({column: float(row[column]) for column in columns}, abs=EXACT)


MODELS = {"qwen": "qwen3_8b", "llava": "llava15_7b"}


def confirmation(data: Path, model: str, method: str) -> ArmRows:
    """``target30`` is the run ``target_0p30``."""
    name = method if method == "full" else f"{method[:-2]}_0p{method[-2:]}"
    return run_rows(data, f"textocr_confirmation/{MODELS[model]}_{name}")


def test_mcnemar_and_differences_of_the_paired_statistics(data: Path, analysis: Path) -> None:
    for row in table(analysis / "paired_stats.csv"):
        left, right = run_rows(data, row["left"]), run_rows(data, row["right"])
        for stem, name in (("acc", "accuracy"), ("hfpr", "hfpr")):
            assert value(left, name) - value(right, name) == pytest.approx(float(row[f"{stem}_diff"]), abs=EXACT)
            concerned = np.ones(len(left.labels), dtype=bool) if stem == "acc" else ~left.labels
            metric = METRICS[name]
            test = mcnemar(metric.value(left)[concerned], metric.value(right)[concerned])
            assert (test.first_only, test.second_only) == (int(row[f"{stem}_mcnemar_b"]), int(row[f"{stem}_mcnemar_c"]))
            assert test.p == pytest.approx(float(row[f"{stem}_mcnemar_p"]), rel=1e-12)


@pytest.mark.parametrize("folder", ["correct_positive", "correct_positive_dev"])
def test_correct_positive_provenance(data: Path, analysis: Path, folder: str) -> None:
    for row in table(analysis / folder / "correct_positive_provenance.csv"):
        found = correct_positive_provenance(run_rows(data, run_of_score_file(row["score_file"])), draws=200)
        assert found.positives == int(row["positive_probes"])
        assert found.correct == int(row["correct_positive_probes"])
        assert found.accuracy == pytest.approx(float(row["correct_positive_accuracy"]), abs=EXACT)
        assert found.mean_ecr == pytest.approx(float(row["mean_ecr_given_correct_positive"]), abs=EXACT)
        assert found.mean_anchor_ecr == pytest.approx(float(row["mean_anchor_ecr_given_correct_positive"]), abs=EXACT)
        for share, stem in ((found.weakly_supported, "lt_0p50"), (found.unsupported, "eq_0")):
            column = f"correct_positive_ecr_{stem}"
            assert share.count == int(row[f"{column}_count"])
            assert share.rate == pytest.approx(float(row[f"{column}_rate"]), abs=EXACT)
            expected = (float(row[f"{column}_ci_low"]), float(row[f"{column}_ci_high"]))
            assert share.wilson == pytest.approx(expected, abs=EXACT)
            assert share.cluster[0] <= share.rate <= share.cluster[1]


def test_calibration_of_the_scope_ablation(data: Path, analysis: Path) -> None:
    report = json.loads((analysis / "scope_ablation" / "scope_coverage_ablation.json").read_text())
    arms = {
        ("development", "saliency_plus_coverage"): "dev_alpha1",
        ("development", "pure_coverage"): "dev_alpha0",
        ("confirmation", "saliency_plus_coverage"): "conf_alpha1",
        ("confirmation", "pure_coverage"): "conf_alpha0",
    }
    columns = {
        "accuracy": "accuracy", "positive_accuracy": "positive_accuracy", "hfpr": "hfpr", "positive_ecr": "pos_ecr",
        "negative_source_coverage": "neg_src", "correct_positive_ecr_lt_0p50": "weakly_supported",
        "correct_positive_ecr_eq_0": "unsupported", "sequence_likelihood_ece_15": "ece",
        "sequence_likelihood_brier": "brier", "sequence_likelihood_nll": "nll",
    }  # fmt: skip
    for (split, arm), source in arms.items():
        rows = run_rows(data, run_of_score_file(report["inputs"][source]))
        found = {column: value(rows, name) for column, name in columns.items()}
        assert found == pytest.approx({column: report[split][arm][column] for column in columns}, abs=EXACT)


@pytest.mark.parametrize("folder", ["golden_e2e/analysis/random_seed_confirmation", "protocol/paper_evidence"])
def test_random_seed_summary_has_the_population_standard_deviation(data: Path, folder: str) -> None:
    names = {"accuracy": "accuracy", "hFPR": "hfpr", "PosECR": "pos_ecr"}
    seeds = table(data / folder / "per_seed_metrics.csv")
    for row in table(data / folder / "random_seed_summary.csv"):
        values = [float(seed[row["metric"]]) for seed in seeds]
        if folder.startswith("golden"):
            arms = [run_rows(data, f"textocr_confirmation/{seed['run']}") for seed in seeds]
            assert [value(arm, names[row["metric"]]) for arm in arms] == pytest.approx(values, abs=EXACT)
        found = seed_summary(values)
        assert found.seeds == int(row["n_random_seeds"])
        expected = [float(row[key]) for key in ("mean", "population_sd", "minimum", "maximum")]
        assert [found.mean, found.sd, found.minimum, found.maximum] == pytest.approx(expected, abs=1e-15)


# Intervals of the reference analyses, from our statistics fed with the draws of each convention it used.
#
# Where the reference drew probes, twisted generators or cut percentiles elsewhere, the test's name says so; the package
# itself always resamples images with PCG64 and takes np.quantile.


def metric_draws(rows: ArmRows, name: str, weights: FloatArray) -> FloatArray:
    drawn: FloatArray = ImageSums.of(rows, [METRICS[name]]).at(weights)[:, 0]
    return drawn


def test_image_cluster_differences_under_the_twister_and_floor_index_percentiles(data: Path, analysis: Path) -> None:
    columns = [
        ("acc", "accuracy"), ("hFPR", "hfpr"), ("ECR", "pn_average"), ("PosECR", "pos_ecr"), ("NegSRC", "neg_src"),
        ("PosAnchorECR", "anchor_ecr"),
    ]  # fmt: skip
    for row in table(analysis / "confirmation_image_cluster_stats.csv"):
        model, _, pair = row["comparison"].partition("_")
        left, right = (confirmation(data, model, method) for method in pair.split("_vs_"))
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
    pure, both = (run_rows(data, run_of_score_file(report["inputs"][name])) for name in ("conf_alpha0", "conf_alpha1"))
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
        correlate = {"spearman": correlation.spearman, "pearson": correlation.pearson}[row["correlation"]]
        assert correlate(x, y) == pytest.approx(float(row["estimate"]), abs=1e-11)
        if row["correlation"] == "spearman":
            seed = 20260722 + 1000 * models.index(row["model"])
            seed += 100 * OUTCOMES.index(row["intervention"]) + 10 * PREDICTORS.index(row["predictor"])
            rng = np.random.default_rng(seed)
            blocks = [rng.integers(0, len(x), (min(256, DRAWS - i), len(x))) for i in range(0, DRAWS, 256)]
            drawn = correlation.partial_spearman_draws(x, y, [], counts(np.concatenate(blocks)).T)
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
        assert correlation.partial_spearman(x, y, controls) == pytest.approx(float(row["estimate"]), abs=1e-11)
        seed = 20260722 + 10_000 + 100 * models.index(row["model"])
        seed += 10 * outcomes.index(row["intervention"]) + PREDICTORS.index(row["predictor"])
        rng = np.random.default_rng(seed)
        indices = np.stack([rng.integers(0, len(x), len(x)) for _ in range(DRAWS)])
        drawn = correlation.partial_spearman_draws(x, y, controls, counts(indices).T)
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
        images = rows["image_id"].nunique()
        rng = np.random.default_rng(20260725 + index)
        blocks = [rng.integers(0, images, (250, images)) for _ in range(int(row["draws"]) // 250)]
        left, right = correlation.conditional_residuals(x, y, rows["image_id"], rows["method"], controls)
        assert correlation.pearson(left, right) == pytest.approx(float(row["estimate"]), abs=1e-12)
        image = np.unique(rows["image_id"], return_inverse=True)[1]
        drawn = correlation.FixedResiduals.of(left, right, image).at(counts(np.concatenate(blocks)))
        assert linear_interval(drawn) == pytest.approx((float(row["ci_low"]), float(row["ci_high"])), abs=1e-12)


# The statistics vectors of ``misc.json``. Intervals are checked under the convention that produced each of them.


@pytest.fixture(scope="module")
def misc(data: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((data / "protocol" / "golden_json" / "misc.json").read_text())
    return loaded


def test_threshold_auroc_wilson_mcnemar_and_calibration_error(misc: dict[str, Any]) -> None:
    margins, labels = zip(*misc["threshold"]["rows"], strict=True)
    best = accuracy_optimal(labels, margins)
    assert best.threshold == misc["threshold"]["best"]
    names = {"acc": "accuracy", "hFPR": "hfpr", "pos_acc": "positive_accuracy", "neg_acc": "negative_accuracy"}
    found = {key: getattr(best, name) for key, name in {**names, "yes_rate": "yes_rate"}.items()}
    assert found == pytest.approx(misc["threshold"]["metrics"], abs=1e-15)
    assert auroc(labels, margins) == pytest.approx(misc["threshold"]["auroc"], abs=1e-15)
    for successes, n, interval in misc["wilson"]:
        assert wilson(successes, n) == pytest.approx(interval, abs=1e-15)
    for b, c, p in misc["mcnemar"]:
        assert mcnemar_p(b, c) == pytest.approx(p, rel=1e-12)
    confidence, correct = (np.array(misc["ece15"][name], dtype=float) for name in ("confidence", "correct"))
    gaps = [(confidence - correct)[ece_bin(confidence) == place].sum() for place in range(15)]
    assert np.abs(gaps).sum() / len(correct) == pytest.approx(misc["ece15"]["value"], abs=1e-15)


@pytest.mark.parametrize(
    ("seed", "interval", "name"),
    [
        (20260724, floor_index_interval, "int_index_2000_seed20260724"),
        (20260722, lower_rank_interval, "cluster_choice_2000_seed20260722"),
    ],
)
def test_bootstrap_of_a_mean_under_the_twister(misc: dict[str, Any], seed: int, interval: Any, name: str) -> None:
    values = np.array(misc["bootstrap"]["values"])
    means = counts(twister_indices(seed, 2000, len(values))) @ values / len(values)
    assert interval(means) == pytest.approx(misc["bootstrap"][name], abs=1e-14)


def test_the_vectorised_twister_is_cpythons() -> None:
    for seed, n in ((5, 27), (20260724, 32), ("hard-negative-agreement-v1", 100)):
        rng = random.Random(seed)
        assert twister_indices(seed, 7, n).tolist() == [[rng.randrange(n) for _ in range(n)] for _ in range(7)]
        rng = random.Random(seed)
        assert twister_indices(seed, 7, n).tolist() == [[rng.choice(range(n)) for _ in range(n)] for _ in range(7)]


def test_partial_and_marginal_spearman_with_refitting_bootstrap_one_pcg_call_per_draw(misc: dict[str, Any]) -> None:
    case = misc["partial_spearman"]
    controls = list(np.array(case["controls"]).T)
    value, low, high, valid, varying = case["result_500_seed5"]
    assert correlation.partial_spearman(case["x"], case["y"], controls) == pytest.approx(value, abs=1e-14)
    rng = np.random.default_rng(5)
    n = len(case["x"])
    weights = counts(np.stack([rng.integers(0, n, n) for _ in range(valid)])).T
    draws = correlation.partial_spearman_draws(case["x"], case["y"], controls, weights)
    assert np.isfinite(draws).sum() == valid
    assert linear_interval(draws) == pytest.approx((low, high), abs=1e-13)
    assert sum(np.ptp(control) > 0 for control in controls) == varying
    value, low, high, valid = case["marginal_500_seed5"]
    assert correlation.spearman(case["x"], case["y"]) == pytest.approx(value, abs=1e-14)
    draws = correlation.partial_spearman_draws(case["x"], case["y"], [], weights)
    assert linear_interval(draws) == pytest.approx((low, high), abs=1e-13)


def test_kappa_with_rows_resampled_by_the_twister_seeded_with_a_string(misc: dict[str, Any]) -> None:
    first, second = zip(*misc["kappa"]["pairs"], strict=True)
    assert kappa_interval(first, second, draws=20).value == pytest.approx(misc["kappa"]["value"], abs=1e-15)
    weights = counts(twister_indices("hard-negative-agreement-v1", 5000, len(first)))
    assert linear_interval(kappa_draws(first, second, weights)) == pytest.approx(misc["kappa"]["ci"], abs=1e-14)


def test_box_agreement_of_boxes_rebuilt_from_the_case(misc: dict[str, Any]) -> None:
    """The case lists results only. Two equal squares shifted by a tenth of their side and a disjoint box a quarter
    as large give all of its overlaps, so those are the boxes."""
    first, second = [(0.1, 0.1, 0.3, 0.3), (0.6, 0.6, 0.7, 0.7)], [(0.12, 0.12, 0.32, 0.32)]
    found = box_agreement(first, second, ["answer_value:12", "context: total"], ["answer_value:12"])
    ours = {
        "mean_matched_iou": float(np.mean(found.matched_iou)), "min_matched_iou": min(found.matched_iou),
        "matched_box_pairs": len(found.matched_iou), "union_region_iou": found.union_iou,
        "primary_covered_by_secondary": found.first_covered, "secondary_covered_by_primary": found.second_covered,
        "label_type_set_match": found.same_types, "all_boxes_matched_iou": found.all_matched,
        "needs_adjudication": found.needs_adjudication,
    }  # fmt: skip
    assert {name: round(value, 4) for name, value in ours.items()} == {name: misc["agreement"][name] for name in ours}


# Published tables that can be recomputed from the counts they print.


@pytest.fixture(scope="module")
def evidence(data: Path) -> Path:
    return data / "protocol" / "paper_evidence"


def test_wilson_intervals_of_printed_counts(evidence: Path) -> None:
    """Of correct positives to the last bits, of hFPR to six decimals, of two annotators' agreement to three."""
    for row in table(evidence / "correct_positive_provenance.csv"):
        for stem in ("correct_positive_ecr_lt_0p50", "correct_positive_ecr_eq_0"):
            found = wilson(int(row[f"{stem}_count"]), int(row["correct_positive_probes"]))
            expected = (float(row[f"{stem}_ci_low"]), float(row[f"{stem}_ci_high"]))
            assert found == pytest.approx(expected, abs=1e-14), row["method"]
    for name in (
        "locked_confirmation_hfpr_sensitivity", "locked_confirmation_valid465_full_metrics",
        "hard_negative_result_sensitivity",
    ):  # fmt: skip
        rows = table(evidence / f"{name}.csv")
        assert rows
        for row in rows:
            low, high = wilson(int(row["false_positives"]), int(row["negative_n"]))
            assert (f"{low:.6f}", f"{high:.6f}") == (row["hFPR_ci95_low"], row["hFPR_ci95_high"])
    printed = {row["metric"]: row["value"] for row in table(evidence / "pre_adjudication_agreement_summary.csv")}
    n = int(printed["n"])
    low, high = wilson(round(float(printed["exact_agreement"]) * n), n)
    assert (f"{low:.3f}", f"{high:.3f}") == (printed["agreement_ci95_low"], printed["agreement_ci95_high"])


@pytest.mark.parametrize(
    ("name", "b", "c", "p"),
    [
        *((name, f"{metric}_mcnemar_b", f"{metric}_mcnemar_c", f"{metric}_mcnemar_p")
          for name in ("scope_confirmation_pairwise", "alpha0_vs_alpha1_paired") for metric in ("acc", "hfpr")),
        ("pairwise_stats", "acc_left_better", "acc_left_worse", "acc_sign_p"),
    ],
)  # fmt: skip
def test_printed_mcnemar_and_sign_tests_are_one_exact_test(evidence: Path, name: str, b: str, c: str, p: str) -> None:
    rows = [row for row in table(evidence / f"{name}.csv") if row[p]]
    assert rows
    for row in rows:
        assert mcnemar_p(int(float(row[b])), int(float(row[c]))) == pytest.approx(float(row[p]), rel=1e-11), row
