"""Tables S22 to S24 over frames made by hand: what each cell is the mean of, and what was published."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.paper.case_sampling import STRATIFIED_SEED
from sightline.paper.open_cases import CHOICES, KEPT, LOT, OUTCOME
from sightline.paper.paper_table import PAPER_TABLES, Block, Line
from sightline.paper.printed import PrintedLine, measured
from sightline.paper.study import Study, StudyOptions
from sightline.paper.tables.table_s24 import BASE, METADATA, NO_BOXES, OCR
from sightline.probes.typed_rows import TypedBox, TypedRow, write_typed_rows


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path / "study", {"qwen": "nowhere"}, options=StudyOptions(draws=200, example_draws=200))


def printed(study: Study, number: str, block: int = 0) -> dict[str, PrintedLine]:
    """The measured lines of one block, by their words."""
    lines = measured(study, PAPER_TABLES.get(number)).blocks[block].lines
    return {" ".join(filter(None, line.line.words)): line for line in lines}


def values(line: PrintedLine) -> list[Any]:
    assert not line.why_not
    return [cell.value for cell in line.cells]


def case_rows(study: Study) -> pd.DataFrame:
    """Three questions of TextVQA and one of DocVQA; Full scores 1, 70 % loses half where a region is lost."""
    records = []
    for probe, task, worst in (
        ("t1", "textvqa", 1.0),
        ("t2", "textvqa", 0.0),
        ("t3", "textvqa", 0.8),
        ("d1", "docvqa", 0.2),
    ):
        for arm in ("full", *KEPT.values()):
            lost = 0.0 if arm == "full" or worst >= 0.5 else 0.5
            records.append(
                {
                    "model": "qwen", "probe_id": probe, "image_id": probe, "task": task, "intervention": "none",
                    "view": "orig", "selector": arm.partition(":")[0], "arguments": "{}", "score": 1.0 - lost,
                    "arm": study.arm("qwen", arm), "plain_arm": study.arm("qwen", arm), "worst_region": worst,
                    "ecr": (worst + 1.0) / 2.0, "all_half": float(worst >= 0.5),
                }
            )  # fmt: skip
    return pd.DataFrame(records)


def test_coverage_is_averaged_over_questions_and_scores_over_benchmarks(study: Study) -> None:
    study._made["case rows", LOT] = case_rows(study)
    lines = printed(study, "S22", 1)
    n, ecr, worst, all_half, score, change = values(lines["All 70%"])
    assert (n, worst, all_half) == (4, 0.5, 0.5)
    assert ecr == pytest.approx(0.75)
    # TextVQA: (1 + 0.5 + 1) / 3, DocVQA: 0.5; both weigh the same.
    assert score == pytest.approx((2.5 / 3 + 0.5) / 2)
    assert change == pytest.approx(score - 1.0)
    assert values(lines["TextVQA 70%"])[0] == 3
    assert values(lines["DocVQA 30%"])[-1] == pytest.approx(-0.5)
    assert lines["All 70%"].line.published == (None,) * 6


def test_a_choice_without_rows_says_why_and_the_other_is_measured(study: Study) -> None:
    study._made["case rows", LOT] = case_rows(study)
    assert {line.why_not for line in printed(study, "S22", 0).values()} != {""}
    assert {line.why_not for line in printed(study, "S22", 1).values()} == {""}


def test_worst_and_union_coverage_are_ranked_with_the_change_of_score(study: Study) -> None:
    rows = case_rows(study)
    more = rows.assign(probe_id=rows["probe_id"] + "b", image_id=rows["image_id"] + "b")
    study._made["case rows", OUTCOME] = pd.concat([rows, more], ignore_index=True)
    # The union says the opposite of what the worst region says.
    own = study._made["case rows", OUTCOME]
    study._made["case rows", OUTCOME] = own.assign(ecr=1.0 - own["worst_region"])
    study._made["case rows", LOT] = own.assign(score=1.0)
    table = measured(study, PAPER_TABLES.get("S22"))
    lines = {" ".join(line.line.words): line for line in table.blocks[2].lines}
    n, rho = values(lines["cases chosen by outcome Worst region"])
    assert n == 24
    assert rho > 0.8
    assert values(lines["cases chosen by outcome Union"])[1] == pytest.approx(-rho)
    assert values(lines["cases drawn by lot Worst region"])[1] == "no score changed"
    assert [outcome for outcome, _, _ in table.claims] == ["holds", "open"]


def rows_of(answer: float, label: bool) -> list[TypedRow]:
    boxes = [TypedBox(0.0, 0.0, answer, 10.0, "answer_value:7")]
    boxes += [TypedBox(50.0, 0.0, 10.0, 10.0, "field_label:Total")] if label else []
    return [TypedRow("docvqa:1", "docvqa", "1", boxes=tuple(boxes), status="annotated")]


def test_agreement_of_two_people_is_measured_from_their_files(study: Study, tmp_path: Path) -> None:
    why = {line.why_not for line in printed(study, "S22", 3).values()}
    assert why == {"agreement needs rows of two people: give --annotations and --second-annotations"}
    files = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    write_typed_rows(files[0], rows_of(10.0, label=True))
    write_typed_rows(files[1], rows_of(5.0, label=False))
    options = StudyOptions(annotations=files[0], second_annotations=files[1])
    people = Study(tmp_path / "study", {}, options=options)
    lines = printed(people, "S22", 3)
    assert values(lines["All"]) == [1, 0, 0, 0, 0.5, 0.25, 0.25, 1.0]
    assert values(lines["DocVQA"]) == values(lines["All"])
    assert "no annotated question in common" in lines["TextVQA"].why_not
    roles = printed(people, "S22", 4)
    assert values(roles["answer value"]) == [1, 1, 1, 1.0]
    assert values(roles["field label"]) == [1, 0, 0, 0.0]
    assert math.isnan(values(roles["context"])[-1])


def test_people_are_remembered_when_another_table_is_run(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    write_typed_rows(file, rows_of(10.0, label=True))
    Study(tmp_path / "study", {}, options=StudyOptions(annotations=file, second_annotations=file)).record()
    later = Study(tmp_path / "study", {})
    assert (later.options.annotations, later.options.second_annotations) == (file, file)


def test_stress_slices_show_full_and_both_budgets_of_one_benchmark(study: Study) -> None:
    records = [
        {"slice": "numeric answer", "task": task, "arm": study.arm("qwen", arm), "n": 7, "score": score,
         "full_score": 0.9, "change": score - 0.9, "change_low": -1.0, "change_high": 0.0}
        for task, scores in (("textvqa", (0.4, 0.6, 0.8)), ("docvqa", (0.1, 0.1, 0.1)))
        for arm, score in zip(KEPT.values(), scores, strict=True)
    ]  # fmt: skip
    study._made["stress slices"] = pd.DataFrame(records)
    lines = printed(study, "S23", 0)
    numeric = lines["TextVQA numeric answers 30% loses much, 70% little"]
    assert values(numeric) == pytest.approx([7, 0.9, 0.4, -0.5, 0.8, -0.1])
    long = lines["DocVQA long questions long questions need more tokens"]
    assert long.why_not == "no question is a long question of docvqa"


SCORES = {"full": 1.0, BASE: 0.4, METADATA: 0.6, NO_BOXES: 0.65, OCR: 0.7}


def test_a_detectors_prior_is_compared_with_three_ways_to_do_without(study: Study) -> None:
    questions = {"t1": ("textvqa", 0.0), "t2": ("textvqa", 0.2), "d1": ("docvqa", 0.1), "d2": ("docvqa", 0.1)}
    rows = pd.DataFrame(
        [
            {"probe_id": probe, "image_id": probe, "task": task, "arm": arm, "score": score + more}
            for probe, (task, more) in questions.items()
            for arm, score in SCORES.items()
        ]
    )
    study._made["case scores", LOT] = rows, {"t1": 0, "t2": 6, "d1": 1, "d2": 1}
    lines = printed(study, "S24", 1)
    found = values(lines["All"])
    assert found == pytest.approx([4, 1.1, 0.5, 0.8, 0.7, 0.75, 0.3, 0.1, 0.05, 2.0, 3.0])
    assert values(lines["TextVQA"])[-2:] == [3.0, 1.0]
    # Without t1 TextVQA's mean is that of t2, and both benchmarks still weigh the same.
    assert values(lines["Rows with boxes"])[:2] == pytest.approx([3, 1.15])
    claims = {claim.sentence: outcome.outcome for claim, outcome in measured(study, PAPER_TABLES.get("S24")).judgements}
    by_lot = [outcome for sentence, outcome in claims.items() if "drawn by lot" in sentence]
    assert by_lot == ["open"] * 3, "four questions decide nothing, however much they agree"
    assert set(claims.values()) == {"open", "not measured"}


@pytest.mark.parametrize("number", ["S22", "S23", "S24"])
def test_both_choices_are_printed_and_only_the_papers_own_has_published_values(number: str) -> None:
    table = PAPER_TABLES.get(number)
    assert "chosen by outcome" in table.about
    for how, title in CHOICES.items():
        blocks = [block for block in table.blocks if title in block.title]
        assert blocks
        for line in (line for block in blocks for line in block.lines):
            assert line.probes == how
            assert how == OUTCOME or set(line.published) == {None}
    assert str(STRATIFIED_SEED) in CHOICES[LOT]


def _published(number: str) -> list[Line]:
    blocks: tuple[Block, ...] = PAPER_TABLES.get(number).blocks
    return [line for block in blocks for line in block.lines if line.probes == OUTCOME]


def test_published_changes_are_those_of_the_published_scores() -> None:
    """To the last digit that rounding allows; S22 and S24 print the same cases at 70 %."""
    full: dict[str, float] = {}
    for line in _published("S24"):
        _, of_full, base, soft, metadata, _, over_base, over_metadata, *_ = line.published
        assert isinstance(of_full, float)
        assert isinstance(base, float)
        assert isinstance(soft, float)
        assert isinstance(metadata, float)
        assert over_base == pytest.approx(soft - base, abs=0.0011)
        assert over_metadata == pytest.approx(soft - metadata, abs=0.0011)
        full[line.words[0]] = of_full
    checked = 0
    for line in _published("S22"):
        if len(line.words) == 3 and line.published[0] in (96, 48):
            *_, score, change = line.published
            assert isinstance(score, float)
            assert change == pytest.approx(score - full[line.words[0]], abs=0.0011)
            checked += 1
    assert checked == 5
