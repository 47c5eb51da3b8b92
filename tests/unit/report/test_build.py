"""The page and its tables: whole, escaped, complete; what a poor run says in place; sections that others add."""

import csv
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.commands.run import print_summary
from sightline.core.table import Table, TableColumn, format_range
from sightline.core.text import BEGINNINGS
from sightline.errors import SightlineError
from sightline.gate.decisions import run_gate
from sightline.report.build import build_report
from sightline.report.sections import SECTIONS, Context, Section, SectionMaker
from sightline.report.sections.contract import runs_table
from sightline.report.sections.geometry import geometry_table, strata_table
from sightline.report.summary import main_table, summarise
from sightline.rows.run import load_run
from sightline.rows.source import read_source
from sightline.store.folder import RunFolder
from tests.refusals import Refused
from tests.runs.pages import DRAWS, Page, missing, page_of, report_on
from tests.runs.yes_no import COLUMNS, HOSTILE, NAN, ROWS, WITHOUT_MARGIN, changed, make_run

TABLES = (
    "main", "contract", "runs", "paired_differences", "correct_positive_provenance", "calibration", "thresholds",
    "flips", "geometry", "scale_strata", "association", "cost",
)  # fmt: skip
SECTIONS_OF_ANY_RUN = (
    "pictures", "frontier", "contract", "differences", "provenance", "calibration", "geometry", "legibility", "cost",
)  # fmt: skip
FAILED = "this section cannot be made"


def test_the_page_is_whole_asks_for_nothing_and_says_what_the_intervals_allow(report: Page) -> None:
    for name in TABLES:
        for suffix in ("csv", "md", "tex"):
            assert report.file(f"{name}.{suffix}").stat().st_size > 0
    rows = report.rows("main")
    assert [row["arm"] for row in rows][:3] == ["full", "target:0.15", "target:0.3"]
    assert float(rows[0]["accuracy_low"]) <= float(rows[0]["accuracy"]) <= float(rows[0]["accuracy_high"])
    assert set(SECTIONS_OF_ANY_RUN) <= set(report.ids)
    assert len(report.ids) == len(set(report.ids))
    assert all(link.startswith(("#", "data:image/jpeg;base64,")) for link in report.outline.references)
    assert set(re.findall(r"https?://[^\s\"'<]+", report.text)) == {"http://www.w3.org/2000/svg"}
    for words in ("@import", "url(http", HOSTILE, "document.title='owned'</script>"):
        assert words not in report.text
    headings = re.findall(r"<h2[^>]*>\s*(.*?)\s*</h2>", report.text)
    assert headings[:5] == ["Verdict", "In short", "Pictures", "Frontier", "Contract"]
    assert len(re.findall(r"<script", report.text)) == 2
    assert "script-src 'sha256-" in report.text
    jpegs = re.findall(r"/9j/[A-Za-z0-9+/=]{200,}", report.text)
    assert len(jpegs) == len(set(jpegs)) == 20
    said = " ".join("".join(report.outline.text).split())
    assert re.search(r"target:0.5 keeps 50%; accuracy 0\.\d{3}, (not distinguishable|lower|higher)", said)
    assert "of the evidence survives in merges" in said
    assert re.search(r"not distinguishable from Full: [−+]?0\.\d{3} to [−+]?0\.\d{3}", said)
    assert report.text.index('id="hero"') < report.text.index('id="gallery"')
    (caption,) = re.findall(r"<figcaption>(.*?)</figcaption>", report.text, re.S)[:1]
    assert "The same answer, with and without the evidence." in caption


def test_a_report_needs_no_torch_and_stays_small(tmp_path: Path) -> None:
    """20 arms in a fresh interpreter. How long it takes is measured by ``benchmarks/report.py``."""
    arms = ["full", *(f"{s}:{b}" for s in ("target", "random", "grid") for b in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6))]
    run = make_run(tmp_path / "run", images=60, arms=[*arms, "visionzip:0.3"])
    code = (
        "import sys; from sightline.report.build import build_report; "
        f"build_report([{str(run)!r}], {str(tmp_path / 'out')!r}, draws=100); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "out/report.html").stat().st_size < 4_000_000


POOR: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no full": ({"images": 6, "arms": ("target:0.3", "random:0.3")}, ["no full arm", "flips are counted against Full"]),
    "full alone": ({"images": 5, "arms": ("full",)}, ["Full is the only arm"]),
    "one image": ({"images": 1, "arms": ("full", "grid:0.3")}, ["fewer than two images"]),
    "yes alone": ({"images": 8, "labels": ("yes",)}, ["every probe has label yes", "thresholds need both labels"]),
    "no alone": ({"images": 8, "labels": ("no",)}, ["every probe has label no", "thresholds need both labels"]),
    "no regions": (
        {"images": 8, "regions": False},
        ["no probe has a region", "the frontier has no points", "no geometry to validate"],
    ),
    "a margin that is none": (
        {"images": 8, "edit_row": changed(probe="img0003:yes", arm="target:0.3", margin=NAN)},
        ["1 probe has a non-finite margin in some arm (first: img0003:yes)"],
    ),
    "an arm that overflowed": (
        {"images": 6, "edit_row": changed(arm="grid:0.3", margin=float("inf"))},
        ["arm grid:0.3 has no finite margin"],
    ),
}


@pytest.mark.parametrize("case", POOR)
def test_what_a_run_lacks_is_a_line_in_place_and_the_rest_is_reported(case: str, tmp_path: Path) -> None:
    run, lines = POOR[case]
    page = page_of(tmp_path, **run)
    assert missing(page.notes, *lines) == []
    assert FAILED not in page.text
    assert page.outline.stack == []
    main = {row["arm"]: row for row in page.rows("main")}
    assert page.has("paired_differences") == (len(main) > 1 and "full" in main)
    assert ("grid:0.3" in main) == (case not in ("an arm that overflowed", "no full", "full alone"))
    if case == "one image":
        assert main["full"]["accuracy"]
        assert main["full"]["accuracy_low"] == ""
    if case == "a margin that is none":
        assert {row["probes"] for row in page.rows("contract")} == {"15"}, "every arm is judged on the same probes"


def test_runs_over_other_probes_stand_side_by_side_and_are_called_mixed(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", images=6, arms=("full", "grid:0.3"), seed=9, probe_digest="99" * 32)
    page = report_on(tmp_path / "mixed", run, other)
    assert "mixed probe sets" in page.notes
    assert {("run", "target:0.3"), ("other", "grid:0.3")} <= {(row["run"], row["arm"]) for row in page.rows("main")}


def test_a_run_that_is_not_finished_says_so_and_a_broken_preview_costs_the_pictures_alone(tmp_path: Path) -> None:
    broken = make_run(tmp_path / "broken", images=4, edit_image=lambda record: record.update(preview=b"broken"))
    RunFolder(broken).rows_file("grid:0.3", 0).unlink()
    page = report_on(tmp_path / "unfinished", broken)
    assert missing(page.notes, "the run is not finished", "is not a readable picture") == []
    assert 'id="gallery"' not in page.text
    assert "<noscript>" not in page.text


def test_an_intervention_that_nobody_knows_is_in_its_own_table_alone(tmp_path: Path) -> None:
    unknown = page_of(tmp_path / "unknown", images=6, edit_row=changed(arm="grid:0.3", intervention="delete"))
    assert "interventions" in unknown.ids
    assert "grid:0.3" not in unknown.file("main.csv").read_text()
    assert ",delete," in unknown.file("interventions.csv").read_text()


def test_what_served_a_run_is_told_where_it_was_recorded(small_run: Path, tmp_path: Path) -> None:
    own = "the model's own decoder: it has layers of type sliding_attention"
    told = make_run(tmp_path / "told", images=2, manifest={"served_by": {"images": "General", "language": own}})
    assert runs_table(read_source([told, small_run])).frame["served_by"].tolist() == [
        f"General, {own}", "not recorded",
    ]  # fmt: skip


def test_runs_of_which_nothing_can_be_reported_are_refused(tmp_path: Path, refused: Refused) -> None:
    unusable = make_run(tmp_path / "run", images=3, edit_row=changed(margin=NAN))
    for runs, about in (
        ([unusable], "no usable plain row"),
        ([tmp_path / "nowhere"], "not a run folder"),
        ([], "no run"),
    ):
        refused(about, build_report, runs, tmp_path / "out")


def test_further_references_and_associations_and_no_pictures_on_request(
    run: Path, tmp_path: Path, refused: Refused
) -> None:
    page = report_on(tmp_path, run, references=["random:0.3"], cases=0)
    assert "no case to show" in page.notes
    assert "data:image" not in page.text
    asked = ("target:0.3", "random:0.3", "PosECR")
    (pair,) = (r for r in page.rows("paired_differences") if (r["arm"], r["against"], r["label"]) == asked)
    assert float(pair["diff_low"]) > 0, "the target selector keeps more of the evidence than chance"
    assert pair["words"].startswith("higher than random:0.3 by")
    found = page.rows("association")
    assert {row["budget"] for row in found} == {"0.3", "0.5"}
    assert all(-1 <= float(row["r_low"]) <= float(row["r_high"]) <= 1 for row in found if row["r"])
    refused("did you mean 'random:0.3'", report_on, tmp_path, run, references=["randm:0.3"])


def test_seeds_sweeps_and_shuffled_controls_stand_among_the_differences(tmp_path: Path) -> None:
    arms = (
        "full", "target:0.3", "target:0.3,1", "target:0.3,2", "shuffled:0.3", "random:0.3", "random:0.3,1",
        "random:0.3,2", "grid:0.5",
    )  # fmt: skip
    given = {"target": {"": '{"weight": 0.85}', "1": '{"weight": 0.5}', "2": '{"weight": 1.0}'}}
    given["random"] = {number: f'{{"seed": {number or 0}}}' for number in ("", "1", "2")}

    def argued(row: dict[str, Any]) -> None:
        if row["selector"] in given:
            row |= {"arguments": given[row["selector"]][row["arm"].partition(",")[2]], "budget": "0.3"}

    page = page_of(tmp_path, images=10, arms=arms, edit_row=argued)
    (row,) = page.rows("seeds")
    assert (row["family"], row["seeds"]) == ("random:0.3", "3")
    assert float(row["accuracy_low"]) <= float(row["accuracy"]) <= float(row["accuracy_high"])
    found = page.frame("seed_differences")
    assert (set(found["arm"]), set(found["against"])) == (set(arms[1:5]), {"random:0.3"})
    assert set(found["label"]) == {"Accuracy", "hFPR", "PosECR"}
    main = page.frame("main").set_index("arm")
    line = found[(found["label"] == "PosECR") & (found["arm"] == "target:0.3")].iloc[0]
    assert line["diff"] == pytest.approx(main["pos_ecr"]["target:0.3"] - main["pos_ecr"][list(arms[5:8])].mean())
    assert line["diff_low"] <= line["diff"] <= line["diff_high"]
    accuracy = main.loc[list(arms[1:4]), "accuracy"]
    (sweep,) = page.frame("sweeps").to_dict("records")
    assert (sweep["family"], sweep["factor"], sweep["settings"]) == ("target:0.3", "weight", "0.5, 0.85, 1.0")
    assert (sweep["frozen"], sweep["accuracy"]) == (0.85, accuracy["target:0.3"])
    assert (sweep["accuracy_low"], sweep["accuracy_high"]) == (accuracy.min(), accuracy.max())
    printed = format_range(accuracy.min(), accuracy.max(), "score")
    assert f"{accuracy.min():.3f}" in printed
    assert sweep["accuracy_range"] == printed
    assert f"| 0.5, 0.85, 1.0 | 0.85 | {printed} |" in page.file("sweeps.md").read_text()
    shuffled = page.frame("shuffled").set_index("arm")
    assert set(shuffled.index) == set(arms[1:4])
    beside = shuffled.loc["target:0.3"]
    assert beside["delta_pn_average"] == pytest.approx(beside["control_pn_average"] - beside["pn_average"])
    assert beside["delta_pn_average_low"] <= beside["delta_pn_average"] <= beside["delta_pn_average_high"]
    assert "Shuffling the scores changes coverage most under" in page.text
    one = page_of(tmp_path / "one", images=6, arms=("full", "target:0.3", "shuffled:0.3"), labels=("yes",))
    assert "there is no P/N average to compare" in one.text


def test_no_cell_of_a_table_is_a_formula(tmp_path: Path) -> None:
    page = page_of(tmp_path, images=4, arms=("full", "target:0.3"), manifest={"model": "=cmd|' /C calc'!A0"}, draws=100)
    files = [file.read_text(encoding="utf-8") for file in page.file(".").glob("*.csv")]
    cells = [cell for text in files for row in csv.reader(text.splitlines()) for cell in row]
    assert any(cell.startswith("'=cmd") for cell in cells)
    for cell in cells:
        if cell.startswith(BEGINNINGS):
            float(cell)  # a number is all that may begin so


def test_a_kill_between_tables_and_page_leaves_no_page(
    small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report_on(tmp_path / "out", small_run, draws=50)
    plain = Table.write
    written: list[str] = []

    def stopped(self: Table, *arguments: Any) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(self.name)
        plain(self, *arguments)

    monkeypatch.setattr(Table, "write", stopped)
    with pytest.raises(KeyboardInterrupt):
        report_on(tmp_path / "out", small_run, draws=50)
    assert len(written) == 3
    assert not (tmp_path / "out/report.html").exists(), "one that does not fit the tables"


def test_every_section_is_registered_by_its_id_and_has_its_place_on_the_page(edited: Page) -> None:
    makers = [SECTIONS.get(name) for name in SECTIONS]
    assert [maker.id for maker in makers] == list(SECTIONS)
    assert len({maker.order for maker in makers}) == len(makers)
    assert all(maker.title for maker in makers)
    assert edited.headings == [
        "verdict", "overview", *SECTIONS_OF_ANY_RUN, "validity", "deletion", "occlusion", "image-dependence",
        "positions", "interventions",
    ]  # fmt: skip
    assert FAILED not in edited.text


def test_a_new_section_has_its_place_and_tables_and_one_that_fails_says_why_in_one_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tokens(SectionMaker):
        id = "tokens"
        title = "Tokens"
        order = 75
        lead = "How many tokens each arm kept."

        def fill(self, section: Section, context: Context) -> None:
            kept = context.source.frame.groupby("arm", sort=False)["k_tokens"].mean().reset_index()
            columns = [TableColumn("arm", "Arm"), TableColumn("k_tokens", "K", "number")]
            section.add(lambda: Table("tokens", "Tokens", "", columns, pd.DataFrame(kept)))

    failing = {
        "broken_a": (SightlineError("nothing to weigh"), "nothing to weigh"),
        "broken_b": (KeyError("weight"), "KeyError: &#39;weight&#39;"),
        "broken_c": (ValueError("two\nlines"), "ValueError: two lines"),
    }
    monkeypatch.setattr(SECTIONS, "_entries", dict(SECTIONS._entries))
    SECTIONS.add("tokens", Tokens)
    for name, (error, _) in failing.items():

        def fail(*_: Any, error: Exception = error) -> None:
            raise error

        SECTIONS.add(name, type("Broken", (SectionMaker,), {"id": name, "title": "Broken", "order": 21, "fill": fail}))
    SECTIONS.add("elsewhere", "a_package_that_is_not_installed.sections:Elsewhere")
    page = report_on(tmp_path, run)
    assert page.headings[3:8] == ["frontier", *failing, "contract"]
    assert page.headings[page.headings.index("legibility") + 1] == "tokens"
    assert page.file("tokens.csv").read_text().startswith("model,arm,k_tokens\nreader-mini,full,300.0\n")
    assert missing(page.text, *(f"{FAILED}: {words}<" for _, words in failing.values())) == []
    assert page.headings[-1] == "elsewhere", "what cannot even be imported is named at the end"
    assert "No module named" in page.text


def test_answers_in_words_or_without_a_margin_are_reported_without_what_needs_one(tmp_path: Path) -> None:
    arms = ("full", "target:0.3", "target:0.3+remove_evidence", "full+occlude_evidence", "full+occlude_random")
    page = page_of(tmp_path, images=8, arms=arms, edit_row=WITHOUT_MARGIN)
    assert page.headings[2:11] == list(SECTIONS_OF_ANY_RUN)
    main = page.frame("main")
    assert main["auroc"].isna().all()
    assert main["unsupported"].notna().any()
    assert "the rows have no margin" in page.notes
    assert (page.has("deletion"), page.has("occlusion")) == (True, False)

    def in_words(row: dict[str, Any]) -> None:
        WITHOUT_MARGIN(row)
        row |= {"label": "14.50", "predicted": "14.50" if row["correct"] else "1450", "legibility": None}

    words = page_of(tmp_path / "words", images=6, arms=("full", "target:0.3", "grid:0.3"), edit_row=in_words)
    assert words.frame("main")["hfpr"].isna().all()
    assert "legibility" not in words.ids, "rows of before have none"
    for each in (page, words):
        assert FAILED not in each.text
        assert each.frame("main")["accuracy"].between(0, 1).all()


# Geometry: thirds of scale, what the model sees, legibility.


def test_thirds_hold_the_same_number_of_probes(run: Path) -> None:
    source = read_source([run])
    sizes = source.runs[0].scales
    assert len(sizes) == 40
    assert sizes["median_cell_area"].to_numpy() == pytest.approx(1 / (ROWS * COLUMNS), rel=1e-4)
    frame = strata_table(source).frame
    one = frame[(frame["arm"] == "full") & (frame["by"] == "evidence area")]
    assert one["probes"].sum() == 20
    assert one["probes"].max() - one["probes"].min() <= 1
    assert one["stratum"].tolist() == ["smallest third", "middle third", "largest third"]
    assert "median cell area" not in set(frame["by"]), "a fixed raster has nothing to split by cell size"


RELATIVE = {"relative_pos_ecr", "relative_anchor_ecr", "relative_neg_src", "unsupported_by_pruning"}
WARNING = "5 of 20 positives (25%) lie wholly outside what the model sees"


CROPPED = ("full", "target:0.3", "random:0.3", "visionzip:0.3")


@pytest.fixture(scope="module")
def crop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def cropped(row: dict[str, Any]) -> None:
        """A processor that leaves out every fourth image's evidence."""
        if int(row["image_id"][-2:]) % 4 == 0:
            row |= {"visible": 0.0, "ecr": 0.0, "anchor_ecr": 0.0, "legibility": 0.0}

    return make_run(tmp_path_factory.mktemp("cropped") / "crop", arms=CROPPED, edit_row=cropped)


def test_what_the_model_does_not_see_is_warned_of_and_told_apart_from_what_pruning_takes(
    run: Path, crop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for folder, warns in ((run, False), (crop, True)):
        source = read_source([folder])
        summary = summarise(source, DRAWS)
        shown = {column.key for table in (main_table(summary), geometry_table(summary)) for column in table.columns}
        assert shown & RELATIVE == (RELATIVE if warns else set())
        assert any(WARNING in note for note in source.notes) == warns
        print_summary(load_run(folder))
        printed = capsys.readouterr().out
        assert (WARNING in printed) == ("Relative" in printed.split(WARNING)[0]) == warns
    full = summary.arms.set_index("arm").loc["full"]
    assert (full["pos_ecr"], full["visible_evidence"], full["relative_pos_ecr"]) == (0.75, 0.75, 1.0)
    assert full["unsupported"] > full["unsupported_by_pruning"] == 0.0
    rules = ["relative_pos_ecr(full) >= 1", "illegible(full) <= 0.1", "legibility(full) >= 3", "pos_ecr(full) >= 0.9"]
    results, _ = run_gate(crop, rules, least_n=1, draws=DRAWS)
    assert [result.passed for result in results] == [True, False, True, False]


def test_legibility_has_a_table_and_an_ordering_beside_coverage(crop: Path, tmp_path: Path) -> None:
    page = report_on(tmp_path, crop)
    assert WARNING in page.text
    assert "legibility" in page.ids
    table = page.frame("legibility").set_index("arm")
    assert table.index.tolist() == list(CROPPED)
    assert {"accuracy", "pos_ecr", "legibility", "illegible", "changed"} <= set(table.columns)
    assert table["changed"].isna().tolist() == [True, False, False, False]
    assert table["legibility"]["full"] > table["legibility"]["random:0.3"]
    ordering = page.frame("legibility_ordering")
    over = [("arms", "answer changed"), ("answers", "answer changed"), ("arms", "margin moved")]
    assert list(zip(ordering["over"], ordering["change"], strict=True)) == [*over, ("answers", "margin moved")]
    said = page.file("legibility_ordering.md").read_text(encoding="utf-8")
    assert missing(said, "Over 3 arms", "coverage has rho = ") == []
