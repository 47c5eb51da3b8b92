"""Reports about answers in words: they say nothing of yes and no, and show what open questions need instead."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from sightline.report import cases
from sightline.report.case_packing import pack_cases
from sightline.report.cases import choose_cases, mark_rows
from sightline.report.hero import make_hero
from sightline.report.sections import Context, make_sections
from sightline.report.sections.changed_answers import changes_table
from sightline.report.summary import summarise
from sightline.rows.source import Source, read_source
from tests.runs.open_questions import ARMS, make_open_run
from tests.runs.pages import Page, comparison_of, missing, open_page_of
from tests.runs.yes_no import HOSTILE, make_run

YES_OR_NO = r"\b(yes|hFPR|positives?|negatives?|PosECR|NegSRC|AUROC|sigmoid)\b"
EDITS = ("remove_evidence", "restore_evidence=0.5", "restore_random=0.5", "occlude_evidence", "occlude_random", "blank")


def of_yes_and_no(page: Page) -> list[str]:
    """What a page says of yes and no, apart from saying that there is none of it."""
    said = page.said
    for words in ("answers here are not yes or no", "no probability of yes", "of yes to"):
        said = said.replace(words, "")
    return re.findall(YES_OR_NO, said)


@pytest.fixture(scope="module")
def source(open_run: Path) -> Source:
    return read_source([open_run])


def test_sections_of_yes_and_no_give_way_to_those_of_words(open_report: Page, report: Page, tmp_path: Path) -> None:
    assert of_yes_and_no(open_report) == []
    arms = ("full", "target:0.3", "anti_evidence:0.3", *(f"target:0.3+{edit}" for edit in EDITS), "full+blank")
    page = open_page_of(tmp_path, images=6, arms=arms)
    assert of_yes_and_no(page) == []
    assert "cannot be made" not in page.said
    assert set(page.frame("interventions")["intervention"]) == {*EDITS}
    assert page.frame("interventions")["score"].notna().all()
    own = {"scores", "changes", "regions", "answers", "pictures"}
    assert own & set(open_report.ids) == own - {"pictures"}
    assert own & set(report.ids) == {"pictures"}
    filters = ("all", "unsupported", "flip", "low", "wrong")
    assert missing(report.text, *(f'data-filter="{name}"' for name in filters)) == []
    assert 'data-filter="confident"' not in report.text
    assert report.packed["cases"][0]["accepted"] is None
    section = re.search(r'<section id="scores".*?</section>', open_report.text, re.DOTALL)
    assert section is not None
    charts = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", section[0], re.DOTALL)]
    assert len(charts) == 6, "three tasks, each for desk and telephone"
    for chart in charts:
        lines = [node.get("class") for node in chart.iter() if node.tag.endswith("line")]
        assert lines.count("reference") == 1
        assert lines.count("range") == len(ARMS) - 1
        dashed = [node for node in chart.iter() if node.get("stroke-dasharray")]
        assert len(dashed) == 3, "random, grid and resize are yardsticks"


def test_scores_are_told_by_task_beside_full_and_the_controls_of_the_budget(open_report: Page, source: Source) -> None:
    lines: list[dict[Any, Any]] = open_report.frame("scores").to_dict("records")
    told = {(line["arm"], line["task"]): line for line in lines}
    rows = source.frame.pivot(index="probe_id", columns="arm_name", values="score")
    task = source.frame.drop_duplicates("probe_id").set_index("probe_id")["task"]
    of_docvqa = rows.loc[task.index[task == "docvqa"]].mean()
    line = told["target:0.3", "docvqa"]
    assert line["score"] == pytest.approx(of_docvqa["target:0.3"])
    for name, arm in (("to_full", "full"), ("to_random", "random:0.3"), ("to_resize", "resize:0.3")):
        assert line[name] == pytest.approx(of_docvqa["target:0.3"] - of_docvqa[arm])
    assert line["to_random_low"] <= line["to_random"] <= line["to_random_high"]
    assert np.isnan(told["target:0.2", "docvqa"]["to_grid"]), "no grid has that budget"
    every = np.mean([rows.loc[task.index[task == name], "target:0.3"].mean() for name in task.unique()])
    assert told["target:0.3", "all"]["score"] == pytest.approx(every), "tasks have the same weight"


def changed(said: str, right: bool, before: str | None, was_right: bool | None, **more: object) -> dict[str, object]:
    row = {"predicted": said, "correct": right, "reference_predicted": before, "reference_correct": was_right}
    return {**row, "n_regions": 2, "all_half": False, "ecr": 0.3, **more}


def test_an_answer_is_unchanged_lost_gained_or_changed_otherwise_and_confident_by_its_loss() -> None:
    rows = pd.DataFrame(
        [
            changed("Main St.", True, "main st", True, all_half=True),
            changed("Elm", False, "Main St", True, ecr=0.0),
            changed("Main St", True, "Elm", False, n_regions=0, ecr=np.nan),
            changed("Oak", False, "Elm", False),
            changed("Oak", False, None, None),
            changed("1.23", False, "12.3", True),
        ]
    )
    told = cases.with_changes(rows)
    assert told["change"].tolist() == [
        cases.UNCHANGED, cases.LOST, cases.GAINED, cases.OTHERWISE, "", cases.LOST,
    ]  # fmt: skip
    assert told["evidence"].tolist() == ["kept", "none", "untraced", "partly", "partly", "partly"]
    losses, said = [0.1, 0.5, 0.9, 1.2, 0.0, 0.01], ["a", "b", "c", "d", " ", "e"]
    rows = pd.DataFrame({"score": [0.0] * 5 + [1.0], "answer_loss": losses, "predicted": said})
    assert cases.confident_wrong(rows).tolist() == [True, False, False, False, False, False]


def test_changes_are_counted_by_evidence_and_every_count_names_its_cases(source: Source) -> None:
    made = changes_table(source)
    rows = source.frame[source.frame["arm"] == "random:0.2"]
    lines = made.frame[made.frame["arm"] == "random:0.2"].set_index("change")
    assert lines["all"].sum() == len(rows)
    lost = rows["correct"].eq(False) & rows["reference_correct"].eq(True)
    assert lines.loc["changed to wrong", "all"] == lost.sum()
    assert lines.loc["changed to wrong", "none"] == (lost & (rows["ecr"] <= 1e-12)).sum()
    query = parse_qs(str(lines.loc["changed to wrong", "none_cases"]))
    assert query == {"arm": ["random:0.2"], "change": [cases.LOST], "evidence": [cases.NONE]}
    assert "lost most answers" in made.sentence


def test_cases_come_unsupported_confident_changed_and_the_first_is_pictured(source: Source, tmp_path: Path) -> None:
    marked = mark_rows(source.runs[0])
    ranks = marked.groupby("rank")
    assert ranks.get_group(0)["unsupported"].all()
    assert (ranks.get_group(1)["confident"] & ranks.get_group(1)["flip"]).all()
    assert ranks.get_group(2)["flip"].all()
    assert not marked.loc[marked["rank"] > 3, ["unsupported", "confident", "flip"]].any(axis=None)
    chosen = choose_cases(source, 60)
    assert len({case.probe_id for case in chosen}) == len(chosen)
    first = marked[(marked["probe_id"] == chosen[0].probe_id) & (marked["arm"] == chosen[0].featured)].iloc[0]
    assert first["unsupported"]
    hero = make_hero(pack_cases(source, choose_cases(source, 5)))
    assert hero.headline == "The same answer, with and without the evidence."
    assert len(hero.panels) == 2
    assert missing(hero.words, "Asked “W", "V: the answer's value") == []
    assert ">V</text>" in str(hero.panels[0].picture)

    def wrong_without_evidence(row: dict[str, Any]) -> None:
        if row["ecr"] <= 1e-12:
            row.update(predicted="", answer="", correct=False, score=0.0, exact=False, answer_loss=0.2)

    run = make_open_run(tmp_path / "run", images=9, edit_row=wrong_without_evidence)
    source = read_source([run])
    chosen = choose_cases(source, 3)
    assert chosen[0].beside == "full"
    hero = make_hero(pack_cases(source, chosen))
    assert hero.headline == "The answer goes with its evidence."
    assert hero.words.count("says") == 2
    assert "says nothing" in hero.words


def test_a_case_holds_accepted_answers_roles_and_the_cells_left_of_each_region(open_report: Page) -> None:
    data = open_report.packed
    case = next(case for case in data["cases"] if case["question"].startswith("Which is larger"))
    assert [data["marks"][mark][0] for mark in case["marks"]] == ["V", "X", "A"]
    assert len({data["marks"][mark][1] for mark in case["marks"]}) == 3
    assert len(case["accepted"]) == 1, "ten people gave the same answer: it is named once"
    full = next(panel for panel in case["panels"] if data["arms"][panel["arm"]]["full"])
    assert all(kept == every > 0 for kept, every in full["by_region"])
    assert sum(every for _, every in full["by_region"]) >= full["evidence_cells"]
    others = [panel for panel in case["panels"] if panel is not full]
    counted = [pair for panel in others for pair in panel["by_region"]]
    assert all(kept <= every for kept, every in counted)
    assert any(kept < every for kept, every in counted)
    assert {panel["reference_predicted"] for panel in others} == {full["predicted"]}
    assert HOSTILE not in open_report.text, "an answer that is markup stays text"
    assert any(HOSTILE in (case["accepted"] or []) for case in data["cases"])


def test_regions_are_about_questions_that_have_several_and_nothing_changed_without_full(tmp_path: Path) -> None:
    def one_region(row: dict[str, Any]) -> None:
        if row["probe_id"].endswith(":value"):
            row["n_regions"] = 1

    page = open_page_of(tmp_path, images=6, arms=("full", "target:0.3", "random:0.3"), edit_row=one_region)
    told = page.frame("several_regions").set_index("arm")
    rows = read_source([tmp_path / "run"]).frame
    several = rows[(rows["n_regions"] > 1) & (rows["arm"] == "random:0.3")]
    assert told.loc["random:0.3", "n_probes"] == 6
    assert told.loc["random:0.3", "worst_region"] == pytest.approx(several["worst_region"].mean())
    assert told.loc["random:0.3", "all_half"] == pytest.approx(several["all_half"].mean())
    assert set(page.frame("coverage_and_score")["coverage"]) == {"worst region", "union"}
    page = open_page_of(tmp_path / "none", images=4, arms=("full", "target:0.3"), regions=False)
    assert "regions" not in page.ids
    assert "there is no evidence to trace" in page.said
    assert (page.frame("changed_answers")["untraced"] > 0).any()
    page = open_page_of(tmp_path / "no full", images=3, arms=("target:0.3", "random:0.3"))
    assert "no run has a full arm beside another" in page.said
    assert page.frame("scores")["to_random"].notna().any()


def test_runs_of_both_kinds_share_one_report_and_two_of_words_are_compared_by_their_scores(tmp_path: Path) -> None:
    arms = ("full", "target:0.3", "random:0.3")
    runs = [make_open_run(tmp_path / "a", images=6, arms=arms), make_run(tmp_path / "b", images=6, arms=arms)]
    source = read_source(runs, names=["open", "asked"])
    context = Context(source, summarise(source, 20), 20, 3)
    sections = {section.id: section for section in make_sections(context)}
    assert [section.id for section in sections.values() if section.pictures] == ["pictures"]
    assert not [note for section in sections.values() for note in section.notes if "cannot be made" in note]
    calibration = next(table for table in sections["calibration"].tables if table.name == "calibration")
    assert set(calibration.frame["run"]) == {"asked"}
    assert set(sections["scores"].tables[0].frame["arm"].str.split(" · ").str[0]) == {"open"}
    both = pack_cases(source, choose_cases(source, 30))
    assert {case["accepted"] is None for case in both["cases"]} == {True, False}

    def silent(row: dict[str, Any]) -> None:
        if row["probe_id"] < "page006":
            row.update(predicted="", answer="", correct=False, score=0.0, exact=False)

    first = make_open_run(tmp_path / "first", images=12, arms=arms)
    second = make_open_run(tmp_path / "second", images=12, arms=arms, edit_row=silent)
    page = comparison_of(tmp_path / "out", first, second, draws=50, cases=6)
    assert "score of full" in page.said
    assert of_yes_and_no(page) == []
    changes = {panel["change"] for case in page.packed["cases"] for panel in case["panels"]}
    assert {cases.LOST, ""} <= changes, "run A is compared with nothing"
