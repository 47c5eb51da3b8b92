"""Every table against the analysis files of the reference, from its recorded rows. Intervals are our own convention."""

import json
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from sightline.analysis.outcomes import OUTCOMES, samples, tertiles
from sightline.controls.image_free import plausible_images
from sightline.errors import SightlineError
from sightline.probes import load_regions, read_probes
from sightline.report.sections.boxes import box_source_frame
from sightline.report.sections.deletion import deletion_frame, logit_drop_frame, occlusion_frame
from sightline.report.sections.image_dependence import image_dependence_frame
from sightline.report.sections.positions import positions_frame
from sightline.report.sections.replaced_text import (
    EDIT_DRAWS,
    edit_region_frame,
    text_replacement_frame,
    text_replacement_models_frame,
)
from sightline.report.sections.validity import association_frame, correlations, strata
from sightline.rows.thresholds import apply_thresholds, on_development_side
from sightline.statistics.bootstrap import SEED, count_blocks
from tests.refusals import Refused
from tests.unit.statistics.golden_rows import analysis, frame, scales

EXACT = 1e-12
DRAWS = 100
DELETION = "textocr_deletion_restoration"
OCCLUDED = {
    "qwen": "bbox_occlusion_qwen_textocr_hard_200/qwen3_8b_direct_802816",
    "llava": "bbox_occlusion_cross_model_textocr_hard_100/llava15_7b_direct",
    "internvl": "bbox_occlusion_cross_model_textocr_hard_100/internvl35_8b_direct",
}
VARIANTS = {
    "selected": "none", "remove_evidence": "remove_evidence",
    **{f"restore_{kind}_{share:.2f}".replace(".", "p"): f"restore_{kind}={share}"
       for kind in ("evidence", "random") for share in (0.25, 0.5, 1.0)},
}  # fmt: skip


def deleted(data: Path, run: str, arm: str, **fields: Any) -> pd.DataFrame:
    return pd.concat(
        frame(data, f"{DELETION}/{run}_runs/{name}", arm=arm, intervention=ours, **fields)
        for name, ours in VARIANTS.items()
    )


def same(found: object, expected: str) -> bool:
    return (
        math.isnan(float(str(found)))
        if expected == ""
        else float(str(found)) == pytest.approx(float(expected), abs=EXACT)
    )


@pytest.mark.parametrize(
    ("folder", "run", "arm"),
    [("deletion_qwen", "qwen_target30", "target:0.3"), ("deletion_internvl", "internvl_soft50", "soft_evidence:0.5")],
)
def test_deletion(data: Path, folder: str, run: str, arm: str) -> None:
    found = deletion_frame(deleted(data, run, arm), draws=DRAWS).set_index("variant")
    columns = {
        "acc": "accuracy", "hFPR": "hfpr", "ECR": "ecr", "CenterR": "center_recall", "PatchR": "patch_recall",
        "keep_ratio": "keep", "n": "n", "acc_recovery_frac": "recovery", "delta_acc_vs_removed": "change_from_removed",
        "gap_acc_to_selected": "change",
    }  # fmt: skip
    rows = analysis(data, folder, "deletion_restoration_summary.csv")
    for row in rows:
        ours = found.loc["selected" if row["variant"] == "selected" else VARIANTS[row["variant"]]]
        for theirs, name in columns.items():
            assert same(ours[name], row[theirs]), (row["variant"], theirs)
    assert len(rows) == len(found) == 8


def test_recovery_is_the_share_of_the_lost_accuracy_that_comes_back(data: Path) -> None:
    rows = deleted(data, "qwen_target30", "target:0.3")
    rows["correct"] = True
    rows.loc[(rows["intervention"] == "remove_evidence"), "correct"] = False
    half = rows["intervention"] == "restore_evidence=0.5"
    rows.loc[half, "correct"] = np.arange(half.sum()) % 2 == 0
    found = deletion_frame(rows, draws=DRAWS).set_index("variant")
    assert found["recovery"].to_dict() == pytest.approx(
        {**dict.fromkeys(found.index, 1.0), "remove_evidence": 0.0, "restore_evidence=0.5": 0.5}
    )
    removed, selected = (found.loc[name].to_dict() for name in ("remove_evidence", "selected"))
    assert removed["change"] == removed["change_low"] == -1.0
    assert -1.0 < removed["change_high"] < -0.5, "an image that was not seen may keep its answer"
    assert (selected["change"], np.isnan(selected["change_low"])) == (0.0, True), "0 by construction"


def comparisons(found: pd.DataFrame, rows: list[dict[str, str]], names: dict[str, str]) -> int:
    columns = {
        "n": "n", "mean_support_diff": "support_diff", "median_support_diff": "median_support_diff",
        "frac_support_left_gt_right": "share_left_larger", "pos_mean_support_diff": "pos_support_diff",
        "neg_mean_support_diff": "neg_support_diff", "left_correct_right_wrong": "only_left_correct",
        "left_wrong_right_correct": "only_right_correct", "left_hfp_right_not": "only_left_false_alarm",
        "right_hfp_left_not": "only_right_false_alarm",
    }  # fmt: skip
    for row in rows:
        ours = found[(found["left"] == names[row["left"]]) & (found["right"] == names[row["right"]])]
        assert len(ours) == 1
        for theirs, name in columns.items():
            assert same(ours[name].iloc[0], row[theirs]), (row["comparison"], theirs)
        # Where hardly two images differ, margins, which have no limits, have no interval.
        assert not ours["support_diff"].iloc[0] < ours["support_diff_low"].iloc[0]
        assert not ours["support_diff"].iloc[0] > ours["support_diff_high"].iloc[0]
    return len(rows)


@pytest.mark.parametrize("model", OCCLUDED)
def test_occlusion(data: Path, model: str) -> None:
    names = {"orig": "original", "evidence_masked": "evidence grayed", "random_masked": "other box grayed"}
    found = occlusion_frame(frame(data, OCCLUDED[model], arm="full"), draws=DRAWS)
    assert comparisons(found, analysis(data, f"occlusion_{model}", f"{model}_pairwise.csv"), names) == 3


def test_logit_drop(data: Path) -> None:
    base = "prune_textocr_hard_full1000/qwen3_8b_textocr_hard_full1000_"
    names = {
        "full": "full", "evidence_kept": "evidence_only:0.3", "evidence_removed": "anti_evidence:0.3",
        "ours_target0p30": "target:0.3",
    }  # fmt: skip
    runs = {
        "full": f"{base}topk_1p00", "evidence_only:0.3": f"{base}topk_0p30", "anti_evidence:0.3": f"{base}bottomk_0p30",
        "target:0.3": f"{base}target_embed_topk_0p30_targetfix_802816",
    }  # fmt: skip
    rows = pd.concat(frame(data, run, arm=arm) for arm, run in runs.items())
    found = logit_drop_frame(rows, draws=DRAWS)
    assert comparisons(found, analysis(data, "region_logit_drop", "qwen_region_logit_drop_pairwise.csv"), names) == 5


MATCHED = {
    "qwen": "qwen_small_conf/full_200704",
    "llava": "textocr_confirmation/llava15_7b_full",
    "internvl": "internvl_textocr_hard/internvl35_8b_textocr_hard_full1000_direct",
}


def image_free(data: Path, model: str) -> pd.DataFrame:
    conditions = ("blank", *(f"image_mismatch_seed{seed}" for seed in (101, 202, 303)))
    controls = [
        frame(
            data, f"problem_optimization_audit/image_free_controls/{model}/{name}", arm="full", model=model, view=name
        )
        for name in conditions
    ]
    matched = frame(data, MATCHED[model], arm="full", model=model)
    return pd.concat([matched[matched["probe_id"].isin(controls[0]["probe_id"])], *controls])


@pytest.mark.parametrize("file", ["image_free_summary.csv", "lexically_plausible_summary.csv"])
@pytest.mark.parametrize("model", MATCHED)
def test_image_dependence(data: Path, model: str, file: str) -> None:
    rows = [row for row in analysis(data, "image_free", file) if row["model_key"] == model]
    if file.startswith("lexically"):
        inputs = data / "golden_e2e" / "inputs"
        probes = read_probes(inputs / ("probes_dev.jsonl" if model == "internvl" else "probes_conf.jsonl")).probes
        images = plausible_images(probes, load_regions(inputs / "regions.jsonl.gz").records)
        if not rows:
            assert not images & set(image_free(data, model)["image_id"])
            return
    else:
        images = None
    cut = float(rows[0]["threshold"])
    found = image_dependence_frame(
        image_free(data, model), threshold={model: cut}, images=images, draws=DRAWS
    ).set_index("condition")
    applied = apply_thresholds(image_free(data, model), None, {model: cut}).rows
    again = image_dependence_frame(applied, images=images, draws=DRAWS).set_index("condition")
    pd.testing.assert_frame_equal(again, found)
    columns = {
        "n": "n", "images": "images", "accuracy": "accuracy", "positive_accuracy": "positive_accuracy", "hfpr": "hfpr",
        "negative_accuracy": "negative_accuracy", "balanced_accuracy": "balanced_accuracy", "auroc": "auroc",
        "yes_rate": "yes_rate", "mean_positive_minus_negative_margin": "margin_gap",
        "pairwise_positive_margin_win_rate": "margin_win_rate", "delta_accuracy_vs_matched": "delta_accuracy",
    }  # fmt: skip
    for row in rows:
        ours = found.loc["matching image" if row["condition"] == "matched_image_full" else row["condition"]]
        for theirs, name in columns.items():
            assert same(ours[name], row[theirs]), (row["condition"], theirs)
    assert len(rows) == 5
    seeds = next(r for r in analysis(data, "image_free", "image_mismatch_seed_summary.csv") if r["model_key"] == model)
    if images is None:
        for name in ("accuracy", "hfpr", "auroc"):
            assert same(found.loc["wrong images", name], seeds[f"{name}_mean"])
            for end in ("min", "max"):
                assert same(found.loc["wrong images", f"{name}_{end}"], seeds[f"{name}_{end}"])
        assert same(found.loc["wrong images", "delta_accuracy"], seeds["delta_accuracy_vs_matched_mean"])


def test_box_sources(data: Path, refused: Refused) -> None:
    rows = analysis(data, "box_robustness", "box_robustness_summary.csv")
    columns = {
        "num_samples": "n", "accuracy": "accuracy", "hFPR": "hfpr", "true_ECR": "ecr", "true_positive_ECR": "pos_ecr",
        "true_negative_source_coverage": "neg_src", "true_CenterR": "center_recall", "true_PatchR": "patch_recall",
        "keep_ratio": "keep",
    }  # fmt: skip
    every = pd.concat(
        frame(
            data, row["score_dir"].removeprefix("runs/"), arm="protected:0.4", model=row["model"],
            box_source=row["variant"], true_regions=True,
        )
        for row in rows
    )  # fmt: skip
    quality = {"missing": {"missing_rate": 1.0, "best_iou": 0.0}}
    found = box_source_frame(every, quality).set_index(["model", "box_source"])
    for row in rows:
        for theirs, name in columns.items():
            assert same(found.loc[(row["model"], row["variant"]), name], row[theirs]), (row["variant"], theirs)
    assert found.loc[("LLaVA", "missing"), "missing_rate"] == 1.0
    refused("all rows saw annotated boxes", box_source_frame, every.assign(box_source="annotation"))


@pytest.mark.parametrize(("model", "run"), [("llava", "llava_protected40"), ("internvl", "internvl_soft50")])
def test_position_policies(data: Path, model: str, run: str) -> None:
    rows = pd.concat(
        frame(data, f"position_id/{run}_{policy}", arm="protected:0.4", positions=policy,
              intervention="none" if policy == "compact" else "swap_positions", view="orig")
        for policy in ("compact", "preserve")
    )  # fmt: skip
    found = positions_frame(rows).set_index("comparison")
    file = data / "golden_e2e" / "analysis" / f"position_{model}" / "position_id_policy_audit.json"
    expected = json.loads(file.read_text())
    assert (found["mask_mismatches"] == 0).all()
    for name, block, paired in (
        ("raw", "raw_all", "paired_all"),
        ("own thresholds", "own_threshold_test", "paired_test_own_threshold"),
        ("compact threshold", "compact_shared_threshold_test", "paired_test_compact_shared_threshold"),
    ):
        ours = found.loc[name]
        for policy in ("compact", "preserve"):
            assert ours[f"accuracy_{policy}"] == pytest.approx(expected[block][policy]["acc"], abs=EXACT)
            assert ours[f"hfpr_{policy}"] == pytest.approx(expected[block][policy]["hFPR"], abs=EXACT)
        moved = expected[paired]
        assert ours["flips"] == moved["prediction_flips"]
        assert ours["margin_change"] == pytest.approx(moved["mean_margin_delta_preserve_minus_compact"], abs=EXACT)
        assert ours["margin_change_abs"] == pytest.approx(moved["mean_abs_margin_delta"], abs=EXACT)
    # The policy that was swapped in has the threshold of the arm as it is: what the reference calls compact's.
    applied = apply_thresholds(rows, None, "own-dev").rows
    apart = positions_frame(applied, development=rows[on_development_side(rows)]).set_index("comparison")
    pd.testing.assert_frame_equal(positions_frame(applied).set_index("comparison"), apart.loc[["raw"]])
    figures = ["flips", *(f"{name}_{policy}" for name in ("accuracy", "hfpr") for policy in ("compact", "preserve"))]
    for name, before in (("raw", "compact threshold"), *((same, same) for same in found.index[1:])):
        assert apart.loc[name, figures].tolist() == found.loc[before, figures].tolist()
    own = expected["own_threshold_test"]
    assert found.loc["own thresholds", "threshold_compact"] == own["compact_threshold"]
    assert found.loc["own thresholds", "threshold_preserve"] == own["preserve_threshold"]
    assert found.loc["own thresholds", "auroc_preserve"] == pytest.approx(expected["test_auroc"]["preserve"], abs=EXACT)


QWEN = "prune_textocr_hard_full1000/qwen3_8b_textocr_hard_full1000_"
LLAVA = "llava_textocr_hard/llava15_7b_textocr_hard_full1000_"
INTERNVL = "internvl_textocr_hard/internvl35_8b_textocr_hard_full1000_"
CONSTRUCT = {
    "Qwen3-VL-8B": (
        "qwen", f"{QWEN}target_embed_topk_0p30_targetfix_802816", f"{QWEN}topk_1p00", "qwen_target30",
    ),
    "LLaVA-1.5-7B": ("llava", f"{LLAVA}target_embed_topk_0p40_targetfix", f"{LLAVA}direct", None),
    "InternVL3.5-8B": (
        "internvl", f"{INTERNVL}target_embed_soft_evidence_topk_0p50_b0p05", f"{INTERNVL}direct", "internvl_soft50",
    ),
}  # fmt: skip


def joined(data: Path, model: str) -> pd.DataFrame:
    """Our samples from recorded rows: the plain arm, its deletions, Full and Full on occluded images."""
    name, selected, full, deletion = CONSTRUCT[model]
    parts = [frame(data, selected, arm="target:0.3", model=model, precision=True)]
    occluded = frame(data, OCCLUDED[name], arm="full", model=model)
    # Full of the same run where the occlusion run has no original of its own.
    own = frame(data, full, arm="full", model=model)
    parts += [occluded, own[~own["probe_id"].isin(occluded.loc[occluded["view"] == "orig", "probe_id"])]]
    if deletion:
        edits = deleted(data, deletion, "target:0.3", model=model)
        parts.append(edits[edits["intervention"] != "none"])
    return samples(pd.concat(parts), scales(data, selected))


@pytest.mark.parametrize("model", CONSTRUCT)
def test_samples_are_joined_as_the_reference_joins_them(data: Path, model: str) -> None:
    rows = [r for r in analysis(data, "ecr_construct", "construct_validity_sample_rows.csv") if r["model"] == model]
    found = joined(data, model).set_index("probe_id")
    columns = {
        "ecr": "ecr", "local_provenance_precision": "lpp", "geo_f1": "geo_f1", "selected_margin": "selected_margin",
        "evidence_area": "evidence_area", "median_cell_area": "median_cell_area", "box_cell_ratio": "box_cell_ratio",
        **{outcome: outcome for outcome in OUTCOMES},
    }  # fmt: skip
    for row in rows:
        ours: Any = found.loc[row["sample_id"]]
        for theirs, name in columns.items():
            expected = "" if row[theirs] == "nan" else row[theirs]
            # Deletion runs replay masks, so a selected margin may differ from the first run's in the last float32 bit.
            assert (expected == "" and math.isnan(ours[name])) or ours[name] == pytest.approx(
                float(expected), abs=2e-6
            ), (row["sample_id"], theirs)
    assert len(rows) == len(found)
    for scale in ("evidence_area", "median_cell_area", "box_cell_ratio"):
        strata = {row["sample_id"]: row[f"{scale}_stratum"] for row in rows}
        values = pd.Series({row["sample_id"]: float(row[scale]) for row in rows})
        assert tertiles(values).to_dict() == strata


@pytest.fixture(scope="module")
def reference_samples(data: Path) -> pd.DataFrame:
    rows = pd.read_csv(data / "golden_e2e" / "analysis" / "ecr_construct" / "construct_validity_sample_rows.csv")
    return rows.rename(columns={"local_provenance_precision": "lpp"}).assign(arm="selected", image_id=rows["sample_id"])


PREDICTOR = {"ecr": "ecr", "local_provenance_precision": "lpp", "geo_f1": "geo_f1"}


def test_construct_validity_and_scale_strata(data: Path, reference_samples: pd.DataFrame) -> None:
    found = correlations(reference_samples, draws=DRAWS).set_index(["model", "outcome", "predictor", "correlation"])
    checked = 0
    for file in ("construct_validity_correlations.csv", "construct_validity_partial_correlations.csv"):
        for row in analysis(data, "ecr_construct", file):
            key = (row["model"], row["intervention"], PREDICTOR[row["predictor"]], row["correlation"])
            ours: Any = cast(Any, found.loc)[key]
            assert ours["n"] == int(row["n"])
            assert ours["estimate"] == pytest.approx(float(row["estimate"]), abs=1e-11)
            if "varying_controls" in row:
                assert ours["controls"] == int(row["varying_controls"])
            checked += 1
    assert checked > 60
    means = strata(reference_samples, draws=DRAWS).set_index(["model", "scale", "stratum", "metric"])
    for row in analysis(data, "ecr_construct", "construct_validity_scale_strata.csv"):
        place = (row["model"], row["scale_dimension"], row["stratum"], PREDICTOR.get(row["metric"], row["metric"]))
        assert means.loc[place, "n"] == int(row["n"])
        assert means.loc[place, "mean"] == pytest.approx(float(row["mean"]), abs=1e-11)


def test_conditional_audit(data: Path) -> None:
    base = "textocr_confirmation/qwen3_8b_"
    runs = {"full": "full", **{f"{name}:0.3": f"{name}_0p30" for name in ("target", "random", "grid", "visionzip")}}
    rows = pd.concat(frame(data, f"{base}{run}", arm=arm, precision=True) for arm, run in runs.items())
    rows.loc[rows["selector"] == "visionzip", "lineage_mask"] = "merged"
    found = association_frame(rows, scales(data, f"{base}target_0p30"), coverage="anchor", draws=DRAWS).set_index(
        ["scope", "predictor", "specification"]
    )
    specification = {
        "measured_controls_method_fe": "measured controls, arm effects", "image_and_method_fe": "image and arm effects",
    }  # fmt: skip
    scope = {"all_four": "all", "deletion_only": "deletion_only"}
    expected = analysis(data, "conditional_construct", "conditional_construct_correlations.csv")
    for row in expected:
        ours: Any = cast(Any, found.loc)[scope[row["scope"]], row["predictor"], specification[row["specification"]]]
        assert ours["images"] == int(row["n_images"])
        assert ours["n"] == int(row["n_method_image_rows"])
        assert ours["estimate"] == pytest.approx(float(row["estimate"]), abs=1e-9)
    assert len(expected) == len(found) == 12


def replacement_rows(passed: dict[str, bool], image: str, arm: str = "full") -> list[dict[str, Any]]:
    labels = {"original": "yn", "replacement": "ny", "sham": "yn", "erase": "nn"}
    rows = []
    for version, pair in labels.items():
        for asked, label in zip(("source", "target"), pair, strict=True):
            right = passed[version] or asked == "source"
            rows.append(
                {
                    "model": "m", "arm": arm, "plain_arm": arm, "image_id": image, "kind": f"{version}_{asked}",
                    "label": "yes" if label == "y" else "no", "margin": 1.0 if (label == "y") == right else -1.0,
                }
            )  # fmt: skip
    return rows


def test_the_four_control_test_counts_pairs_and_two_models_differ_as_the_paper_says_they_do(refused: Refused) -> None:
    every = dict.fromkeys(("original", "replacement", "sham", "erase"), True)
    images = [every, {**every, "sham": False}, {**every, "replacement": False}, dict.fromkeys(every, False)]
    rows = pd.DataFrame([row for i, passed in enumerate(images) for row in replacement_rows(passed, f"i{i}")])
    (found,) = text_replacement_frame(rows).to_dict("records")
    assert found["images"] == 4
    assert [found[name] for name in ("original", "replacement", "sham", "erase")] == [0.75, 0.5, 0.5, 0.75]
    assert (found["semantic_switch"], found["all_controls"]) == (0.5, 0.25)
    (strict,) = text_replacement_frame(rows, threshold={"m": 2.0}).to_dict("records")
    assert strict["original"] == 0.0
    # Of 102 images 26 pass under one model and 3 of these under the other: p is 2 / 2^23, printed as 2.38e-7.
    rows = pd.DataFrame(
        {**row, "model": model}
        for model, passing in (("Qwen", 26), ("InternVL", 3))
        for i in range(102)
        for row in replacement_rows({**every, "replacement": i < passing}, f"i{i}")
    )
    (found,) = text_replacement_models_frame(rows).to_dict("records")
    assert (found["first"], found["second"], found["images"]) == ("Qwen", "InternVL", 102)
    assert (round(found["first_rate"], 3), round(found["second_rate"], 3)) == (0.255, 0.029)
    assert (found["only_first"], found["only_second"]) == (23, 0)
    assert found["mcnemar_p"] == pytest.approx(binomtest(0, 23).pvalue) == pytest.approx(2.38e-7, rel=2e-3)
    half = rows[(rows["model"] == "Qwen") | rows["image_id"].isin([f"i{i}" for i in range(10)])]
    assert text_replacement_models_frame(half)["images"].tolist() == [10], "on the images that both were asked"
    refused("no two models", text_replacement_models_frame, rows[rows["model"] == "Qwen"])


@pytest.mark.usefixtures("plain_percentiles")
def test_gains_on_edit_regions_are_paired_by_image_over_many_draws(refused: Refused) -> None:
    rng = np.random.default_rng(0)
    images, draws = 25, EDIT_DRAWS
    values = {arm: (rng.random(images), rng.random(images) < 0.6) for arm in ("target:0.3", "random:0.3")}
    rows = pd.DataFrame(
        {
            "model": "m", "arm": arm, "plain_arm": arm, "selector": arm.split(":")[0], "budget": "0.3",
            "image_id": f"i{i:02d}", "probe_id": f"p{i:02d}", "kind": "edit_region", "intervention": "none",
            "view": "orig", "label": "yes", "predicted": "yes" if right[i] else "no", "correct": bool(right[i]),
            "keep": 0.3, "ecr": ecr[i], "center_recall": ecr[i], "patch_recall": ecr[i],
        }
        for arm, (ecr, right) in values.items()
        for i in range(images)
    )  # fmt: skip
    words = pd.Series({(arm, f"p{i:02d}"): 0.5 for arm in values for i in range(images)})
    found = edit_region_frame(rows, words).set_index("arm").loc["target:0.3"]
    assert found["word_ecr"] == 0.5
    assert found["word_kept_edit_lost"] == (values["target:0.3"][0] < 0.5).mean()
    (ecr, right), (other_ecr, other_right) = values.values()
    counts = np.concatenate(list(count_blocks(images, draws, SEED))).astype(int)
    drawn = [np.repeat(np.arange(images), row) for row in counts]
    for name, gain in (("ecr_gain", ecr - other_ecr), ("accuracy_gain", right.astype(float) - other_right)):
        bounds = np.quantile([gain[index].mean() for index in drawn], [0.025, 0.975])
        assert found[name] == pytest.approx(gain.mean())
        assert (found[f"{name}_low"], found[f"{name}_high"]) == pytest.approx(tuple(bounds))
    assert found["word_ecr_gain"] == 0.0
    refused("edit_region.jsonl", edit_region_frame, rows.assign(kind=""))


def test_missing_rows_are_said_in_one_line(data: Path, refused: Refused) -> None:
    plain = frame(data, "textocr_confirmation/qwen3_8b_target_0p30", arm="target:0.3", precision=True)
    size = scales(data, "textocr_confirmation/qwen3_8b_target_0p30")
    for make in (
        deletion_frame, logit_drop_frame, occlusion_frame, image_dependence_frame, positions_frame,
        lambda rows: correlations(samples(rows, size)), lambda rows: association_frame(rows, size),
    ):  # fmt: skip
        with pytest.raises(SightlineError) as caught:
            make(plain)
        assert "\n" not in str(caught.value)
    refused("more than one row", occlusion_frame, pd.concat([frame(data, OCCLUDED["qwen"], arm="full")] * 2))
