from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sightline.core.table import Table
from sightline.core.text import BEGINNINGS
from sightline.errors import SightlineError
from sightline.report.build import build_report
from sightline.store.folder import RunFolder
from tests.unit.report.conftest import DRAWS, notes, outline
from tests.unit.report.fake_run import HOSTILE, break_margin, make_run

TABLES = (
    "main",
    "contract",
    "runs",
    "paired_differences",
    "correct_positive_provenance",
    "calibration",
    "thresholds",
    "flips",
    "geometry",
    "scale_strata",
    "association",
    "cost",
)


def test_every_table_is_there_in_three_formats(report: Path) -> None:
    for name in TABLES:
        for suffix in ("csv", "md", "tex"):
            assert (report.parent / "tables" / f"{name}.{suffix}").stat().st_size > 0
    rows = list(csv.DictReader((report.parent / "tables/main.csv").open()))
    assert [row["arm"] for row in rows][:3] == ["full", "target:0.15", "target:0.3"]
    assert float(rows[0]["accuracy_low"]) <= float(rows[0]["accuracy"]) <= float(rows[0]["accuracy_high"])


def test_the_page_is_whole_and_asks_for_nothing(report: Path) -> None:
    page = outline(report)
    for section in ("contract", "frontier", "differences", "provenance", "pictures", "calibration", "geometry", "cost"):
        assert section in page.ids
    assert len(page.ids) == len(set(page.ids))
    outside = [r for r in page.references if not r.startswith(("#", "data:image/jpeg;base64,"))]
    assert outside == []
    text = report.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert "url(http" not in text


def test_words_say_what_the_intervals_allow(report: Path) -> None:
    text = " ".join("".join(outline(report).text).split())
    assert re.search(r"target:0.5 keeps 50%; accuracy 0\.\d{3}, (not distinguishable|lower|higher)", text)
    assert "of the evidence survives in merges" in text
    assert re.search(r"not distinguishable from Full: [−+]?0\.\d{3} to [−+]?0\.\d{3}", text)


def test_the_first_picture_is_correct_without_evidence(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert text.index('id="hero"') < text.index('id="gallery"')
    caption = re.search(r"<figcaption>(.*?)</figcaption>", text, re.S)
    assert caption is not None
    assert "The same answer, with and without the evidence." in caption[1]


def test_hostile_strings_stay_text(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert HOSTILE not in text
    assert "document.title='owned'</script>" not in text
    assert len(re.findall(r"<script", text)) == 2
    assert "script-src 'sha256-" in text


def test_previews_are_inlined_once(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    jpegs = re.findall(r"/9j/[A-Za-z0-9+/=]{200,}", text)
    assert len(jpegs) == len(set(jpegs)) == 20


def test_a_report_needs_no_torch_and_stays_small(tmp_path: Path) -> None:
    """20 arms in a fresh interpreter. How long it takes is measured by ``benchmarks/report.py``."""
    arms = ["full", *(f"{s}:{b}" for s in ("target", "random", "grid") for b in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6))]
    run = make_run(tmp_path / "run", images=60, arms=[*arms, "visionzip:0.3"])
    code = (
        "import sys; from sightline.report.build import build_report; "
        f"build_report([{str(run)!r}], {str(tmp_path / 'out')!r}, draws={DRAWS}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "out/report.html").stat().st_size < 4_000_000


def test_a_run_without_full_says_so_in_place(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=6, arms=("target:0.3", "random:0.3"))
    page = build_report([run], tmp_path / "out", draws=DRAWS)
    assert "no full arm" in notes(page)
    assert "flips are counted against Full" in notes(page)
    assert (tmp_path / "out/tables/main.csv").exists()
    assert not (tmp_path / "out/tables/paired_differences.csv").exists()


def test_full_alone_still_makes_a_report(tmp_path: Path) -> None:
    page = build_report([make_run(tmp_path / "run", images=5, arms=("full",))], tmp_path / "out", draws=DRAWS)
    assert "Full is the only arm" in notes(page)


def test_mixed_probe_sets_are_named_and_reported_side_by_side(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", images=6, arms=("full", "grid:0.3"), seed=9, probe_digest="99" * 32)
    page = build_report([run, other], tmp_path / "out", draws=DRAWS)
    assert "mixed probe sets" in notes(page)
    rows = list(csv.DictReader((tmp_path / "out/tables/main.csv").open()))
    assert {("run", "target:0.3"), ("other", "grid:0.3")} <= {(row["run"], row["arm"]) for row in rows}


def test_one_image_has_no_intervals_but_a_report(tmp_path: Path) -> None:
    page = build_report([make_run(tmp_path / "run", images=1)], tmp_path / "out", draws=DRAWS)
    assert "fewer than two images" in notes(page)
    row = next(iter(csv.DictReader((tmp_path / "out/tables/main.csv").open())))
    assert row["accuracy"]
    assert row["accuracy_low"] == ""


@pytest.mark.parametrize("label", ["yes", "no"])
def test_a_single_class_is_one_line_each(tmp_path: Path, label: str) -> None:
    page = build_report([make_run(tmp_path / "run", images=8, labels=(label,))], tmp_path / "out", draws=DRAWS)
    assert f"every probe has label {label}" in notes(page)
    assert "thresholds need both labels" in notes(page)
    assert (tmp_path / "out/tables/main.csv").exists()


def test_empty_regions_leave_the_answers(tmp_path: Path) -> None:
    page = build_report([make_run(tmp_path / "run", images=8, regions=False)], tmp_path / "out", draws=DRAWS)
    found = notes(page)
    assert "no probe has a region" in found
    assert "the frontier has no points" in found
    assert "no geometry to validate" in found
    assert (tmp_path / "out/tables/paired_differences.csv").exists()
    outline(page)


def test_non_finite_margins_are_left_out_and_counted(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=8, edit_row=break_margin("img0003:yes", "target:0.3"))
    page = build_report([run], tmp_path / "out", draws=DRAWS)
    assert "1 probe has a non-finite margin in some arm (first: img0003:yes)" in notes(page)
    rows = list(csv.DictReader((tmp_path / "out/tables/contract.csv").open()))
    assert {row["probes"] for row in rows} == {"15"}, "every arm is judged on the same probes"


def test_an_arm_that_overflowed_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=6, edit_row=break_margin("", "grid:0.3", float("inf")))
    page = build_report([run], tmp_path / "out", draws=DRAWS)
    assert "arm grid:0.3 has no finite margin" in notes(page)
    assert "grid:0.3" not in (tmp_path / "out/tables/main.csv").read_text()


def test_nothing_usable_is_an_error(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=3, edit_row=break_margin("", None))
    with pytest.raises(SightlineError, match="no usable plain row"):
        build_report([run], tmp_path / "out", draws=DRAWS)
    with pytest.raises(SightlineError, match="not a run folder"):
        build_report([tmp_path / "nowhere"], tmp_path / "out")
    with pytest.raises(SightlineError, match="no run folder"):
        build_report([], tmp_path / "out")


def test_an_unfinished_run_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=6)
    RunFolder(run).rows_file("grid:0.3", 0).unlink()
    page = build_report([run], tmp_path / "out", draws=DRAWS)
    assert "the run is not finished" in notes(page)


def test_a_broken_preview_costs_the_pictures_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=4)
    folder = RunFolder(run)
    from sightline.rows.run import load_run

    records = [{**record, "preview": b"broken"} for record in load_run(run).images.to_pylist()]
    folder.images_file(0, "orig").unlink()  # records that are there stay
    folder.write_images(0, "orig", records)
    page = build_report([run], tmp_path / "out", draws=DRAWS)
    assert "is not a readable picture" in notes(page)
    assert 'id="gallery"' not in page.read_text()
    assert "<noscript>" not in page.read_text()


def test_no_pictures_on_request(run: Path, tmp_path: Path) -> None:
    page = build_report([run], tmp_path / "out", cases=0, draws=DRAWS)
    assert "no case to show" in notes(page)
    assert "data:image" not in page.read_text()


def test_interventions_have_a_section_of_their_own(tmp_path: Path) -> None:
    def delete(row: dict[str, Any]) -> None:
        if row["arm"] == "grid:0.3":
            row["intervention"] = "delete"

    page = build_report([make_run(tmp_path / "run", images=6, edit_row=delete)], tmp_path / "out", draws=DRAWS)
    assert "interventions" in outline(page).ids
    assert "grid:0.3" not in (tmp_path / "out/tables/main.csv").read_text()
    assert ",delete," in (tmp_path / "out/tables/interventions.csv").read_text()


def test_further_references_and_the_association_of_coverage(run: Path, tmp_path: Path) -> None:
    build_report([run], tmp_path / "out", references=["random:0.3"], draws=DRAWS, cases=1)
    rows = list(csv.DictReader((tmp_path / "out/tables/paired_differences.csv").open()))
    pair = [r for r in rows if (r["arm"], r["against"], r["label"]) == ("target:0.3", "random:0.3", "PosECR")]
    assert len(pair) == 1
    assert float(pair[0]["diff_low"]) > 0, "the target selector keeps more of the evidence than chance"
    assert pair[0]["words"].startswith("higher than random:0.3 by")
    found = list(csv.DictReader((tmp_path / "out/tables/association.csv").open()))
    assert {row["budget"] for row in found} == {"0.3", "0.5"}
    assert all(-1 <= float(row["r_low"]) <= float(row["r_high"]) <= 1 for row in found if row["r"])
    with pytest.raises(SightlineError, match=r"did you mean 'random:0\.3'"):
        build_report([run], tmp_path / "out", references=["randm:0.3"], draws=DRAWS)


def test_arms_that_differ_in_their_seed_are_described_together(tmp_path: Path) -> None:
    def seeded(row: dict[str, Any]) -> None:
        if row["selector"] == "random":
            row["arguments"] = '{"seed": ' + row["arm"].split("=")[1] + "}"
            row["budget"] = "0.3"

    arms = ("full", "random:0.3,seed=1", "random:0.3,seed=2", "random:0.3,seed=3")
    run = make_run(tmp_path / "run", images=6, arms=arms, edit_row=seeded)
    build_report([run], tmp_path / "out", draws=DRAWS)
    (row,) = csv.DictReader((tmp_path / "out/tables/seeds.csv").open())
    assert row["family"] == "random:0.3"
    assert row["seeds"] == "3"
    assert float(row["accuracy_low"]) <= float(row["accuracy"]) <= float(row["accuracy_high"])


def test_headings_are_words_that_a_reader_knows(run: Path, tmp_path: Path) -> None:
    page = build_report([run], tmp_path / "out", draws=DRAWS).read_text(encoding="utf-8")
    headings = re.findall(r"<h2[^>]*>\s*(.*?)\s*</h2>", page)
    assert headings[:8] == [
        "In short", "Frontier", "Contract", "Differences", "Provenance", "Pictures", "Calibration", "Geometry",
    ]  # fmt: skip


def test_a_kill_between_tables_and_page_leaves_no_page_that_does_not_fit_them(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = build_report([run], tmp_path / "out", draws=100, cases=2)
    plain = Table.write
    written: list[str] = []

    def stopped(self: Table, *arguments: Any) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(self.name)
        plain(self, *arguments)

    monkeypatch.setattr(Table, "write", stopped)
    with pytest.raises(KeyboardInterrupt):
        build_report([run], tmp_path / "out", draws=100, cases=2)
    assert len(written) == 3
    assert not page.exists()


def test_no_cell_of_a_table_is_a_formula(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=4, arms=("full", "target:0.3"), manifest={"model": "=cmd|' /C calc'!A0"})
    page = build_report([run], tmp_path / "out", draws=100, cases=2)
    cells = [
        cell
        for file in (page.parent / "tables").glob("*.csv")
        for row in csv.reader(io.StringIO(file.read_text(encoding="utf-8")))
        for cell in row
    ]
    assert any(cell.startswith("'=cmd") for cell in cells)
    for cell in cells:
        if cell.startswith(BEGINNINGS):
            float(cell)  # a number is all that may begin so
