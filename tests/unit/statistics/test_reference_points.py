"""Point values of the reference analyses, recomputed from the rows they were computed from."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.correct_positives import correct_positive_provenance
from sightline.statistics.metrics import METRICS, point
from sightline.statistics.paired import mcnemar
from sightline.statistics.paired_scores import seed_summary
from tests.unit.statistics.golden_rows import development, run_frame, run_rows, table

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
    for model, run in runs.items():
        for row in table(analysis / f"occlusion_{model}" / f"{model}_summary.csv"):
            frame = run_frame(data, run, row["view"])
            arm = ArmRows.of(frame["polarity"] == "positive", frame["margin"], frame["image_id"])
            for column, name in {
                "acc": "accuracy", "pos_acc": "positive_accuracy", "neg_acc": "negative_accuracy", "hFPR": "hfpr",
                "yes_rate": "yes_rate",
            }.items():  # fmt: skip
                assert value(arm, name) == pytest.approx(float(row[column]), abs=EXACT)


def test_confirmation_method_summary_to_its_six_decimals(data: Path, analysis: Path) -> None:
    prefix = {"qwen": "qwen3_8b", "llava": "llava15_7b"}
    for row in table(analysis / "confirmation_method_summary.csv"):
        model, _, method = row["run"].partition("_")
        name = method if method == "full" else f"{method[:-2]}_0p{method[-2:]}"
        arm = run_rows(data, f"textocr_confirmation/{prefix[model]}_{name}")
        for column, metric in {
            "accuracy": "accuracy", "hFPR": "hfpr", "PosECR": "pos_ecr", "NegSRC": "neg_src",
            "PosAnchorECR": "anchor_ecr",
        }.items():  # fmt: skip
            assert f"{value(arm, metric):.6f}" == row[column], (row["run"], metric)


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


def test_image_free_controls_at_their_fixed_thresholds(data: Path, analysis: Path) -> None:
    matched = {
        "qwen": "qwen_small_conf/full_200704",
        "llava": "textocr_confirmation/llava15_7b_full",
        "internvl": "internvl_textocr_hard/internvl35_8b_textocr_hard_full1000_direct",
    }
    columns = {
        "accuracy": "accuracy", "positive_accuracy": "positive_accuracy", "hfpr": "hfpr", "auroc": "auroc",
        "negative_accuracy": "negative_accuracy", "yes_rate": "yes_rate",
    }  # fmt: skip
    for row in table(analysis / "image_free" / "image_free_summary.csv"):
        model, condition = row["model_key"], row["condition"]
        is_matched = condition == "matched_image_full"
        run = matched[model] if is_matched else f"problem_optimization_audit/image_free_controls/{model}/{condition}"
        frame = run_frame(data, run)
        if model == "internvl":  # its threshold was chosen on the development split, so only the rest is evaluated
            frame = frame[~development(frame)]
        labels = frame["polarity"] == "positive"
        arm = ArmRows.of(labels, frame["margin"], frame["image_id"], threshold=float(row["threshold"]))
        for column, name in columns.items():
            assert value(arm, name) == pytest.approx(float(row[column]), abs=EXACT), (model, condition, name)


def test_random_seed_summary(data: Path, analysis: Path) -> None:
    folder = analysis / "random_seed_confirmation"
    names = {"accuracy": "accuracy", "hFPR": "hfpr", "PosECR": "pos_ecr"}
    seeds = table(folder / "per_seed_metrics.csv")
    arms = [run_rows(data, f"textocr_confirmation/{row['run']}") for row in seeds]
    for row in table(folder / "random_seed_summary.csv"):
        values = [value(arm, names[row["metric"]]) for arm in arms]
        assert values == pytest.approx([float(seed[row["metric"]]) for seed in seeds], abs=EXACT)
        found = seed_summary(values)
        assert [found.mean, found.sd] == pytest.approx([float(row["mean"]), float(row["population_sd"])], abs=EXACT)


def test_box_source_geometry_averages_over_both_labels(data: Path, analysis: Path) -> None:
    row = next(r for r in table(analysis / "box_robustness" / "box_robustness_summary.csv") if r["variant"] == "gt")
    arm = run_rows(data, row["score_dir"].removeprefix("runs/"))
    assert value(arm, "pn_average") == pytest.approx(float(row["true_ECR"]), abs=EXACT)
    assert value(arm, "pos_ecr") == pytest.approx(float(row["true_positive_ECR"]), abs=EXACT)
    assert not math.isnan(value(arm, "center_recall"))
