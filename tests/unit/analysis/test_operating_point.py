from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline.errors import SightlineError
from sightline.report.sections.replaced_text import edit_region_frame, text_replacement_frame
from sightline.rows.thresholds import HASH_SPLIT, apply_thresholds, on_development_side, threshold_words
from sightline.statistics.metrics import auroc
from sightline.statistics.summaries import arm_summary
from sightline.statistics.thresholds import accuracy_optimal, evaluate
from tests.refusals import Refused
from tests.unit.analysis.test_intervention_tables import replacement_rows
from tests.unit.statistics.golden_rows import run_frame, table

INTERNVL = "internvl_textocr_hard/internvl35_8b_textocr_hard_full1000"
METHODS = {
    "Full": ("full", "direct"),
    "Target": ("target:0.5", "target_embed_topk_0p50"),
    "Grid": ("grid:0.5", "grid_0p50"),
    "Random": ("random:0.5", "random_0p50"),
    "Soft evidence": ("soft_evidence:0.5", "target_embed_soft_evidence_topk_0p50_b0p05"),
}


def rows_of(
    labels: Any, margins: Any, images: Any, *, arm: str = "full", model: str = "m", **columns: Any
) -> pd.DataFrame:
    """Rows as a run has them, with no column more than thresholds read."""
    label = np.where(np.asarray(labels, dtype=bool), "yes", "no")
    margin = np.asarray(margins, dtype=float)
    predicted = np.where(margin >= 0, "yes", "no")
    plain = arm.partition("+")[0]
    images = [str(image) for image in images]
    return pd.DataFrame(
        {
            "model": model, "arm": arm, "plain_arm": plain, "selector": plain.partition(":")[0], "label": label,
            "margin": margin, "predicted": predicted, "correct": predicted == label, "image_id": images,
            "probe_id": [f"{image}:{text}" for image, text in zip(images, label, strict=True)], **columns,
        }
    )  # fmt: skip


def recorded(data: Path, run: str, arm: str, model: str = "m") -> pd.DataFrame:
    frame = run_frame(data, run)
    return rows_of(frame["polarity"] == "positive", frame["margin"], frame["image_id"], arm=arm, model=model)


def pairs(shift: float, images: range, *, arm: str = "full", **columns: Any) -> pd.DataFrame:
    """A yes and a no probe per image, told apart by the threshold ``shift`` and by nothing much lower or higher."""
    margins = [shift + side for _ in images for side in (0.25, -0.25)]
    ids = [image for image in images for _ in range(2)]
    return rows_of([True, False] * len(images), margins, ids, arm=arm, **columns)


def test_answers_are_at_the_threshold_and_margins_stay_as_recorded() -> None:
    rows = pd.concat([pairs(2.0, range(6)), pairs(-1.0, range(6), arm="grid:0.3")], ignore_index=True)
    found, words, chosen = apply_thresholds(rows, None, 2.0)
    assert found["margin"].tolist() == rows["margin"].tolist()
    assert (found["threshold"] == 2.0).all()
    assert found["predicted"].tolist() == ["yes", "no"] * 6 + ["no"] * 12
    assert found["correct"].tolist() == (found["predicted"] == found["label"]).tolist()
    assert words == "The threshold is the one that was given, t = 2."
    assert chosen[["model", "arm", "rule", "threshold"]].to_numpy().tolist() == [
        ["m", "full", "2.0", 2.0],
        ["m", "grid:0.3", "2.0", 2.0],
    ]
    assert rows["predicted"].tolist() == ["yes"] * 12 + ["no"] * 12, "the rows given are left alone"


def test_a_margin_on_the_threshold_says_yes_and_one_that_is_none_keeps_its_answer() -> None:
    threshold = 2.0425992012023926
    rows = rows_of([True, False], [threshold, np.nextafter(threshold, 0.0)], ["a", "b"])
    assert apply_thresholds(rows, None, threshold).rows["predicted"].tolist() == ["yes", "no"]
    rows = pairs(1.0, range(2))
    rows.loc[0, "margin"] = np.nan
    assert rows["predicted"].tolist() == ["yes"] * 4
    assert apply_thresholds(rows, None, 50).rows["predicted"].tolist() == ["yes", "no", "no", "no"]


def test_development_rows_choose_the_rule_for_all_images() -> None:
    here = pd.concat([pairs(0.0, range(4)), pairs(0.0, range(4), arm="grid:0.3")], ignore_index=True)
    there = pd.concat([pairs(2.0, range(90, 95)), pairs(-1.0, range(90, 95), arm="grid:0.3")], ignore_index=True)
    by_rule = {rule: apply_thresholds(here, there, rule) for rule in ("full-dev", "own-dev", "shared", "hfpr<=0.0")}
    assert all(len(found.rows) == len(here) for found in by_rule.values())
    shared = accuracy_optimal(there["label"] == "yes", there["margin"]).threshold
    assert {rule: found.chosen["threshold"].tolist() for rule, found in by_rule.items()} == {
        "full-dev": [2.0, 2.0], "own-dev": [2.0, -1.0], "shared": [shared, shared], "hfpr<=0.0": [2.0, -1.0],
    }  # fmt: skip
    assert by_rule["own-dev"].words == (
        "The threshold is each arm's own most accurate one, t from −1 to 2; chosen on 5 images, the development rows, "
        "and judged on all images here."
    )
    assert by_rule["full-dev"].chosen["dev_accuracy"].tolist() == [1.0, 0.5]
    assert by_rule["full-dev"].chosen["dev_probes"].tolist() == [10, 10]


def test_without_development_rows_a_split_chooses_for_the_side_held_out() -> None:
    rows = pairs(1.5, range(40))
    aside = on_development_side(rows)
    found = apply_thresholds(rows, None, "full-dev")
    assert 0 < aside.sum() < len(rows)
    assert set(found.rows["image_id"]) == set(rows.loc[~aside, "image_id"])
    assert found.rows["correct"].all()
    held_out, chosen_on = found.rows["image_id"].nunique(), rows.loc[aside, "image_id"].nunique()
    assert f"chosen on {chosen_on} images, {HASH_SPLIT}, and judged on the other {held_out}" in found.words


def test_an_arm_under_an_intervention_has_its_plain_arms_threshold_and_chooses_none() -> None:
    plain = pairs(1.0, range(30), arm="target:0.3")
    removed = pairs(-3.0, range(30), arm="target:0.3+remove_evidence")
    found = apply_thresholds(pd.concat([plain, removed]), None, "own-dev")
    assert found.chosen["arm"].tolist() == ["target:0.3"]
    assert set(found.rows["threshold"]) == {1.0}
    assert (found.rows.loc[found.rows["arm"] == "target:0.3+remove_evidence", "predicted"] == "no").all()
    original = pairs(1.0, range(30)).assign(view="orig", intervention="none")
    gray = pairs(-5.0, range(30)).assign(view="blank", intervention="blank")
    chosen = apply_thresholds(pd.concat([gray, original]), None, "shared").chosen
    assert chosen["threshold"].tolist() == [1.0], "nor do rows about another view choose one"


def test_every_model_has_its_own_threshold_and_captions_say_that_arms_differ() -> None:
    one, two = pairs(1.0, range(20), model="one"), pairs(2.0, range(20), model="two")
    rows = pd.concat([one, two]).sort_values(["image_id", "label", "model"], ignore_index=True)
    found = apply_thresholds(rows, None, "full-dev")
    assert found.chosen[["model", "threshold"]].to_numpy().tolist() == [["one", 1.0], ["two", 2.0]]
    assert found.rows["correct"].all()
    held_out = rows[~on_development_side(rows)]
    assert found.rows["probe_id"].tolist() == held_out["probe_id"].tolist(), "rows keep their order"
    assert all(f"In {model} the threshold is" in found.words for model in ("one", "two"))
    alone = apply_thresholds(pd.concat([one, two]), None, {"two": "full-dev"}).rows
    left_alone = alone[alone["model"] == "one"]
    assert left_alone["predicted"].tolist() == one["predicted"].tolist(), "on all its images"
    assert len(alone[alone["model"] == "two"]) < len(two)
    arms = pd.concat([pairs(1.0, range(20)), pairs(2.0, range(20), arm="grid:0.3")])
    cuts = [apply_thresholds(arms, None, rule).chosen["threshold"].tolist() for rule in ("full-dev", "own-dev")]
    assert [threshold_words(each) for each in ([0.0], *cuts)] == ["at t = 0", "at t = 1", "at each arm's threshold"]


def test_bad_input_is_one_clear_line(refused: Refused) -> None:
    rows = pairs(1.0, range(20))
    for broken, rule, line in (
        (rows.drop(columns="margin"), "full-dev", "the rows have no margin: their scorer gives answers alone"),
        (rows.assign(margin=np.nan), 2.0, "the rows have no margin"),
        (rows, "ful-dev", "did you mean 'full-dev'"),
        (rows, "n=2", "model 'n', which no run has; models: m"),
        (rows[rows["label"] == "yes"], "own-dev", "both labels on the development images"),
        (rows[on_development_side(rows)], "own-dev", "none is left to be judged"),
        (rows[~on_development_side(rows)], "own-dev", "both labels on the development images"),
        (rows.assign(selector="grid"), "full-dev", "arm 'full': no development row of a full arm"),
    ):
        with pytest.raises(SightlineError) as caught:
            apply_thresholds(broken, None, rule)
        assert line in str(caught.value)
        assert "\n" not in str(caught.value)
    impossible = rows_of([True, False] * 20, [0.0, 1.0] * 20, np.repeat(range(20), 2))
    refused(
        "arm 'full': no threshold that ever says yes keeps hFPR <= 0", apply_thresholds, impossible, None, "hfpr<=0.05"
    )


def test_reference_decomposition_of_the_recorded_runs(data: Path) -> None:
    recorded_runs = [recorded(data, f"{INTERNVL}_{run}", arm, "InternVL") for arm, run in METHODS.values()]
    rows = pd.concat(recorded_runs, ignore_index=True)
    published = table(data / "golden_e2e" / "analysis" / "internvl_threshold" / "internvl_threshold_decomposition.csv")
    for rule, stem in (("own-dev", "method"), ("full-dev", "full_shared"), ("shared", "pooled_shared")):
        found = apply_thresholds(rows, None, rule)
        judged = arm_summary(found.rows, metrics=["accuracy", "hfpr", "auroc"], draws=100).set_index("arm")
        thresholds = found.chosen.set_index("arm")["threshold"]
        for row in published:
            arm, _ = METHODS[row["method"]]
            assert judged.loc[arm, "n_probes"] == int(row["test_n"])
            assert thresholds[arm] == float(row[f"{stem}_threshold"])
            expected = [float(row[name]) for name in (f"{stem}_acc", f"{stem}_hfpr", "test_auroc")]
            own = [judged.loc[arm, name] for name in ("accuracy", "hfpr", "auroc")]
            assert own == pytest.approx(expected, abs=1e-15)


def test_the_split_by_image_holds_out_as_many_as_the_paper_says(data: Path) -> None:
    folder = data / "protocol" / "paper_evidence"
    ids = (folder / "sample_ids.txt").read_text().split()
    images = list(dict.fromkeys(one.partition(":")[0].removeprefix("textocr-") for one in ids))
    rows = pairs(0.0, range(len(images))).assign(image_id=np.repeat(images, 2))
    held_out = int((~on_development_side(rows)).sum())
    for row in table(folder / "internvl_threshold_decomposition.csv"):
        assert held_out == int(row["test_n"]) == 536


def test_reference_thresholds_chosen_on_all_development_rows_of_two_models_at_once(data: Path) -> None:
    full_runs = {
        "Qwen3-VL-8B": "prune_textocr_hard_full1000/qwen3_8b_textocr_hard_full1000_topk_1p00",
        "LLaVA-1.5-7B": "llava_textocr_hard/llava15_7b_textocr_hard_full1000_direct",
    }
    published = table(data / "golden_e2e" / "analysis" / "qwen_llava_calibration" / "calibration_decomposition.csv")
    development = pd.concat([recorded(data, run, "full", model) for model, run in full_runs.items()])
    runs = [row["source"].removeprefix("runs/").removesuffix("/probe_scores.jsonl") for row in published]
    each = zip(runs, published, strict=True)
    rows = pd.concat([recorded(data, run, row["method"], row["model"]) for run, row in each])
    found = apply_thresholds(rows, development, "full-dev").rows
    for row in published:
        judged = found[(found["model"] == row["model"]) & (found["arm"] == row["method"])]
        assert set(judged["threshold"]) == {float(row["full_dev_threshold"])}
        assert judged["correct"].mean() == pytest.approx(float(row["shared_accuracy"]), abs=1e-15)
        plain = evaluate(judged["label"] == "yes", judged["margin"])
        expected = [float(row[name]) for name in ("default_accuracy", "default_hfpr", "auroc")]
        own = [plain.accuracy, plain.hfpr, auroc(judged["label"] == "yes", judged["margin"])]
        assert own == pytest.approx(expected, abs=1e-15)
        negatives = judged[judged["label"] == "no"]
        assert (negatives["predicted"] == "yes").mean() == pytest.approx(float(row["shared_hfpr"]), abs=1e-15)


def test_text_replacement_and_edit_regions_are_at_the_applied_threshold() -> None:
    every = dict.fromkeys(("original", "replacement", "sham", "erase"), True)
    images = [every, {**every, "sham": False}, {**every, "replacement": False}]
    asked = pd.DataFrame([row for i, passed in enumerate(images) for row in replacement_rows(passed, f"i{i}")])
    asked = asked.assign(
        selector="full", probe_id=asked["image_id"] + asked["kind"], view="orig", intervention="none",
        keep=1.0, ecr=1.0, center_recall=1.0, patch_recall=1.0, predicted="yes", correct=False,
    )  # fmt: skip
    recorded = apply_thresholds(asked, None, 0.0).rows
    moved = apply_thresholds(asked.assign(margin=asked["margin"] + 5.0), None, 5.0).rows
    assert recorded["correct"].any()
    pd.testing.assert_frame_equal(text_replacement_frame(recorded), text_replacement_frame(moved))
    glyphs = [rows.assign(kind="edit_region")[rows["kind"] == "replacement_target"] for rows in (recorded, moved)]
    first, second = (edit_region_frame(rows, draws=100) for rows in glyphs)
    assert 0 < first["accuracy"].iloc[0] < 1
    pd.testing.assert_frame_equal(first, second)
