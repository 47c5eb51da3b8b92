"""Published reference numbers, reproduced.

The reference drew probes or images, with two generators, and cut percentiles in three ways (``golden_rows``); the
package always resamples images with PCG64 and takes np.quantile. Here its statistics are fed with those draws.
"""

import json
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline.statistics import correlation, paired
from sightline.statistics.agreement import box_agreement, kappa_draws, kappa_interval
from sightline.statistics.arm_rows import ArmRows, FloatArray
from sightline.statistics.bootstrap import SEED, ImageSums
from sightline.statistics.correct_positives import correct_positive_provenance
from sightline.statistics.intervals import percentile_interval, wilson
from sightline.statistics.metrics import METRICS, auroc, ece_bin, point
from sightline.statistics.thresholds import accuracy_optimal
from tests.conftest import DATA
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

ANALYSIS, EVIDENCE = DATA / "golden_e2e/analysis", DATA / "protocol/paper_evidence"
SCOPE = json.loads((ANALYSIS / "scope_ablation/scope_coverage_ablation.json").read_text())
MISC: dict[str, Any] = json.loads((DATA / "protocol/golden_json/misc.json").read_text())
OURS = {
    "acc": "accuracy", "hFPR": "hfpr", "PosECR": "pos_ecr", "positive_ecr": "pos_ecr", "NegSRC": "neg_src",
    "negative_source_coverage": "neg_src", "PosAnchorECR": "anchor_ecr", "ECR": "pn_average",
    "mean_evidence_center_recall": "center_recall", "mean_evidence_patch_recall": "patch_recall",
    "pos_acc": "positive_accuracy", "neg_acc": "negative_accuracy", "correct_positive_ecr_lt_0p50": "weakly_supported",
    "correct_positive_ecr_eq_0": "unsupported", "sequence_likelihood_ece_15": "ece",
    "sequence_likelihood_brier": "brier", "sequence_likelihood_nll": "nll",
}  # fmt: skip
"""What the reference calls a metric -> our name, where it is another one."""
Cut = Callable[[FloatArray], tuple[float, float]]


def run_of_score_file(path: str) -> ArmRows:
    return run_rows(DATA, path.removeprefix("runs/").removesuffix("/probe_scores.jsonl"))


def rows_of(frame: pd.DataFrame, images: list[str] | None = None) -> ArmRows:
    return ArmRows.of(frame["polarity"] == "positive", frame["margin"], frame["image_id"] if images is None else images)


def confirmation(name: str) -> ArmRows:
    return run_rows(DATA, f"textocr_confirmation/{name}")


def value(rows: ArmRows, column: str) -> float:
    return point(METRICS[OURS.get(column, column)], rows)


def agree(rows: ArmRows, published: Mapping[str, Any]) -> int:
    """Compares every column whose metric we have; how many those are."""
    told = {column: text for column, text in published.items() if OURS.get(column, column) in METRICS.names()}
    expected = {column: float(text) for column, text in told.items() if text != ""}
    assert {column: value(rows, column) for column in expected} == pytest.approx(expected, abs=1e-12)
    return len(expected)


def bounds(row: Mapping[str, Any], *columns: str) -> Any:
    return pytest.approx([float(row[column]) for column in columns or ("ci_low", "ci_high")], abs=1e-12)


def metric_draws(rows: ArmRows, column: str, weights: FloatArray) -> FloatArray:
    drawn: FloatArray = ImageSums.of(rows, [METRICS[OURS.get(column, column)]]).at(weights)[:, 0]
    return drawn


def difference(arms: Iterable[ArmRows], column: str, seed: int, draws: int, cut: Cut) -> list[float]:
    """Of two arms under the twister: (value, low, high)."""
    left, right = arms
    weights = counts(twister_indices(seed, draws, left.n_images))
    drawn = metric_draws(left, column, weights) - metric_draws(right, column, weights)
    return [value(left, column) - value(right, column), *cut(drawn)]


def pcg_counts(seed: int, draws: int, n: int) -> FloatArray:
    """Numbers come in one stream, however many the reference asked for at a time."""
    return counts(np.random.default_rng(seed).integers(0, n, (draws, n)))


def test_metrics_of_every_recorded_run_of_occluded_views_and_of_the_scope_ablation() -> None:
    # Runs of occlusions hold three views of each probe.
    rows = [row for row in table(DATA / "golden_e2e/runs/summary.csv") if "occlusion" not in row["run"]]
    assert sum(agree(run_rows(DATA, row["run"]), row) for row in rows) > 6 * 100
    for model, run in (
        ("qwen", "bbox_occlusion_qwen_textocr_hard_200/qwen3_8b_direct_802816"),
        ("llava", "bbox_occlusion_cross_model_textocr_hard_100/llava15_7b_direct"),
    ):
        for row in table(ANALYSIS / f"occlusion_{model}/{model}_summary.csv"):
            assert agree(rows_of(run_frame(DATA, run, row["view"])), row) == 5
    for split, stem in (("development", "dev"), ("confirmation", "conf")):
        for arm, source in (("saliency_plus_coverage", "alpha1"), ("pure_coverage", "alpha0")):
            assert agree(run_of_score_file(SCOPE["inputs"][f"{stem}_{source}"]), SCOPE[split][arm]) == 10


def test_paired_statistics_with_probes_resampled_under_the_twister() -> None:
    for index, row in enumerate(table(ANALYSIS / "paired_stats.csv")):
        frames = [run_frame(DATA, row[side]) for side in ("left", "right")]
        # Every probe is an image of its own, and ids that sort like the rows keep the reference's order of units.
        left, right = arms = [rows_of(frame, [f"{i:06d}" for i in range(len(frame))]) for frame in frames]
        for column, concerned in (("acc", left.labels | True), ("hfpr", ~left.labels)):
            metric = METRICS[OURS.get(column, column)]
            test = paired.mcnemar(metric.value(left)[concerned], metric.value(right)[concerned])
            found = [*difference(arms, column, 13 + index, 10_000, linear_interval), test.first_only, test.second_only]
            keys = ("diff", "diff_ci_low", "diff_ci_high", "mcnemar_b", "mcnemar_c")
            assert found == bounds(row, *(f"{column}_{key}" for key in keys)), (row["label"], column)
            assert test.p == pytest.approx(float(row[f"{column}_mcnemar_p"]), rel=1e-12)


@pytest.mark.parametrize("folder", ["correct_positive", "correct_positive_dev"])
def test_correct_positive_provenance(folder: str) -> None:
    for row in table(ANALYSIS / folder / "correct_positive_provenance.csv"):
        found = correct_positive_provenance(run_of_score_file(row["score_file"]), draws=200)
        keys = ("positive_probes", "correct_positive_probes", "correct_positive_accuracy")
        means = ("mean_ecr_given_correct_positive", "mean_anchor_ecr_given_correct_positive")
        told = [found.positives, found.correct, found.accuracy, found.mean_ecr, found.mean_anchor_ecr]
        assert told == bounds(row, *keys, *means)
        for share, stem in ((found.weakly_supported, "lt_0p50"), (found.unsupported, "eq_0")):
            columns = tuple(f"correct_positive_ecr_{stem}_{key}" for key in ("count", "rate", "ci_low", "ci_high"))
            assert [share.count, share.rate, *share.wilson] == bounds(row, *columns)
            assert share.cluster[0] <= share.rate <= share.cluster[1]


@pytest.mark.parametrize("folder", [ANALYSIS / "random_seed_confirmation", EVIDENCE])
def test_random_seed_summary_has_the_population_standard_deviation(folder: Any) -> None:
    seeds = table(folder / "per_seed_metrics.csv")
    for row in table(folder / "random_seed_summary.csv"):
        values = [float(seed[row["metric"]]) for seed in seeds]
        if folder != EVIDENCE:
            recorded = [value(confirmation(seed["run"]), row["metric"]) for seed in seeds]
            assert recorded == pytest.approx(values, abs=1e-12)
        found = paired.seed_summary(values)
        told = [found.seeds, found.mean, found.sd, found.minimum, found.maximum]
        assert told == bounds(row, "n_random_seeds", "mean", "population_sd", "minimum", "maximum")


def test_differences_and_auroc_of_images_resampled_under_the_twister() -> None:
    for row in table(ANALYSIS / "confirmation_image_cluster_stats.csv"):
        model, _, pair = row["comparison"].partition("_")
        stem = {"qwen": "qwen3_8b", "llava": "llava15_7b"}[model]
        names = [name if name == "full" else f"{name[:-2]}_0p{name[-2:]}" for name in pair.split("_vs_")]
        arms = [confirmation(f"{stem}_{name}") for name in names]
        for offset, column in enumerate(("acc", "hFPR", "ECR", "PosECR", "NegSRC", "PosAnchorECR")):
            expected = [float(row[f"{column}_{key}"]) for key in ("diff", "ci_low", "ci_high")]
            asked = (int(row["seed"]) + offset, int(row["bootstrap_draws"]), floor_index_interval)
            assert difference(arms, column, *asked) == pytest.approx(expected, abs=6e-7), (row["comparison"], column)
    arms, comparison = [run_of_score_file(SCOPE["inputs"][f"conf_alpha{i}"]) for i in (0, 1)], "confirmation_comparison"
    for offset, column in enumerate(("accuracy", "hfpr", "positive_ecr", "negative_source_coverage")):
        asked = (SCOPE[comparison]["seed"] + offset, SCOPE[comparison]["bootstrap_draws"], lower_rank_interval)
        _, *found = difference(arms, column, *asked)
        assert found == pytest.approx(SCOPE[comparison][column]["ci_95"], abs=1e-12), column
    for row in table(ANALYSIS / "image_free/image_free_summary.csv"):
        if row["condition"] != "matched_image_full":
            run = f"problem_optimization_audit/image_free_controls/{row['model_key']}/{row['condition']}"
            frame = run_frame(DATA, run)
            arm = rows_of(frame[~development(frame)] if row["model_key"] == "internvl" else frame)
            drawn = metric_draws(arm, "auroc", counts(twister_indices(20260723, 1000, arm.n_images)))
            assert list(linear_interval(drawn)) == bounds(row, "auroc_ci_low", "auroc_ci_high")


def two_stage(arm: ArmRows, seeded: list[ArmRows], column: str, drawn: Iterable[Any]) -> FloatArray:
    """From (draws, seeds) and (draws, images) indices."""
    seeds, images = (counts(np.asarray(part)) for part in drawn)
    several = np.stack([metric_draws(rows, column, images) for rows in seeded])
    return metric_draws(arm, column, images) - np.einsum("ds,sd->d", seeds, several) / len(seeded)


def test_two_stage_confirmation_in_pcg_blocks_of_500() -> None:
    folder = ANALYSIS / "random_seed_confirmation"
    arm = confirmation("qwen3_8b_target_0p30")
    seeded = [confirmation(row["run"]) for row in table(folder / "per_seed_metrics.csv")]
    for index, row in enumerate(table(folder / "target_minus_random_two_stage_bootstrap.csv")):
        metric, draws = METRICS[("accuracy", "pos_ecr")[index]], int(row["draws"])
        rng, sizes = np.random.default_rng(20260725 + index), (len(seeded), arm.n_images)
        blocks = [[rng.integers(0, n, (500, n)) for n in sizes] for _ in range(draws // 500)]
        found = linear_interval(two_stage(arm, seeded, metric.name, map(np.concatenate, zip(*blocks, strict=True))))
        assert list(found) == bounds(row)
        ours = paired.two_stage_draws({"arm": arm}, seeded, [metric], draws=100_000, seed=SEED)["arm"][:, 0]
        whole = paired.two_stage_difference(arm, seeded, metric, draws=100).value
        assert whole == pytest.approx(float(row["difference"]), abs=1e-12)
        # Ours has other draws of the same distribution. The p-quantile of n draws has the standard error
        # sqrt(p (1 - p) / n) / density; for a normal at p = 0.025 that is sqrt(0.024375) / 0.05845 = 2.67 standard
        # deviations over sqrt(n). Both bounds are noisy, and 3 standard errors are allowed: 0.004 and 0.006 here.
        error = 2.67 * (found[1] - found[0]) / (2 * 1.96) * np.sqrt(1 / 100_000 + 1 / draws)
        assert percentile_interval(ours) == pytest.approx(found, abs=3 * error)


def test_two_stage_development_under_the_twister_and_floor_index_percentiles() -> None:
    """Per draw the reference takes seeds, then images, from one stream; its seeds are in name order."""
    stem = "prune_textocr_hard_full1000/qwen3_8b_textocr_hard_full1000"
    arm = run_rows(DATA, f"{stem}_target_embed_topk_0p30_targetfix_802816")
    names = sorted(f"{stem}_random_0p30{suffix}" for suffix in ("", *(f"_seed{s}" for s in (17, 101, 202, 303, 404))))
    seeded = [run_rows(DATA, name) for name in names]
    rows = table(ANALYSIS / "random_seed_integrated_stats.csv")
    for index, (row, column) in enumerate(zip(rows, ("accuracy", "pos_ecr"), strict=True)):
        rng, sizes = random.Random(20260724 + index), (len(seeded), arm.n_images)
        drawn = [[[rng.randrange(n) for _ in range(n)] for n in sizes] for _ in range(int(row["draws"]))]
        assert list(floor_index_interval(two_stage(arm, seeded, column, zip(*drawn, strict=True)))) == bounds(row)


def test_marginal_and_partial_correlations_refitted_in_every_draw() -> None:
    folder = ANALYSIS / "ecr_construct"
    everything = pd.read_csv(folder / "construct_validity_sample_rows.csv")
    models, predictors = list(everything["model"].unique()), ["ecr", "local_provenance_precision", "geo_f1"]
    outcomes = ["occlusion_drop", "occlusion_specific_drop", "deletion_drop", "evidence_restoration_gain",
                "restoration_specific_gain"]  # fmt: skip
    for name, partial in (("correlations", False), ("partial_correlations", True)):
        for row in table(folder / f"construct_validity_{name}.csv"):
            rows = everything[(everything["model"] == row["model"]) & everything[row["intervention"]].notna()]
            x, y = rows[row["predictor"]].to_numpy(), rows[row["intervention"]].to_numpy()
            if not partial and row["correlation"] == "pearson":
                assert correlation.pearson(x, y) == pytest.approx(float(row["estimate"]), abs=1e-11)
                continue
            measured = [np.log(rows["evidence_area"]), np.log(rows["median_cell_area"]), rows["full_margin"]]
            controls = measured if partial else []
            (found,) = correlation.partial_spearman_draws(x, y, controls, np.ones((len(x), 1)))
            assert found == pytest.approx(float(row["estimate"]), abs=1e-11)
            outcome = outcomes.index(row["intervention"]) - partial  # partial ones leave out the first
            place = 100 * models.index(row["model"]) + 10 * outcome + predictors.index(row["predictor"])
            seed = 20260722 + (10_000 + place if partial else 10 * place)
            drawn = correlation.partial_spearman_draws(x, y, controls, pcg_counts(seed, 2000, len(x)).T)
            assert np.isfinite(drawn).sum() == int(row["valid_bootstrap_draws"])
            expected = (float(row["ci_low"]), float(row["ci_high"]))
            assert percentile_interval(drawn) == pytest.approx(expected, abs=1e-11)


def test_conditional_correlations_with_fixed_residuals() -> None:
    folder = ANALYSIS / "conditional_construct"
    everything = pd.read_csv(folder / "conditional_construct_sample_rows.csv").sort_values(["image_id", "method"])
    for index, row in enumerate(table(folder / "conditional_construct_correlations.csv")):
        rows = everything[everything["method"].isin(row["methods"].split(";"))]
        measured = [np.log(rows["evidence_area"]), np.log(rows["median_cell_area"]), rows["full_margin"]]
        controls = measured if row["specification"] == "measured_controls_method_fe" else None
        asked = rows[row["predictor"]], rows["margin_retention"], rows["image_id"], rows["method"]
        left, right = correlation.conditional_residuals(*asked, controls)
        assert correlation.pearson(left, right) == pytest.approx(float(row["estimate"]), abs=1e-12)
        names, image = np.unique(rows["image_id"], return_inverse=True)
        weights = pcg_counts(20260725 + index, int(row["draws"]), len(names))
        assert list(linear_interval(correlation.FixedResiduals.of(left, right, image).at(weights))) == bounds(row)


def test_threshold_auroc_wilson_mcnemar_and_calibration_error_of_the_vectors() -> None:
    margins, labels = zip(*MISC["threshold"]["rows"], strict=True)
    best = accuracy_optimal(labels, margins)
    assert best.threshold == MISC["threshold"]["best"]
    found = {name: getattr(best, OURS.get(name, name)) for name in MISC["threshold"]["metrics"]}
    assert found == pytest.approx(MISC["threshold"]["metrics"], abs=1e-15)
    assert auroc(labels, margins) == pytest.approx(MISC["threshold"]["auroc"], abs=1e-15)
    for successes, n, interval in MISC["wilson"]:
        assert wilson(successes, n) == pytest.approx(interval, abs=1e-15)
    for b, c, p in MISC["mcnemar"]:
        assert paired.mcnemar_p(b, c) == pytest.approx(p, rel=1e-12)
    confidence, correct = (np.array(MISC["ece15"][name], dtype=float) for name in ("confidence", "correct"))
    gaps = [(confidence - correct)[ece_bin(confidence) == place].sum() for place in range(15)]
    assert np.abs(gaps).sum() / len(correct) == pytest.approx(MISC["ece15"]["value"], abs=1e-15)


def test_means_and_kappa_of_the_vectors_under_the_twister_which_is_cpythons() -> None:
    for seed, n in ((5, 27), (20260724, 32), ("hard-negative-agreement-v1", 100)):
        for draw in (lambda rng, n=n: rng.randrange(n), lambda rng, n=n: rng.choice(range(n))):
            rng = random.Random(seed)
            assert twister_indices(seed, 7, n).tolist() == [[draw(rng) for _ in range(n)] for _ in range(7)]
    values = np.array(MISC["bootstrap"]["values"])
    for seed, interval, name in (
        (20260724, floor_index_interval, "int_index_2000_seed20260724"),
        (20260722, lower_rank_interval, "cluster_choice_2000_seed20260722"),
    ):
        means = counts(twister_indices(seed, 2000, len(values))) @ values / len(values)
        assert interval(means) == pytest.approx(MISC["bootstrap"][name], abs=1e-14)
    first, second = zip(*MISC["kappa"]["pairs"], strict=True)
    assert kappa_interval(first, second, draws=20).value == pytest.approx(MISC["kappa"]["value"], abs=1e-15)
    weights = counts(twister_indices("hard-negative-agreement-v1", 5000, len(first)))
    assert linear_interval(kappa_draws(first, second, weights)) == pytest.approx(MISC["kappa"]["ci"], abs=1e-14)


def test_partial_and_marginal_spearman_of_the_vectors() -> None:
    case = MISC["partial_spearman"]
    measured = list(np.array(case["controls"]).T)
    *partial, varying = case["result_500_seed5"]
    assert sum(np.ptp(control) > 0 for control in measured) == varying
    for controls, (value, low, high, valid) in ((measured, partial), ([], case["marginal_500_seed5"])):
        (found,) = correlation.partial_spearman_draws(case["x"], case["y"], controls, np.ones((len(case["x"]), 1)))
        assert found == pytest.approx(value, abs=1e-14)
        weights = pcg_counts(5, valid, len(case["x"])).T
        drawn = correlation.partial_spearman_draws(case["x"], case["y"], controls, weights)
        assert np.isfinite(drawn).all()
        assert linear_interval(drawn) == pytest.approx((low, high), abs=1e-13)


def test_box_agreement_of_boxes_rebuilt_from_the_vectors() -> None:
    """They list results only. Two equal squares shifted by a tenth of their side and a disjoint box a quarter as large
    give all of the overlaps, so those are the boxes."""
    first, second = [(0.1, 0.1, 0.3, 0.3), (0.6, 0.6, 0.7, 0.7)], [(0.12, 0.12, 0.32, 0.32)]
    found = box_agreement(first, second, ["answer_value:12", "context: total"], ["answer_value:12"])
    ours = {
        "mean_matched_iou": float(np.mean(found.matched_iou)), "min_matched_iou": min(found.matched_iou),
        "matched_box_pairs": len(found.matched_iou), "union_region_iou": found.union_iou,
        "primary_covered_by_secondary": found.first_covered, "secondary_covered_by_primary": found.second_covered,
        "label_type_set_match": found.same_types, "all_boxes_matched_iou": found.all_matched,
        "needs_adjudication": found.needs_adjudication,
    }  # fmt: skip
    assert {name: round(value, 4) for name, value in ours.items()} == {name: MISC["agreement"][name] for name in ours}


def test_wilson_intervals_and_exact_tests_of_printed_counts() -> None:
    """Intervals of correct positives to the last bits, of hFPR to six decimals, of two annotators' agreement to three;
    printed McNemar and sign tests are one exact test."""
    for row in table(EVIDENCE / "correct_positive_provenance.csv"):
        for stem in ("correct_positive_ecr_lt_0p50", "correct_positive_ecr_eq_0"):
            found = wilson(int(row[f"{stem}_count"]), int(row["correct_positive_probes"]))
            expected = (float(row[f"{stem}_ci_low"]), float(row[f"{stem}_ci_high"]))
            assert found == pytest.approx(expected, abs=1e-14), row["method"]
    for name in ("locked_confirmation_hfpr_sensitivity", "locked_confirmation_valid465_full_metrics",
                 "hard_negative_result_sensitivity"):  # fmt: skip
        rows = table(EVIDENCE / f"{name}.csv")
        assert rows
        for row in rows:
            low, high = wilson(int(row["false_positives"]), int(row["negative_n"]))
            assert (f"{low:.6f}", f"{high:.6f}") == (row["hFPR_ci95_low"], row["hFPR_ci95_high"])
    printed = {row["metric"]: row["value"] for row in table(EVIDENCE / "pre_adjudication_agreement_summary.csv")}
    n = int(printed["n"])
    low, high = wilson(round(float(printed["exact_agreement"]) * n), n)
    assert (f"{low:.3f}", f"{high:.3f}") == (printed["agreement_ci95_low"], printed["agreement_ci95_high"])
    for name, b, c, p in (
        *((name, f"{metric}_mcnemar_b", f"{metric}_mcnemar_c", f"{metric}_mcnemar_p")
          for name in ("scope_confirmation_pairwise", "alpha0_vs_alpha1_paired") for metric in ("acc", "hfpr")),
        ("pairwise_stats", "acc_left_better", "acc_left_worse", "acc_sign_p"),
    ):  # fmt: skip
        rows = [row for row in table(EVIDENCE / f"{name}.csv") if row[p]]
        assert rows
        for row in rows:
            assert paired.mcnemar_p(int(float(row[b])), int(float(row[c]))) == pytest.approx(float(row[p]), rel=1e-11)
