"""One section for each intervention, and plain tables that no intervention disturbs."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.report.columns import NoRowsError
from sightline.report.sections.replaced_text import models_table, text_replacement_table
from sightline.rows.run import load_run
from sightline.rows.source import Audited, Source, read_source
from tests.refusals import Refused
from tests.runs.pages import DRAWS, Page, missing, page_of, report_on
from tests.runs.yes_no import NAN, PLAIN, changed, make_run

MADE = {
    "deletion": ("deletion", "logit_drop"),
    "occlusion": ("occlusion",),
    "image-dependence": ("image_dependence",),
    "positions": ("positions",),
    "validity": ("association", "construct_validity", "drop_strata"),
    "interventions": ("interventions",),
}
UNDISTURBED = ("main", "paired_differences", "correct_positive_provenance", "thresholds", "flips", "geometry")


def test_every_intervention_has_its_section_and_disturbs_no_plain_table(
    edited: Page, report: Page, tmp_path: Path
) -> None:
    for section, tables in MADE.items():
        assert section in edited.ids
        for name in tables:
            assert f"table-{name}" in edited.ids
            for suffix in ("csv", "md", "tex"):
                assert edited.file(f"{name}.{suffix}").stat().st_size > 0
    assert edited.notes == ""
    assert not {"boxes", "text-replacement"} & set(edited.ids), "all rows saw the annotation"
    assert (set(MADE) | {"boxes"}) & set(report.ids) == {"validity"}, "arms at one budget have an association"
    assert "boxes_ms" not in report.rows("cost")[0], "there is no detector"
    rows = {row["variant"]: row for row in edited.rows("deletion")}
    assert float(rows["evidence removed"]["pos_ecr"]) == 0
    assert float(rows["evidence removed"]["change"]) < 0
    assert float(rows["evidence back, 100%"]["recovery"]) == pytest.approx(1)
    assert float(rows["other tokens instead, 100%"]["recovery"]) == pytest.approx(0)
    assert "of 1 arms" not in edited.readings
    told = (
        "target:0.3 loses accuracy when the evidence is removed: −0.",
        "the evidence itself brings back 100% and as many other tokens 0%",
        "the position policy alone turns 0 of 48 answers",
    )
    assert missing(edited.readings, *told) == []
    assert {(row["arm"], row["mask_mismatches"]) for row in edited.rows("positions")} == {("target:0.3", "0")}
    plain = page_of(tmp_path, images=24, arms=PLAIN, cases=6)
    for table in UNDISTURBED:
        assert edited.rows(table) == plain.rows(table), table
    assert edited.packed == plain.packed


def test_a_margin_that_overflows_under_an_intervention_costs_no_plain_table_a_row(tmp_path: Path) -> None:
    def overflow(row: dict[str, Any]) -> None:
        if row["intervention"] == "blank":
            changed(probe="img0003", margin=NAN)(row)

    arms = (*PLAIN[:3], "target:0.3+blank", "full+blank")
    whole = page_of(tmp_path / "whole", images=6, arms=arms)
    broken = page_of(tmp_path / "broken", images=6, arms=arms, edit_row=overflow)
    assert "4 rows under an intervention have a non-finite margin" in broken.notes
    assert broken.rows("main") == whole.rows("main")
    assert {row["n"] for row in broken.rows("image_dependence")} == {"12", "10"}


def test_occlusion_of_which_one_side_was_not_run_says_so(tmp_path: Path) -> None:
    arms = ("full", "target:0.3", "random:0.3", "target:0.3+remove_evidence", "full+occlude_evidence")
    page = page_of(tmp_path / "half", images=8, arms=arms)
    assert "no arm was run on occluded images" in page.notes
    assert {"occlusion", "table-deletion", "table-main"} <= set(page.ids)
    assert not page.has("occlusion")


def test_support_falls_with_the_evidence_and_coverage_correlates_with_what_deleting_does(edited: Page) -> None:
    kept = next(row for row in edited.rows("logit_drop") if row["left"].startswith("evidence_only"))
    assert kept["right"] == "anti_evidence:0.3"
    assert float(kept["pos_support_diff_low"]) > 0
    assert float(kept["support_diff"]) == pytest.approx(
        (float(kept["pos_support_diff"]) + float(kept["neg_support_diff"])) / 2, abs=1e-12
    ), "as many positives as negatives"
    assert float(kept["support_diff_low"]) <= float(kept["support_diff"]) <= float(kept["support_diff_high"])
    occluded = {(row["arm"], row["compared"]): row for row in edited.rows("occlusion")}
    assert float(occluded["full", "original − evidence grayed"]["pos_support_diff"]) == pytest.approx(0.75)
    assert float(occluded["full", "original − other box grayed"]["pos_support_diff"]) == pytest.approx(0)
    for name in ("occlusion.md", "logit_drop.md"):
        assert "Overall" in edited.file(name).read_text(encoding="utf-8")
    # By the same amount in every image: what has no limits then has no interval.
    assert re.search(r"graying the evidence lowers the target support of full by 0\.750[^ (]* (?!\()", edited.readings)
    rows = [row for row in edited.rows("construct_validity") if row["predictor"] == "ECR"]
    removed = next(row for row in rows if row["outcome"] == "evidence removed")
    assert removed["arm"] == "target:0.3"
    assert float(removed["pearson"]) == pytest.approx(1), "the drop is linear in coverage here"
    assert 0 < float(removed["spearman_low"]) <= float(removed["spearman"]) <= float(removed["spearman_high"])
    assert float(removed["partial_spearman_low"]) > 0
    assert "pairs of arm and outcome" in edited.readings
    strata = edited.rows("drop_strata")
    assert {row["stratum"] for row in strata} == {"small", "medium", "large"}
    assert sum(int(row["n"]) for row in strata if row["scale"] == "evidence area") == 24


def test_associations_leave_oracles_out_count_merges_both_ways_and_take_the_draws_asked_for(tmp_path: Path) -> None:
    arms = ("full", "target:0.3", "random:0.3", "visionzip:0.3", "evidence_only:0.3")
    page = page_of(tmp_path, images=12, arms=(*arms, "target:0.3+remove_evidence"), draws=1500)
    rows = page.rows("association")
    assert {(row["scope"], row["coverage"], row["arms"]) for row in rows} == {
        ("all", "anchor", "3"), ("all", "lineage", "3"), ("without merging", "anchor", "2"),
    }  # fmt: skip
    assert {row["predictor"] for row in rows} == {"ECR", "LPP", "Geo-F1"}
    only = ("full", "target:0.3", "evidence_only:0.3")
    assert "table-association" not in page_of(tmp_path / "only", images=6, arms=only).ids
    drawn = ("rank and regress anew in each of 1,500 draws of images", "Intervals from 1,500 draws of images")
    assert missing(page.text, *drawn) == []


def test_box_sources_of_several_runs_stand_side_by_side(tmp_path: Path) -> None:
    arms = ("full", "protected:0.3", "grid:0.3")
    boxes = {"missing_rate": 0.25, "best_iou": 0.5, "boxes_per_probe": 7.0}
    detected = {"box_source": "rapidocr", "boxes": boxes}

    def seen_by_detector(row: dict[str, Any]) -> None:
        if row["regime"] == "oracle":
            row |= {"box_source": "rapidocr", "boxes_ms": 400.0, "regime": "detector-assisted"}

    runs = [
        make_run(tmp_path / "annotated", images=8, arms=arms),
        make_run(tmp_path / "detected", images=8, arms=arms[:2], manifest=detected, edit_row=seen_by_detector),
    ]
    page = report_on(tmp_path / "out", *runs)
    assert "boxes" in page.ids
    rows = {(row["arm"], row["box_source"]): row for row in page.rows("box_sources")}
    assert set(rows) == {("protected:0.3", source) for source in ("annotation", "rapidocr")}, "others read no boxes"
    found = rows["protected:0.3", "rapidocr"]
    assert [float(found[key]) for key in ("missing_rate", "best_iou", "boxes_ms")] == [0.25, 0.5, 400.0]
    assert rows["protected:0.3", "annotation"]["boxes_ms"] == ""
    assert "Coverage is the same under every box source." in page.readings
    cost = {row["run"]: row for row in page.rows("cost") if row["arm"] == "protected:0.3"}
    assert float(cost["detected"]["boxes_ms"]) == 400.0
    assert float(cost["detected"]["total"]) == pytest.approx(float(cost["annotated"]["total"]) + 400.0)
    assert cost["annotated"]["boxes_ms"] == ""
    regimes = {(row["run"], row["regime"]) for row in page.rows("main") if row["arm"] == "protected:0.3"}
    assert regimes == {("annotated", "oracle"), ("detected", "detector-assisted")}


@pytest.mark.parametrize("layout", ["views", "one condition a file"])
def test_control_runs_are_paired_with_the_plain_run(tmp_path: Path, layout: str, refused: Refused) -> None:
    """As the views of a control set of ours, and as the artifact's files, whose probes say ``orig``."""
    runs = [make_run(tmp_path / "plain", images=8, arms=("full", "grid:0.3"))]
    for seed in (101, 202, 303):
        view = f"image_mismatch_seed{seed}"
        recast = changed(**(dict.fromkeys(("view", "intervention"), view) if layout == "views" else {}))
        extra: dict[str, Any] = {"lexically_plausible": True}
        if layout != "views":
            extra |= {"control_type": "image_mismatch", "control_seed": seed}
        made: dict[str, Any] = {"shift": -0.5, "probe_digest": view, "manifest": {"weight_digest": "ab" * 32}}
        runs.append(make_run(tmp_path / view, images=8, arms=("full",), extra=extra, edit_row=recast, **made))
    page = report_on(tmp_path / "out", *runs)
    rows = page.rows("image_dependence")
    shown = ["matching", "wrong, seed 101", "wrong, seed 202", "wrong, seed 303", "wrong, mean"]
    assert [row["condition"] for row in rows if row["stratum"] == "all"] == shown
    assert [row["condition"] for row in rows if row["stratum"] == "plausible decoy"] == shown
    assert {row["arm"] for row in page.rows("main")} == {"full", "grid:0.3"}
    assert {row["run"] for row in page.rows("main")} == {"plain"}
    assert "over 3 seeds" in page.readings
    assert "mixed probe sets" not in page.notes, "control runs are no further probe set of the plain tables"
    assert len(page.rows("runs")) == 4, "every run that was read is named"
    refused("no usable plain row", report_on, tmp_path / "alone", *runs[1:])


def test_a_control_run_of_another_model_is_left_out(tmp_path: Path, small_run: Path) -> None:
    blank = changed(view="blank", intervention="blank")
    other = make_run(tmp_path / "other", images=4, arms=("full",), manifest={"weight_digest": "99"}, edit_row=blank)
    page = report_on(tmp_path / "apart", small_run, other)
    assert "other has no plain row, and no other run has its weights and settings: it is left out" in page.notes
    assert "image-dependence" not in page.ids


def test_text_replacement_follows_the_word(tmp_path: Path, refused: Refused) -> None:
    def written(lines: list[dict[str, Any]]) -> Source:
        """Rows alone, without a run folder behind them."""
        same = {"model": "m", "intervention": "none", "view": "orig", "keep": 0.3}
        frame = pd.DataFrame([same | line for line in lines])
        frame["arm_name"] = frame["plain_arm"] = frame["arm"]
        return Source([Audited("", None, frame, frame.iloc[:0])], [])  # type: ignore[arg-type]

    right = {"original": "source", "replacement": "target", "sham": "source"}
    lines: list[dict[str, Any]] = []
    for image in range(4):
        for version in ("original", "replacement", "sham", "erase"):
            for asked in ("source", "target"):
                label = "yes" if right.get(version) == asked else "no"
                blind = image == 0 and version == "replacement"
                margin = 1.0 if (label == "yes") != blind else -1.0
                line = {"arm": "full", "image_id": f"i{image}", "kind": f"{version}_{asked}", "label": label}
                lines.append({**line, "probe_id": f"{image}{version}{asked}", "margin": margin})
    table = text_replacement_table(written(lines))
    (row,) = table.frame.to_dict("records")
    assert [row[key] for key in ("original", "replacement", "sham", "erase")] == [1.0, 0.75, 1.0, 1.0]
    assert "full follows the painted word through all four versions on 75.0%" in table.sentence
    table.write(tmp_path)
    assert table.sentence in (tmp_path / "text_replacement.md").read_text()
    assert "follows the painted word" in (tmp_path / "text_replacement.tex").read_text()
    with pytest.raises(NoRowsError):
        text_replacement_table(written([{**lines[0], "kind": "small_positive"}]))
    lacking = written([line for line in lines if not line["kind"].startswith("sham")])
    refused("no arm has all versions", text_replacement_table, lacking)
    both = [replace(of.runs[0], name=name) for name, of in (("good", written(lines)), ("poor", lacking))]
    caption = text_replacement_table(Source(both, [])).caption
    assert re.search(r" Left out: poor: no arm has all versions.*\.$", caption)


def test_two_models_over_the_same_replaced_words_are_told_apart_exactly(tmp_path: Path) -> None:
    versions = ("original", "replacement", "sham", "erase")
    kinds = [f"{version}_{asked}" for version in versions for asked in ("source", "target")]

    def asked(failing: int) -> Any:
        """Image i asks kind i % 8 of image i // 8; the first ``failing`` of 8 images fail on the replacement."""

        def edit(row: dict[str, Any]) -> None:
            number = int(row["image_id"].removeprefix("img"))
            image, kind = number // 8, kinds[number % 8]
            right = not (image < failing and kind.startswith("replacement"))
            answer = {"margin": 1.0 if right else -1.0, "predicted": "yes" if right else "no", "correct": right}
            row |= {"kind": kind, "image_id": f"i{image}", **answer}

        return edit

    def run(name: str, failing: int, **manifest: str) -> Path:
        made: dict[str, Any] = {"edit_row": asked(failing), "manifest": manifest, "labels": ("yes",)}
        return make_run(tmp_path / name, images=64, arms=("full",), **made)

    runs = [run("good", 1, model="good"), run("poor", 7, model="poor", weight_digest="ef" * 32)]
    page = report_on(tmp_path / "out", *runs)
    (row,) = page.rows("text_replacement_models")
    assert (row["first"], row["second"], row["images"]) == ("good", "poor", "8")
    assert (row["only_first"], row["only_second"]) == ("6", "0")
    assert float(row["mcnemar_p"]) == pytest.approx(2 / 2**6)
    assert "good and poor differ on 6 of 8 images: 87.5% against 12.5% pass all four" in page.readings
    assert models_table(read_source(runs[:1])) is None
    other = run("elsewhere", 7, model="other", weight_digest="ee" * 32, probe_digest="other")
    assert models_table(read_source([runs[0], other])) is None


def test_the_edited_glyph_and_its_word_come_from_the_same_mask(tmp_path: Path) -> None:
    arms = ("full", "target:0.3", "random:0.3", "grid:0.3", "random:0.5")
    # The word is said to fill the image: its coverage by a mask is then the kept share, on a raster of equal cells.
    asked: dict[str, Any] = {"labels": ("yes",), "extra": {"word_region": [0, 0, 1, 1]}}
    asked["edit_row"] = changed(kind="edit_region")
    page = page_of(tmp_path, images=12, arms=arms, **asked)
    rows = page.rows("edit_region")
    frame = load_run(tmp_path / "run").frame().set_index(["arm", "probe_id"]).astype({"correct": float})
    for row in rows:
        own = frame.loc[row["arm"]]
        expected = {
            "word_ecr": own["keep"],
            "ecr": own["ecr"],
            "accuracy": own["correct"],
            "edit_gone": own["ecr"] <= 1e-12,
            "word_kept_edit_lost": (own["keep"] >= 0.5) & (own["ecr"] < 0.5),
        }
        if row["against"]:
            other = frame.loc[row["against"]]
            expected |= {"ecr_gain": own["ecr"] - other["ecr"], "accuracy_gain": own["correct"] - other["correct"]}
            assert float(row["ecr_gain_low"]) <= float(row["ecr_gain"]) <= float(row["ecr_gain_high"])
        for name, values in expected.items():
            assert float(row[name]) == pytest.approx(values.mean(), abs=1e-6 if name == "word_ecr" else 1e-12), name
    pairs = {(row["arm"], row["against"]) for row in rows if row["arm"] != "full"}
    assert pairs == {
        ("target:0.3", "random:0.3"), ("target:0.3", "grid:0.3"), ("random:0.3", "grid:0.3"),
        ("grid:0.3", "random:0.3"), ("random:0.5", ""),
    }  # fmt: skip
    assert "of the substituted character" in page.readings
    assert f"from {DRAWS} draws" in page.text
    alone = page_of(tmp_path / "alone", images=6, arms=("full", "target:0.3"), **asked)
    assert "nothing to be compared with" in alone.readings
