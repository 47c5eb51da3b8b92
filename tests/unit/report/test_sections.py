"""Sections: others may add some, one that fails says so; geometry, what the model sees, legibility."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.commands.run import print_summary
from sightline.core.table import Table, TableColumn, format_range
from sightline.errors import SightlineError
from sightline.gate.decisions import run_gate
from sightline.report.build import build_report
from sightline.report.sections import SECTIONS, Context, Section, SectionMaker
from sightline.report.sections.contract import runs_table
from sightline.report.sections.geometry import geometry_table, strata_table
from sightline.report.summary import main_table, summarise
from sightline.rows.run import load_run
from sightline.rows.source import read_source
from tests.unit.report.conftest import DRAWS
from tests.unit.report.fake_run import COLUMNS, EDITED, ROWS, make_run


def headings(page: Path) -> list[str]:
    return re.findall(r'<h2 id="([\w-]+)-title">', page.read_text(encoding="utf-8"))


@pytest.fixture
def register() -> Iterator[Any]:
    """Registers a section for one test."""
    added: list[str] = []

    def add(maker: type[SectionMaker]) -> None:
        SECTIONS.add(maker.id, maker)
        added.append(maker.id)

    yield add
    for name in added:
        del SECTIONS._entries[name]


def test_every_section_is_registered_by_its_id_and_has_a_place_of_its_own() -> None:
    makers = [SECTIONS.get(name) for name in SECTIONS]
    assert [maker.id for maker in makers] == list(SECTIONS)
    assert len({maker.order for maker in makers}) == len(makers)
    assert all(maker.title for maker in makers)


def test_the_page_has_its_sections_in_order(tmp_path: Path) -> None:
    page = build_report([make_run(tmp_path / "run", images=8, arms=EDITED)], tmp_path / "out", draws=DRAWS)
    assert headings(page) == [
        "overview", "frontier", "contract", "differences", "provenance", "pictures", "calibration", "geometry",
        "legibility", "cost", "validity", "deletion", "occlusion", "image-dependence", "positions", "interventions",
    ]  # fmt: skip
    assert "this section cannot be made" not in page.read_text(encoding="utf-8")


def test_the_contract_says_which_route_served_a_run_where_it_is_recorded(tmp_path: Path) -> None:
    own = "the model's own decoder: it has layers of type sliding_attention"
    told = make_run(tmp_path / "told", images=2, manifest={"served_by": {"images": "General", "language": own}})
    silent = make_run(tmp_path / "silent", images=2)
    runs = runs_table(read_source([told, silent])).frame
    assert runs["served_by"].tolist() == [f"General, {own}", "not recorded"]


def test_a_new_section_stands_in_its_place_with_its_table_on_disk(register: Any, run: Path, tmp_path: Path) -> None:
    class Tokens(SectionMaker):
        id = "tokens"
        title = "Tokens"
        order = 75
        lead = "How many tokens each arm kept."

        def fill(self, section: Section, context: Context) -> None:
            kept = context.source.frame.groupby("arm", sort=False)["k_tokens"].mean().reset_index()
            columns = [TableColumn("arm", "Arm"), TableColumn("k_tokens", "K", "number")]
            section.add(lambda: Table("tokens", "Tokens", "", columns, pd.DataFrame(kept)))

    register(Tokens)
    page = build_report([run], tmp_path, draws=DRAWS)
    found = headings(page)
    assert found[found.index("legibility") + 1] == "tokens"
    assert (tmp_path / "tables" / "tokens.csv").read_text().startswith("model,arm,k_tokens\nreader-mini,full,300.0\n")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SightlineError("nothing to weigh"), "this section cannot be made: nothing to weigh"),
        (KeyError("weight"), "this section cannot be made: KeyError: &#39;weight&#39;"),
        (ValueError("two\nlines"), "this section cannot be made: ValueError: two lines"),
    ],
)
def test_a_section_that_fails_keeps_its_place_and_says_why_in_one_line(
    register: Any, run: Path, tmp_path: Path, error: Exception, words: str
) -> None:
    class Broken(SectionMaker):
        id = "broken"
        title = "Broken"
        order = 22

        def fill(self, section: Section, context: Context) -> None:
            raise error

    register(Broken)
    page = build_report([run], tmp_path, draws=DRAWS)
    assert headings(page)[1:4] == ["frontier", "broken", "contract"]
    assert words in page.read_text(encoding="utf-8")


def test_a_section_that_cannot_even_be_imported_is_named_at_the_end(run: Path, tmp_path: Path) -> None:
    SECTIONS.add("elsewhere", "a_package_that_is_not_installed.sections:Elsewhere")
    try:
        page = build_report([run], tmp_path, draws=DRAWS)
    finally:
        del SECTIONS._entries["elsewhere"]
    assert headings(page)[-1] == "elsewhere"
    assert "No module named" in page.read_text(encoding="utf-8")


def without_margin(row: dict[str, Any]) -> None:
    row |= dict.fromkeys(("margin", "loss_yes", "loss_no", "greedy_yes", "greedy_no"))


def test_a_run_whose_scorer_gives_no_margin_is_reported_without_what_needs_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=8, arms=EDITED, edit_row=without_margin)
    page = build_report([run], tmp_path / "out", draws=DRAWS)
    text = page.read_text(encoding="utf-8")
    assert "this section cannot be made" not in text
    assert headings(page)[1:10] == [
        "frontier", "contract", "differences", "provenance", "pictures", "calibration", "geometry", "legibility",
        "cost",
    ]  # fmt: skip
    main = pd.read_csv(tmp_path / "out" / "tables" / "main.csv").set_index("arm")
    assert main["accuracy"].between(0, 1).all()
    assert main["auroc"].isna().all()
    assert main["unsupported"].notna().any()
    notes = re.findall(r'<p class="note" role="note">(.*?)</p>', text)
    assert any("the rows have no margin" in note for note in notes)
    assert (tmp_path / "out" / "tables" / "deletion.csv").is_file()
    assert not (tmp_path / "out" / "tables" / "occlusion.csv").exists()


def test_answers_in_words_are_reported_too(tmp_path: Path) -> None:
    """Rows as a scorer of open answers writes them: a label and an answer in words, and whether it is right."""

    def in_words(row: dict[str, Any]) -> None:
        without_margin(row)
        row |= {"label": "14.50", "predicted": "14.50" if row["correct"] else "1450"}

    run = make_run(tmp_path / "run", images=6, arms=("full", "target:0.3", "grid:0.3"), edit_row=in_words)
    page = build_report([run], tmp_path / "out", draws=DRAWS)
    assert "this section cannot be made" not in page.read_text(encoding="utf-8")
    main = pd.read_csv(tmp_path / "out" / "tables" / "main.csv").set_index("arm")
    assert main["accuracy"].between(0, 1).all()
    assert main["hfpr"].isna().all()


def test_arms_are_compared_with_all_seeds_of_a_random_control(tmp_path: Path) -> None:
    arms = ("full", "target:0.3", "random:0.3", "random:0.3,1", "random:0.3,2", "grid:0.5")

    def seeded(row: dict[str, Any]) -> None:
        if row["selector"] == "random":
            row |= {"arguments": f'{{"seed": {row["arm"].partition(",")[2] or 0}}}', "budget": "0.3"}

    run = make_run(tmp_path / "run", images=10, arms=arms, edit_row=seeded)
    build_report([run], tmp_path / "out", draws=DRAWS)
    found = pd.read_csv(tmp_path / "out" / "tables" / "seed_differences.csv")
    assert set(found["arm"]) == {"target:0.3"}
    assert set(found["against"]) == {"random:0.3"}
    assert set(found["label"]) == {"Accuracy", "hFPR", "PosECR"}
    main = pd.read_csv(tmp_path / "out" / "tables" / "main.csv").set_index("arm")["pos_ecr"]
    seeds = [arm for arm in main.index if arm.startswith("random")]
    line = found[found["label"] == "PosECR"].iloc[0]
    assert line["diff"] == pytest.approx(main["target:0.3"] - main[seeds].mean())
    assert line["diff_low"] <= line["diff"] <= line["diff_high"]


def test_sweeps_and_shuffled_controls_stand_among_the_differences(tmp_path: Path) -> None:
    arms = ("full", "target:0.3", "target:0.3,1", "target:0.3,2", "shuffled:0.3")

    def swept(row: dict[str, Any]) -> None:
        weight = {"1": 0.5, "2": 1.0}.get(row["plain_arm"].partition(",")[2], 0.85)
        if row["selector"] == "target":
            row |= {"arguments": f'{{"weight": {weight}}}', "budget": "0.3"}

    build_report([make_run(tmp_path / "run", images=10, arms=arms, edit_row=swept)], tmp_path / "out", draws=DRAWS)
    main = pd.read_csv(tmp_path / "out" / "tables" / "main.csv").set_index("arm")
    (sweep,) = pd.read_csv(tmp_path / "out" / "tables" / "sweeps.csv").to_dict("records")
    assert (sweep["family"], sweep["factor"], sweep["settings"]) == ("target:0.3", "weight", "0.5, 0.85, 1.0")
    assert sweep["frozen"] == 0.85
    accuracy = main.loc[["target:0.3", "target:0.3,1", "target:0.3,2"], "accuracy"]
    assert (sweep["accuracy_low"], sweep["accuracy_high"]) == (accuracy.min(), accuracy.max())
    assert sweep["accuracy"] == accuracy["target:0.3"]
    printed = format_range(accuracy.min(), accuracy.max(), "score")
    assert f"{accuracy.min():.3f}" in printed
    assert sweep["accuracy_range"] == printed
    assert f"| 0.5, 0.85, 1.0 | 0.85 | {printed} |" in (tmp_path / "out" / "tables" / "sweeps.md").read_text()
    shuffled = pd.read_csv(tmp_path / "out" / "tables" / "shuffled.csv").set_index("arm")
    assert set(shuffled.index) == {"target:0.3", "target:0.3,1", "target:0.3,2"}
    line = shuffled.loc["target:0.3"]
    assert line["delta_pn_average"] == pytest.approx(line["control_pn_average"] - line["pn_average"])
    assert line["delta_pn_average_low"] <= line["delta_pn_average"] <= line["delta_pn_average_high"]
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Shuffling the scores changes coverage most under" in text
    only = make_run(tmp_path / "only", images=6, arms=("full", "target:0.3", "shuffled:0.3"), labels=("yes",))
    page = build_report([only], tmp_path / "one-label", draws=DRAWS).read_text(encoding="utf-8")
    assert "there is no P/N average to compare" in page


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


def cropped(row: dict[str, Any]) -> None:
    """A processor that leaves out every fourth image's evidence."""
    if int(row["image_id"][-2:]) % 4 == 0:
        row |= {"visible": 0.0, "ecr": 0.0, "anchor_ecr": 0.0, "legibility": 0.0}


@pytest.fixture(scope="module")
def crop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    arms = ("full", "target:0.3", "random:0.3", "visionzip:0.3")
    return make_run(tmp_path_factory.mktemp("runs") / "crop", arms=arms, edit_row=cropped)


def shown_columns(run: Path) -> set[str]:
    summary = summarise(read_source([run]), DRAWS)
    return {column.key for table in (main_table(summary), geometry_table(summary)) for column in table.columns}


def test_relative_coverage_has_columns_only_where_it_says_something(run: Path, crop: Path) -> None:
    assert not shown_columns(run) & RELATIVE
    assert shown_columns(crop) >= RELATIVE


def test_full_covers_all_of_what_is_visible(crop: Path) -> None:
    full = summarise(read_source([crop]), DRAWS).arms.set_index("arm").loc["full"]
    assert (full["pos_ecr"], full["visible_evidence"]) == (0.75, 0.75)
    assert full["relative_pos_ecr"] == 1.0
    assert full["unsupported"] > full["unsupported_by_pruning"] == 0.0


def test_report_and_run_warn_in_one_line(
    run: Path, crop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for folder, warns in ((run, False), (crop, True)):
        assert any(WARNING in note for note in read_source([folder]).notes) == warns
        print_summary(load_run(folder))
        printed = capsys.readouterr().out
        assert (WARNING in printed) == ("Relative" in printed.split(WARNING)[0]) == warns
    page = build_report([crop], tmp_path, draws=DRAWS).read_text(encoding="utf-8")
    assert WARNING in page


def test_a_gate_may_ask_for_coverage_of_what_is_visible_and_for_legibility(crop: Path) -> None:
    rules = ["relative_pos_ecr(full) >= 1", "illegible(full) <= 0.1", "legibility(full) >= 3", "pos_ecr(full) >= 0.9"]
    results, _ = run_gate(crop, rules, least_n=1, draws=DRAWS)
    assert [result.passed for result in results] == [True, False, True, False]


def test_the_legibility_section_has_a_line_per_arm_and_says_which_measure_orders(crop: Path, tmp_path: Path) -> None:
    page = build_report([crop], tmp_path, draws=DRAWS).read_text(encoding="utf-8")
    assert 'id="legibility"' in page
    table = pd.read_csv(tmp_path / "tables" / "legibility.csv").set_index("arm")
    assert table.index.tolist() == ["full", "target:0.3", "random:0.3", "visionzip:0.3"]
    assert {"accuracy", "pos_ecr", "legibility", "illegible", "changed"} <= set(table.columns)
    assert table["changed"].isna().tolist() == [True, False, False, False]
    legibility = table["legibility"].to_dict()
    assert legibility["full"] > legibility["random:0.3"]
    ordering = pd.read_csv(tmp_path / "tables" / "legibility_ordering.csv")
    assert list(zip(ordering["over"], ordering["change"], strict=True)) == [
        ("arms", "answer changed"),
        ("answers", "answer changed"),
        ("arms", "margin moved"),
        ("answers", "margin moved"),
    ]
    said = (tmp_path / "tables" / "legibility_ordering.md").read_text(encoding="utf-8")
    assert "Over 3 arms" in said
    assert "coverage has rho = " in said


def test_rows_without_legibility_have_no_such_section(tmp_path: Path) -> None:
    def earlier(row: dict[str, Any]) -> None:
        row["legibility"] = None

    run = make_run(tmp_path / "run", images=6, arms=("full", "target:0.3"), edit_row=earlier)
    page = build_report([run], tmp_path / "out", draws=DRAWS).read_text(encoding="utf-8")
    assert 'id="legibility"' not in page
