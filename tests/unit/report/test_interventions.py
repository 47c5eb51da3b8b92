"""One section for each intervention, and plain tables that no intervention disturbs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.errors import SightlineError
from sightline.report.build import build_report
from sightline.report.by_run import signed
from sightline.report.sections.replaced_text import edit_region_table, text_replacement_table
from sightline.report.source import Audited, Source
from sightline.report.table import format_value
from tests.unit.report.conftest import DRAWS
from tests.unit.report.fake_run import EDITED, PLAIN, make_run
from tests.unit.report.test_build import break_margin, notes, outline

MADE = {
    "deletion": ("deletion", "logit_drop"),
    "occlusion": ("occlusion",),
    "image-dependence": ("image_dependence",),
    "positions": ("positions",),
    "validity": ("association", "construct_validity", "drop_strata"),
    "interventions": ("interventions",),
}
UNDISTURBED = ("main", "paired_differences", "correct_positive_provenance", "thresholds", "flips", "geometry")


def read(page: Path, table: str) -> list[dict[str, str]]:
    with (page.parent / "tables" / f"{table}.csv").open() as file:
        return list(csv.DictReader(file))


def readings(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return " ".join(part.split("</p>")[0] for part in text.split('<p class="reading">')[1:])


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edited")
    return build_report([make_run(folder / "run", images=24, arms=EDITED)], folder / "out", draws=DRAWS, cases=6)


def test_every_intervention_has_its_section_and_tables(edited: Path) -> None:
    page = outline(edited)
    for section, tables in MADE.items():
        assert section in page.ids
        for name in tables:
            assert f"table-{name}" in page.ids
            for suffix in ("csv", "md", "tex"):
                assert (edited.parent / "tables" / f"{name}.{suffix}").stat().st_size > 0
    assert notes(edited) == ""
    assert "boxes" not in page.ids, "all rows saw the annotation"
    assert "text-replacement" not in page.ids


def test_plain_runs_have_none_of_them(report: Path) -> None:
    page = outline(report)
    assert {"deletion", "occlusion", "image-dependence", "positions", "boxes", "interventions"}.isdisjoint(page.ids)
    assert "validity" in page.ids, "arms at one budget are enough for the association"


def test_interventions_do_not_disturb_the_plain_tables(edited: Path, tmp_path: Path) -> None:
    plain = build_report([make_run(tmp_path / "run", images=24, arms=PLAIN)], tmp_path / "out", draws=DRAWS, cases=6)
    for table in UNDISTURBED:
        name = f"tables/{table}.csv"
        assert (edited.parent / name).read_text() == (plain.parent / name).read_text(), table

    def gallery(page: Path) -> str:
        return page.read_text(encoding="utf-8").split('id="cases">')[1].split("</script>")[0]

    assert gallery(edited) == gallery(plain)


def test_margins_that_overflow_under_an_edit_stay_there(tmp_path: Path) -> None:
    def overflow(row: dict[str, Any]) -> None:
        if row["intervention"] == "blank":
            break_margin("img0003", None)(row)

    whole = build_report([make_run(tmp_path / "a", images=6, arms=EDITED)], tmp_path / "whole", draws=DRAWS)
    run = make_run(tmp_path / "b", images=6, arms=EDITED, edit_row=overflow)
    broken = build_report([run], tmp_path / "broken", draws=DRAWS)
    assert "4 rows under an intervention have a non-finite margin" in notes(broken)
    assert read(broken, "main") == read(whole, "main")
    assert {row["n"] for row in read(broken, "image_dependence")} == {"12", "10"}


def test_deletion_costs_what_restoring_brings_back(edited: Path) -> None:
    rows = {row["variant"]: row for row in read(edited, "deletion")}
    assert float(rows["evidence removed"]["pos_ecr"]) == 0
    assert float(rows["evidence removed"]["change"]) < 0
    assert float(rows["evidence back, 100%"]["recovery"]) == pytest.approx(1)
    assert float(rows["other tokens instead, 100%"]["recovery"]) == pytest.approx(0)
    assert "target:0.3 loses accuracy when the evidence is removed: −0." in readings(edited)
    assert "of 1 arms" not in readings(edited)
    assert "the evidence itself brings back 100% and as many other tokens 0%" in readings(edited)


def test_support_falls_with_the_evidence(edited: Path) -> None:
    kept = next(row for row in read(edited, "logit_drop") if row["left"].startswith("evidence_only"))
    assert kept["right"] == "anti_evidence:0.3"
    assert float(kept["pos_support_diff_low"]) > 0
    occluded = {(row["arm"], row["compared"]): row for row in read(edited, "occlusion")}
    assert float(occluded["full", "original − evidence grayed"]["pos_support_diff"]) == pytest.approx(0.75)
    assert float(occluded["full", "original − other box grayed"]["pos_support_diff"]) == pytest.approx(0)
    assert "graying the evidence lowers the target support of full by 0.750 (0.750–0.750)" in readings(edited)


def test_positions_compare_equal_masks(edited: Path) -> None:
    rows = read(edited, "positions")
    assert {row["arm"] for row in rows} == {"target:0.3"}
    assert {row["mask_mismatches"] for row in rows} == {"0"}
    assert "the position policy alone turns 0 of 48 answers" in readings(edited)


def test_coverage_correlates_with_what_deleting_does(edited: Path) -> None:
    rows = [row for row in read(edited, "construct_validity") if row["predictor"] == "ECR"]
    removed = next(row for row in rows if row["outcome"] == "evidence removed")
    assert removed["arm"] == "target:0.3"
    assert float(removed["pearson"]) == pytest.approx(1), "the drop is linear in coverage here"
    assert float(removed["spearman_low"]) > 0
    assert float(removed["partial_spearman_low"]) > 0
    assert "pairs of arm and outcome" in readings(edited)
    strata = read(edited, "drop_strata")
    assert {row["stratum"] for row in strata} == {"small", "medium", "large"}
    assert sum(int(row["n"]) for row in strata if row["scale"] == "evidence area") == 24


def test_half_an_occlusion_is_one_line_in_place(tmp_path: Path) -> None:
    arms = ("full", "target:0.3", "random:0.3", "target:0.3+remove_evidence", "full+occlude_evidence")
    page = build_report([make_run(tmp_path / "run", images=8, arms=arms)], tmp_path / "out", draws=DRAWS)
    assert "no arm was run on occluded images" in notes(page)
    assert {"occlusion", "table-deletion", "table-main"} <= set(outline(page).ids)
    assert not (page.parent / "tables/occlusion.csv").exists()


def seen_by(source: str, milliseconds: float | None = None) -> Any:
    def edit(row: dict[str, Any]) -> None:
        if row["regime"] == "oracle":
            row |= {"box_source": source, "boxes_ms": milliseconds, "regime": "detector-assisted"}

    return edit


def test_box_sources_of_several_runs_stand_side_by_side(tmp_path: Path) -> None:
    arms = ("full", "protected:0.3", "grid:0.3")
    boxes = {"missing_rate": 0.25, "best_iou": 0.5, "boxes_per_probe": 7.0}
    runs = [
        make_run(tmp_path / "annotated", images=8, arms=arms),
        make_run(
            tmp_path / "detected",
            images=8,
            arms=arms[:2],
            manifest={"box_source": "rapidocr", "boxes": boxes},
            edit_row=seen_by("rapidocr", 400.0),
        ),
    ]
    page = build_report(runs, tmp_path / "out", draws=DRAWS)
    assert "boxes" in outline(page).ids
    rows = {(row["arm"], row["box_source"]): row for row in read(page, "box_sources")}
    assert set(rows) == {("protected:0.3", source) for source in ("annotation", "rapidocr")}, "others read no boxes"
    found = rows["protected:0.3", "rapidocr"]
    assert [float(found[key]) for key in ("missing_rate", "best_iou", "boxes_ms")] == [0.25, 0.5, 400.0]
    assert rows["protected:0.3", "annotation"]["boxes_ms"] == ""
    assert "Coverage is the same under every box source." in readings(page)
    cost = {row["run"]: row for row in read(page, "cost") if row["arm"] == "protected:0.3"}
    assert float(cost["detected"]["boxes_ms"]) == 400.0
    assert float(cost["detected"]["total"]) == pytest.approx(float(cost["annotated"]["total"]) + 400.0)
    assert cost["annotated"]["boxes_ms"] == ""
    regimes = {(row["run"], row["regime"]) for row in read(page, "main") if row["arm"] == "protected:0.3"}
    assert regimes == {("annotated", "oracle"), ("detected", "detector-assisted")}


def test_cost_has_no_detector_column_without_a_detector(report: Path) -> None:
    assert "boxes_ms" not in read(report, "cost")[0]


@pytest.mark.parametrize("layout", ["views", "one condition a file"])
def test_control_runs_are_paired_with_the_plain_run(tmp_path: Path, layout: str) -> None:
    """As the views of a control set of ours, and as the artifact's files, whose probes say ``orig``."""
    runs = [make_run(tmp_path / "plain", images=8, arms=("full", "grid:0.3"))]
    for seed in (101, 202, 303):
        view = f"image_mismatch_seed{seed}"

        def recast(row: dict[str, Any], view: str = view) -> None:
            row |= {"view": view, "intervention": view} if layout == "views" else {}

        extra: dict[str, Any] = {"lexically_plausible": True}
        if layout != "views":
            extra |= {"control_type": "image_mismatch", "control_seed": seed}
        weights = {"weight_digest": "ab" * 32}
        made = make_run(
            tmp_path / view,
            images=8,
            arms=("full",),
            shift=-0.5,
            extra=extra,
            edit_row=recast,
            probe_digest=view,
            manifest=weights,
        )
        runs.append(made)
    page = build_report(runs, tmp_path / "out", draws=DRAWS)
    rows = read(page, "image_dependence")
    shown = ["matching", "wrong, seed 101", "wrong, seed 202", "wrong, seed 303", "wrong, mean"]
    assert [row["condition"] for row in rows if row["stratum"] == "all"] == shown
    assert [row["condition"] for row in rows if row["stratum"] == "plausible decoy"] == shown
    assert {row["arm"] for row in read(page, "main")} == {"full", "grid:0.3"}
    assert {row["run"] for row in read(page, "main")} == {"plain"}
    assert "over 3 seeds" in readings(page)
    assert "mixed probe sets" not in notes(page), "control runs are no further probe set of the plain tables"
    assert len(read(page, "runs")) == 4, "every run that was read is named"
    with pytest.raises(SightlineError, match="no usable plain row"):
        build_report(runs[1:], tmp_path / "alone", draws=DRAWS)


def test_a_control_run_of_another_model_is_left_out_and_named(tmp_path: Path) -> None:
    def blank(row: dict[str, Any]) -> None:
        row |= {"view": "blank", "intervention": "blank"}

    plain = make_run(tmp_path / "plain", images=4, arms=("full", "grid:0.3"))
    other = make_run(tmp_path / "other", images=4, arms=("full",), manifest={"weight_digest": "99"}, edit_row=blank)
    page = build_report([plain, other], tmp_path / "out", draws=DRAWS)
    assert "other has no plain row, and no other run has its weights and settings: it is left out" in notes(page)
    assert "image-dependence" not in outline(page).ids


def written(lines: list[dict[str, Any]]) -> Source:
    """Rows alone, without a run folder behind them."""
    frame = pd.DataFrame(
        [{"model": "m", "intervention": "none", "view": "orig", "keep": 0.3, **line} for line in lines]
    )
    frame["arm_name"] = frame["plain_arm"] = frame["arm"]
    return Source([Audited("", None, frame, frame.iloc[:0])], [])  # type: ignore[arg-type]


def test_text_replacement_follows_the_word(tmp_path: Path) -> None:
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
    assert table is not None
    (row,) = table.frame.to_dict("records")
    assert [row[key] for key in ("original", "replacement", "sham", "erase")] == [1.0, 0.75, 1.0, 1.0]
    assert "full follows the painted word through all four versions on 75.0%" in table.reading
    table.write(tmp_path)
    assert table.reading in (tmp_path / "text_replacement.md").read_text()
    assert "follows the painted word" in (tmp_path / "text_replacement.tex").read_text()
    assert text_replacement_table(written([{**lines[0], "kind": "small_positive"}])) is None
    with pytest.raises(SightlineError, match="no arm has all versions"):
        text_replacement_table(written([line for line in lines if not line["kind"].startswith("sham")]))


def test_the_edited_glyph_is_compared_with_controls() -> None:
    lines = []
    for arm, ecr in (("target:0.3", 0.9), ("random:0.3", 0.3), ("grid:0.3", 0.2)):
        for image in range(5):
            line: dict[str, Any] = {
                "arm": arm,
                "selector": arm.split(":")[0],
                "image_id": f"i{image}",
                "probe_id": f"p{image}",
            }
            line |= {"kind": "edit_region", "label": "yes", "predicted": "yes", "correct": True, "margin": 1.0}
            lines.append({**line, "ecr": ecr, "center_recall": ecr, "patch_recall": ecr})
    table = edit_region_table(written(lines), DRAWS)
    assert table is not None
    assert (
        "target:0.3 keeps 90.0% of the substituted character: +0.700 (+0.700 to +0.700) against grid:0.3"
        in table.reading
    )
    alone = edit_region_table(written(lines[:5]), DRAWS)
    assert alone is not None
    assert "nothing to be compared with" in alone.reading


def test_values_in_sentences() -> None:
    assert signed({"d": -0.031, "d_low": -0.094, "d_high": 0.031}, "d") == "−0.031 (−0.094 to +0.031, holds zero)"
    assert signed({"d": 0.2, "d_low": 0.1, "d_high": 0.3}, "d") == "+0.200 (+0.100 to +0.300)"
    assert signed({"d": 0.2, "d_low": float("nan"), "d_high": float("nan")}, "d") == "+0.200"
    assert [format_value(value, "percent") for value in (-0.0, -0.25, 1.0)] == ["0.0%", "−25.0%", "100.0%"]
