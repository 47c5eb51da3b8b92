"""Every table against the analysis files of the reference, from its recorded rows. Intervals are our own convention."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import binomtest

from sightline.analysis.outcomes import OUTCOMES, samples, tertiles
from sightline.controls.image_free import plausible_images
from sightline.errors import SightlineError
from sightline.probes import load_regions, read_probes
from sightline.report.sections import replaced_text
from sightline.report.sections.boxes import box_source_frame
from sightline.report.sections.deletion import deletion_frame, logit_drop_frame, occlusion_frame
from sightline.report.sections.image_dependence import image_dependence_frame
from sightline.report.sections.positions import positions_frame
from sightline.report.sections.replaced_text import EDIT_DRAWS, edit_region_frame, text_replacement_frame
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
COLUMNS: dict[str, dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("reference_columns.yaml").read_text("utf-8")
)
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


def agrees(ours: Any, row: dict[str, str], table: str, exact: float = EXACT) -> None:
    """A line of ours has the numbers of a line of the reference; what that leaves empty is no number."""
    for theirs, name in COLUMNS[table].items():
        expected = float(row[theirs] or "nan")
        assert float(str(ours[name])) == pytest.approx(expected, abs=exact, nan_ok=True), (row, theirs)


@pytest.mark.parametrize(
    ("folder", "run", "arm"),
    [("deletion_qwen", "qwen_target30", "target:0.3"), ("deletion_internvl", "internvl_soft50", "soft_evidence:0.5")],
)
def test_deletion_and_the_share_of_lost_accuracy_that_comes_back(data: Path, folder: str, run: str, arm: str) -> None:
    rows = deleted(data, run, arm)
    found = deletion_frame(rows, draws=DRAWS).set_index("variant")
    expected = analysis(data, folder, "deletion_restoration_summary.csv")
    for row in expected:
        agrees(found.loc["selected" if row["variant"] == "selected" else VARIANTS[row["variant"]]], row, "deletion")
    assert len(expected) == len(found) == 8
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


def test_occlusion_and_logit_drop(data: Path) -> None:
    grayed = {"orig": "original", "evidence_masked": "evidence grayed", "random_masked": "other box grayed"}
    kept = {
        "full": "full", "evidence_kept": "evidence_only:0.3", "evidence_removed": "anti_evidence:0.3",
        "ours_target0p30": "target:0.3",
    }  # fmt: skip
    runs = ("topk_1p00", "topk_0p30", "bottomk_0p30", "target_embed_topk_0p30_targetfix_802816")
    rows = pd.concat(frame(data, QWEN + run, arm=arm) for arm, run in zip(kept.values(), runs, strict=True))
    tables = [
        (occlusion_frame(frame(data, run, arm="full"), draws=DRAWS), grayed, 3, f"occlusion_{model}/{model}_pairwise")
        for model, run in OCCLUDED.items()
    ]
    logits = logit_drop_frame(rows, draws=DRAWS)
    for found, names, count, file in (*tables, (logits, kept, 5, "region_logit_drop/qwen_region_logit_drop_pairwise")):
        expected = analysis(data, f"{file}.csv")
        for row in expected:
            ours = found[(found["left"] == names[row["left"]]) & (found["right"] == names[row["right"]])]
            assert len(ours) == 1
            agrees(ours.iloc[0], row, "comparison")
            # Where hardly two images differ, margins, which have no limits, have no interval.
            assert not ours["support_diff"].iloc[0] < ours["support_diff_low"].iloc[0]
            assert not ours["support_diff"].iloc[0] > ours["support_diff_high"].iloc[0]
        assert len(expected) == count


MATCHED = {
    "qwen": "qwen_small_conf/full_200704",
    "llava": "textocr_confirmation/llava15_7b_full",
    "internvl": "internvl_textocr_hard/internvl35_8b_textocr_hard_full1000_direct",
}


def image_free(data: Path, model: str) -> pd.DataFrame:
    conditions = ("blank", *(f"image_mismatch_seed{seed}" for seed in (101, 202, 303)))
    folder = f"problem_optimization_audit/image_free_controls/{model}"
    controls = [frame(data, f"{folder}/{name}", arm="full", model=model, view=name) for name in conditions]
    matched = frame(data, MATCHED[model], arm="full", model=model)
    return pd.concat([matched[matched["probe_id"].isin(controls[0]["probe_id"])], *controls])


@pytest.mark.parametrize("file", ["image_free_summary.csv", "lexically_plausible_summary.csv"])
@pytest.mark.parametrize("model", MATCHED)
def test_image_dependence(data: Path, model: str, file: str) -> None:
    rows = [row for row in analysis(data, "image_free", file) if row["model_key"] == model]
    images = None
    if file.startswith("lexically"):
        inputs = data / "golden_e2e" / "inputs"
        probes = read_probes(inputs / ("probes_dev.jsonl" if model == "internvl" else "probes_conf.jsonl")).probes
        images = plausible_images(probes, load_regions(inputs / "regions.jsonl.gz").records)
        if not rows:
            assert not images & set(image_free(data, model)["image_id"])
            return
    cut = float(rows[0]["threshold"])
    asked = image_free(data, model)
    found = image_dependence_frame(asked, threshold={model: cut}, images=images, draws=DRAWS)
    applied = apply_thresholds(asked, None, {model: cut}).rows
    pd.testing.assert_frame_equal(image_dependence_frame(applied, images=images, draws=DRAWS), found)
    found = found.set_index("condition")
    for row in rows:
        ours = found.loc["matching image" if row["condition"] == "matched_image_full" else row["condition"]]
        agrees(ours, row, "image_dependence")
    assert len(rows) == 5
    seeds = next(r for r in analysis(data, "image_free", "image_mismatch_seed_summary.csv") if r["model_key"] == model)
    if images is None:
        agrees(found.loc["wrong images"], seeds, "mismatch_seeds")


def test_box_sources(data: Path, refused: Refused) -> None:
    rows = analysis(data, "box_robustness", "box_robustness_summary.csv")
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
        agrees(found.loc[(row["model"], row["variant"])], row, "box_sources")
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


@pytest.mark.parametrize("model", CONSTRUCT)
def test_samples_are_joined_as_the_reference_joins_them(data: Path, model: str) -> None:
    rows = [r for r in analysis(data, "ecr_construct", "construct_validity_sample_rows.csv") if r["model"] == model]
    # Our samples from recorded rows: the plain arm, its deletions, Full and Full on occluded images.
    name, selected, full, deletion = CONSTRUCT[model]
    parts = [frame(data, selected, arm="target:0.3", model=model, precision=True)]
    occluded = frame(data, OCCLUDED[name], arm="full", model=model)
    # Full of the same run where the occlusion run has no original of its own.
    own = frame(data, full, arm="full", model=model)
    parts += [occluded, own[~own["probe_id"].isin(occluded.loc[occluded["view"] == "orig", "probe_id"])]]
    if deletion:
        edits = deleted(data, deletion, "target:0.3", model=model)
        parts.append(edits[edits["intervention"] != "none"])
    found = samples(pd.concat(parts), scales(data, selected)).set_index("probe_id")
    for row in rows:
        ours: Any = found.loc[row["sample_id"]]
        # Deletion runs replay masks, so a selected margin may differ from the first run's in the last float32 bit.
        agrees(ours, row, "samples", exact=2e-6)
        for outcome in OUTCOMES:
            assert ours[outcome] == pytest.approx(float(row[outcome] or "nan"), abs=2e-6, nan_ok=True), row
    assert len(rows) == len(found)
    for scale in ("evidence_area", "median_cell_area", "box_cell_ratio"):
        strata = {row["sample_id"]: row[f"{scale}_stratum"] for row in rows}
        values = pd.Series({row["sample_id"]: float(row[scale]) for row in rows})
        assert tertiles(values).to_dict() == strata


def test_construct_validity_and_scale_strata(data: Path) -> None:
    rows = pd.read_csv(data / "golden_e2e" / "analysis" / "ecr_construct" / "construct_validity_sample_rows.csv")
    rows = rows.rename(columns={"local_provenance_precision": "lpp"})
    reference_samples = rows.assign(arm="selected", image_id=rows["sample_id"])
    found = correlations(reference_samples, draws=DRAWS).set_index(["model", "outcome", "predictor", "correlation"])
    checked = 0
    for file in ("construct_validity_correlations.csv", "construct_validity_partial_correlations.csv"):
        for row in analysis(data, "ecr_construct", file):
            predictor = row["predictor"].replace("local_provenance_precision", "lpp")
            key = (row["model"], row["intervention"], predictor, row["correlation"])
            ours: Any = cast(Any, found.loc)[key]
            assert ours["n"] == int(row["n"])
            assert ours["estimate"] == pytest.approx(float(row["estimate"]), abs=1e-11)
            if "varying_controls" in row:
                assert ours["controls"] == int(row["varying_controls"])
            checked += 1
    assert checked > 60
    means = strata(reference_samples, draws=DRAWS).set_index(["model", "scale", "stratum", "metric"])
    for row in analysis(data, "ecr_construct", "construct_validity_scale_strata.csv"):
        metric = row["metric"].replace("local_provenance_precision", "lpp")
        place = (row["model"], row["scale_dimension"], row["stratum"], metric)
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


def test_the_four_control_test_counts_pairs() -> None:
    every = dict.fromkeys(("original", "replacement", "sham", "erase"), True)
    images = [every, {**every, "sham": False}, {**every, "replacement": False}, dict.fromkeys(every, False)]
    rows = pd.DataFrame([row for i, passed in enumerate(images) for row in replacement_rows(passed, f"i{i}")])
    (found,) = text_replacement_frame(rows).to_dict("records")
    assert found["images"] == 4
    assert [found[name] for name in ("original", "replacement", "sham", "erase")] == [0.75, 0.5, 0.5, 0.75]
    assert (found["semantic_switch"], found["all_controls"]) == (0.5, 0.25)
    (strict,) = text_replacement_frame(rows, threshold={"m": 2.0}).to_dict("records")
    assert strict["original"] == 0.0


def test_two_models_differ_as_the_paper_says_they_do(refused: Refused) -> None:
    """Of 102 images 26 pass under one model and 3 of these under the other: p is 2 / 2^23, printed as 2.38e-7."""
    every = dict.fromkeys(("original", "replacement", "sham", "erase"), True)
    rows = pd.DataFrame(
        {**row, "model": model}
        for model, passing in (("Qwen", 26), ("InternVL", 3))
        for i in range(102)
        for row in replacement_rows({**every, "replacement": i < passing}, f"i{i}")
    )
    (found,) = replaced_text.text_replacement_models_frame(rows).to_dict("records")
    assert (found["first"], found["second"], found["images"]) == ("Qwen", "InternVL", 102)
    assert (round(found["first_rate"], 3), round(found["second_rate"], 3)) == (0.255, 0.029)
    assert (found["only_first"], found["only_second"]) == (23, 0)
    assert found["mcnemar_p"] == pytest.approx(binomtest(0, 23).pvalue) == pytest.approx(2.38e-7, rel=2e-3)
    half = rows[(rows["model"] == "Qwen") | rows["image_id"].isin([f"i{i}" for i in range(10)])]
    assert replaced_text.text_replacement_models_frame(half)["images"].tolist() == [10], (
        "on the images that both were asked"
    )
    refused("no two models", replaced_text.text_replacement_models_frame, rows[rows["model"] == "Qwen"])


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
