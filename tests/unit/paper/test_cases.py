"""Cases of the open-answer tables: two choices, regions from several sources, masks measured as they were stored."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from sightline_paper import PAPER_TABLES, Need, Study, StudyOptions, cases
from sightline_paper.cases import KEPT, LOT, OUTCOME, OpenCase, case_ids, cases_of, open_rows, open_runs
from sightline_paper.printed import measured
from sightline_paper.study import built_set
from tests.refusals import Refused

pytestmark = pytest.mark.xdist_group("open cases")
ARMS = ("full", "target_grid:0.3", "target_grid:0.5", "target_grid:0.7")
TAGS = ("numeric answer",)
IMAGES = 6


def frame(scores: dict[str, tuple[float | None, ...]]) -> pd.DataFrame:
    """Scores of questions under the four arms; None: no row."""
    rows = [
        {"probe_id": probe, "task": "docvqa", "arm": arm, "score": score}
        for probe, line in scores.items()
        for arm, score in zip(ARMS, line, strict=True)
    ]
    return pd.DataFrame(rows).dropna()


def case(name: str, *drops: float, full: float = 1.0, tags: tuple[str, ...] = (), task: str = "docvqa") -> OpenCase:
    low, mid, high = drops
    return OpenCase(name, task, full, (low, mid, high), tags)


def test_cases_are_questions_with_all_four_answers(refused: Refused) -> None:
    rows = frame({"b": (0.9, 0.4, 0.6, 1.0), "a": (1.0, 1.0, None, 1.0)})
    (found,) = cases_of(rows, ARMS, {"b": TAGS})
    assert (found.id, found.task, found.full, found.tags) == ("b", "docvqa", 0.9, TAGS)
    assert found.drops == pytest.approx((0.5, 0.3, -0.1))
    refused("three budgets", cases_of, rows, ARMS[:2], {})


def test_the_kinds_of_a_case_follow_from_its_drops_and_tags() -> None:
    # A drop of exactly a half is large, and of exactly a fifth small.
    (edge,) = cases_of(frame({"a": (0.9, 0.4, 0.9, 0.7)}), ARMS, {})
    assert (edge.low, edge.recovered, edge.mid, edge.persistent) == (True, True, False, False)
    for drops, tags, kinds in (
        ((1.0, 1.0, 1.0), (), {"low", "mid", "persistent"}),
        ((1.0, 0.0, 0.0), (), {"low", "recovered"}),
        ((1.0, 0.0, 0.3), (), {"low"}),
        ((0.0, 0.6, 0.0), (), {"mid"}),
        ((0.0, 0.0, 0.0), TAGS, {"control"}),
        ((0.0, 0.0, 0.0), (), set()),
        ((0.3, 0.3, 0.3), TAGS, set()),
    ):
        found = case("a", *drops, tags=tags)
        assert {name for name in ("low", "mid", "persistent", "recovered", "control") if getattr(found, name)} == kinds
        assert found.candidate == bool(kinds)
        assert not replace(found, full=0.79).candidate, "Full could not answer it"
        assert replace(found, full=0.8).candidate == bool(kinds)


KINDS: dict[str, tuple[int, tuple[float, float, float], tuple[str, ...]]] = {
    "persistent": (20, (1.0, 1.0, 1.0), ()), "mid": (15, (0.9, 0.9, 0.4), ()), "recovered": (30, (0.8, 0.3, 0.1), ()),
    "control": (15, (0.1, 0.0, 0.0), TAGS), "nothing": (20, (0.1, 0.0, 0.0), ()),
}  # fmt: skip


def many(task: str = "docvqa") -> list[OpenCase]:
    """100 questions: 20 persistent, 15 lost at 50 %, 30 recovered by 70 %, 15 controls, 20 that are nothing."""
    return [
        case(f"{task}:{name}-{number:02d}", *drops, tags=tags, task=task)
        for name, (count, drops, tags) in KINDS.items()
        for number in range(count)
    ]


def kinds(chosen: list[OpenCase]) -> Counter[str]:
    return Counter(found.id.partition(":")[2].partition("-")[0] for found in chosen)


def test_cases_by_outcome_are_a_quarter_of_each_kind_topped_up_with_the_greatest_drops() -> None:
    choose = cases.chosen_by_outcome
    chosen = choose([*many(), *many("textvqa")])
    assert Counter(found.task for found in chosen) == {"docvqa": 48, "textvqa": 48}
    # Whoever is persistent dropped at 50 % too: the 8 that the first quota left over come first in the second.
    own = [found for found in chosen if found.task == "docvqa"]
    assert kinds(own) == {"persistent": 20, "mid": 4, "recovered": 12, "control": 12}
    assert len({found.id for found in chosen}) == 96
    short = [found for found in many() if "-0" in found.id or "nothing" in found.id or "recovered" in found.id]
    chosen = choose([*short, *(case(f"docvqa:nothing-{n}", 0.0, 0.0, 0.0) for n in range(20, 60))])
    # 10 persistent, 10 mid and 10 controls are all there are; 12 recovered and 6 more of them to make 48.
    assert kinds(chosen) == {"persistent": 10, "mid": 10, "recovered": 18, "control": 10}


def test_equal_drops_have_an_order_and_too_few_candidates_stay_few() -> None:
    choose = cases.chosen_by_outcome
    nothing = [case(f"x{n}", 0.0, 0.0, 0.0) for n in range(9)]
    tied = [case("d", 0.6, 0.6, 0.6), case("c", 0.9, 0.6, 0.6), case("b", 0.6, 0.6, 0.6, tags=TAGS)]
    assert [found.id for found in choose([*tied, case("a", 0.6, 0.6, 0.6), *nothing[:4]])] == ["c", "b", "a", "d"]
    one = [case("a", 1.0, 1.0, 1.0), *nothing]
    assert [cases.case_count(questions) for questions in (500, 96, 95, 12, 8, 1)] == [48, 48, 47, 6, 4, 0]
    assert [found.id for found in choose(one)] == ["a"]
    assert [found.id for found in choose(one, fill=True)] == ["a", "x0", "x1", "x2", "x3"]


def test_the_stratified_sample_has_every_set_of_tags_in_its_share_and_looks_at_no_answer() -> None:
    def sample(questions: Iterable[OpenCase], **options: int) -> list[str]:
        return [found.id for found in cases.stratified_sample(questions, **options)]

    every = {found.id: found for task in ("docvqa", "textvqa") for found in many(task)}
    chosen = sample(every.values())
    assert len(set(chosen)) == 96
    for task in ("docvqa", "textvqa"):
        own = [every[name] for name in chosen if every[name].task == task]
        # 15 of 100 questions are tagged: 7.2 of 48, and 40.8 are not, whose remainder is the larger.
        assert (len(own), sum(found.tags == TAGS for found in own)) == (48, 7)
    blind = [replace(found, full=0.0, drops=(0.0, 0.0, 0.0)) for found in many()]
    assert sample(many()) == sample(blind) == sample(reversed(many()))
    assert sample(many(), seed=1) != sample(many(), seed=2)


# The two choices of a study, and what their masks leave.


@pytest.fixture(scope="module")
def answered(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A demonstration in which a tiny model has answered the questions of both benchmarks; no case is chosen yet."""
    out = tmp_path_factory.mktemp("cases") / "study"
    begun(out, data).compute(cases.NEEDS)
    return out


def begun(out: Path, data: Path, **options: Any) -> Study:
    settings = {"demo": True, "limit": IMAGES, "draws": 200, "example_draws": 200, "run": {"device": "cpu"}}
    return Study(out, {"qwen": str(data / "tiny/qwen3vl")}, options=StudyOptions(**{**settings, **options}))


def copied(answered: Path, data: Path, out: Path, **options: Any) -> Study:
    """A study of its own with the same answers."""
    shutil.copytree(answered, out)
    return begun(out, data, **options)


def test_cases_by_lot_are_half_of_a_small_set_and_made_once(answered: Path, data: Path, tmp_path: Path) -> None:
    study = copied(answered, data, tmp_path / "study")
    file, found, images = built_set(study, LOT)
    assert sorted(probe.task for probe in found.probes) == ["docvqa"] * 3 + ["textvqa"] * 3
    assert found.construction["seed"] == 20_260_728
    for run in open_runs(study).values():
        assert all(not probe["regions"] and not probe.get("boxes") for probe in run.probes)
        assert set(run.frame()["box_source"]) == {"none"}, "no selector saw the regions of a case"
    for probe in found.probes:
        assert (probe.regions, probe.visible_boxes) == ((), ())
        with Image.open(images / probe.image) as image:  # as annotators see them
            assert (image.format, image.mode) == ("JPEG", "RGB")
            assert max(image.size) <= 1600
    assert Path(f"{file}.lock.json").is_file()
    assert case_ids(begun(tmp_path / "study", data), LOT) == [probe.id for probe in found.probes]


def test_cases_by_outcome_are_what_full_answers_and_pruning_loses(answered: Path, data: Path, tmp_path: Path) -> None:
    study = copied(answered, data, tmp_path / "study")
    texts, pages = (sorted(probe["id"] for probe in open_runs(study)[task].probes) for task in ("textvqa", "docvqa"))
    scores = {texts[3]: (1.0, 0.0, 0.0, 0.0), pages[5]: (0.9, 0.2, 0.9, 0.9), pages[2]: (0.7, 0.0, 0.0, 0.0)}
    arms = {study.arm("qwen", arm): place for place, arm in enumerate(("full", *KEPT.values()))}
    rows = open_rows(study)
    asked = zip(rows["probe_id"], rows["arm"], strict=True)
    own = [scores.get(probe, (0.0,) * len(arms))[arms[arm]] for probe, arm in asked]
    study._made["open rows"] = rows.assign(score=own)
    chosen = case_ids(study, OUTCOME)
    # A demonstration fills up with questions that do not qualify, behind those that do, and says so.
    assert (chosen[0], chosen[3], len(chosen)) == (pages[5], texts[3], 6)
    assert "4 of the cases chosen by outcome do not qualify" in "\n".join(study.notes)


def test_where_nothing_is_answered_the_choice_by_outcome_is_left_out_and_the_study_goes_on(
    answered: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    shutil.copytree(answered, out)
    record = json.loads((out / "study.json").read_text())
    folders = {task: str(out / "stand-ins" / task) for task in ("textvqa", "docvqa")}
    (out / "study.json").write_text(json.dumps({**record, "demo": False, "open_data": folders}))
    study = begun(out, data, demo=False, run={"device": "cpu", "dtype": "float32", "image_options": {}})
    study.__dict__["detector"] = "missing"  # a source of no boxes instead of an engine that must be installed
    # Rows that were read before an arm was added: cases must be chosen from those that are there by then.
    study._made["open rows"] = open_rows(study).query("selector == 'full'")
    table = PAPER_TABLES.get("S24")
    study.compute([Need("qwen", "textvqa-lite", ("random:0.7",)), *table.needs()])
    assert any(note.startswith("cases-by-outcome is left out: Full answers no question") for note in study.notes)
    outcome, lot = measured(study, table).blocks
    assert {line.why_not for line in outcome.lines} == {
        "Full answers no question of TextVQA-500 and DocVQA-500, so none can be chosen by outcome"
    }
    by_words = {line.line.words[0]: line for line in lot.lines}
    assert by_words["All"].cells[0].value == 6.0
    assert by_words["All"].cells[-1].value == 0.0
    # The arm that another table asked for is none of those that cases are audited under.
    assert set(open_rows(study)["arm"]) == {study.arm("qwen", arm) for arm in ("full", *KEPT.values())}
    assert by_words["Rows with boxes"].why_not == "the detector found no box on any case"


def test_masks_are_measured_against_whatever_regions_are_named(
    answered: Path, data: Path, tmp_path: Path, refused: Refused
) -> None:
    study = copied(answered, data, tmp_path / "study")
    ids = case_ids(study, LOT)
    rows = cases.audited(study, {probe: [(0.0, 0.0, 1.0, 1.0)] for probe in ids})
    assert set(rows["probe_id"]) == set(ids)
    assert len(rows) == len(ids) * 4
    np.testing.assert_allclose(rows["ecr"], rows["keep"], atol=1e-6)
    np.testing.assert_allclose(rows["worst_region"], rows["keep"], atol=1e-6)
    clear = rows[(rows["keep"] - 0.5).abs() > 1e-6]
    assert (clear["all_half"] == (clear["keep"] > 0.5)).all()
    refused("none of the cases has a region", cases.audited, study, {})


def test_regions_that_nobody_drew_are_those_of_the_benchmarks_and_their_ocr(
    answered: Path, data: Path, tmp_path: Path, refused: Refused
) -> None:
    study = copied(answered, data, tmp_path / "study")
    texts, pages = (cases.cases_of_task(study, LOT, task) for task in ("textvqa", "docvqa"))
    given, words = cases.external_boxes(study, texts), cases.answer_words(study, pages)
    lines = cases.line_context(study, pages)
    assert set(given) == {probe.id for probe in texts}
    assert {len(found.regions) for found in given.values()} == {1}
    assert set(words) == set(lines) == {probe.id for probe in pages}
    for probe, found in lines.items():
        assert words[probe].regions == found.regions[: len(words[probe].regions)]
    assert any(len(lines[probe].regions) > len(words[probe].regions) for probe in lines)
    assert cases.several_regions(study, LOT) == {**given, **lines}
    assert "nobody drew regions (--annotations), so 6 of 6 cases" in study.notes[-1]

    shutil.rmtree(study.out / "stand-ins" / "docvqa" / "ocr_results")
    for file in (study.out / "stand-ins" / "textvqa").glob("boxes-*"):
        file.unlink()
    refused("has no boxes of TextVQA's answers", cases.external_boxes, study, texts)
    refused("has no OCR of these pages: ocr_results or spdocvqa_ocr", cases.line_context, study, pages)


def test_rows_that_people_drew_are_taken_by_the_number_of_the_question(
    answered: Path, data: Path, tmp_path: Path
) -> None:
    chosen = case_ids(copied(answered, data, tmp_path / "study"), LOT)
    rows = [
        json.loads(line)
        for task in ("textvqa", "docvqa")
        for line in (answered / "stand-ins" / task / "annotations.jsonl").read_text().splitlines()
    ]
    own = [row for row in rows if row["sample_id"] in chosen][:-2]
    other = next(row for row in rows if row["sample_id"] not in chosen)
    for row in own:
        row["sample_id"] = f"{row['task']}_val_lite:{row['question_id']}"
        row["task"] = f"{row['task']}_val_lite"
    own[0]["status"] = "uncertain"
    file = tmp_path / "annotations.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*own, other]))
    study = begun(tmp_path / "study", data, annotations=file)
    found = cases.several_regions(study, LOT)
    assert set(found) == {row["sample_id"].replace("_val_lite", "") for row in own[1:]}
    assert {role for each in found.values() for role in each.roles} <= {"answer_value", "field_label"}
    assert study.notes[-1].startswith("cases-by-lot: 3 of 6 cases have regions that people drew")
    drawn = {row["sample_id"].replace("_val_lite", ""): len(row["boxes"]) for row in own[1:]}
    assert {probe: len(boxes) for probe, boxes in cases.boxes_of(found).items()} == drawn
