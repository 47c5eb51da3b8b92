"""Tables as their files say them and as cells are made: complete, with the paper's numbers, and what rows say."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from sightline.answering.answer_scores import score_answer
from sightline.arms.arm import parse_arm
from sightline.cost.published import EFFICIENCY, TOTAL, TOTAL_WITH_DETECTOR
from sightline.errors import SightlineError
from sightline.gate.rules import parse_rule
from sightline.probes.typed_rows import TypedBox, TypedRow, write_typed_rows
from sightline_paper import MODELS, PAPER_TABLES, Line, Need, Study, StudyOptions, read_table
from sightline_paper.cases import KEPT, LOT, OUTCOME, STRATIFIED_SEED
from sightline_paper.claims import rule_claim
from sightline_paper.cost_cards import TIMED
from sightline_paper.lines import ARTIFACT, Measured, by_rule, compared
from sightline_paper.open_measures import BASE, METADATA, NO_PRIOR, OCR
from sightline_paper.paper_table import in_order
from sightline_paper.printed import PrintedLine, explained, measured
from sightline_paper.study import PROBE_SETS
from tests.refusals import Refused

REPLICATES = {f"random:0.3:seed={seed}" for seed in (101, 202, 303, 404, 505)}
TEXT_RESULTS = ["CALIBRATION", "DILUTION", "GSR", "PLAUSIBLE", "POSITIONS", "QC", "STRATA"]
NUMBERS = ["1", "2", *(f"S{number}" for number in range(1, 25)), *TEXT_RESULTS]


def lines_of(table: str, block: int = 0) -> tuple[Line, ...]:
    return PAPER_TABLES.get(table).blocks[block].lines


def number(line: Line, cell: int) -> float:
    value = line.published[cell]
    assert isinstance(value, int | float)
    return float(value)


def test_every_table_of_the_paper_is_a_preset_and_the_main_one_sets_oracles_apart() -> None:
    assert in_order(PAPER_TABLES) == NUMBERS
    assert in_order(["DIVPRUNE", "S10", "A-2", "2", "S9", "1"]) == ["1", "2", "S9", "S10", "A-2", "DIVPRUNE"]
    reads = {(line.panel[0], bool(parse_arm(line.arm).selector.reads_boxes)) for line in lines_of("1")}
    assert reads == {("A", False), ("B", True)}


def test_tables_are_complete_and_need_models_sets_and_arms_that_exist_and_random_as_the_paper_drew_it(
    tmp_path: Path,
) -> None:
    """Confirmation scripts passed 17, and so did LLaVA's open questions; 13 is the artifact's default elsewhere."""
    study = Study(tmp_path, {}, options=StudyOptions(profile="artifact"))
    for number in NUMBERS:
        table = PAPER_TABLES.get(number)
        assert table.number == number
        for block in table.blocks:
            assert block.lines
            for line in block.lines:
                assert (len(line.words), len(line.published)) == (len(block.words), len(block.columns)), line.words
        for need in table.needs():
            assert need.model in MODELS
            assert need.probes in PROBE_SETS
            assert need.arms
            for arm in need.arms:
                assert parse_arm(arm).text
                if arm.startswith("random"):
                    seed = json.loads(parse_arm(study.arm(need.model, arm)).arguments)["seed"]
                    if need.probes in ("confirmation", "edit-region") and arm not in REPLICATES:
                        assert seed == 17, (need, arm)
                    if need.probes in ("textvqa", "docvqa"):
                        assert seed == {"qwen": 13, "llava": 17}[need.model]


# What was published agrees with itself, to the last digit that rounding allows.

MAIN = {(line.model, line.arm): line for line in lines_of("1")}
LINES, _, RECOVERIES, LITE_LINES = (block.lines for block in PAPER_TABLES.get("S20").blocks)
MATCHED_LINES, FOCUS_LINES = (block.lines for block in PAPER_TABLES.get("S21").blocks)
OPEN, YES_NO = 1.1e-4, 1.1e-3
"""How far rounding may take a difference apart."""


def test_published_values_agree_where_two_tables_print_them() -> None:
    # Table 1 and S11 both print the confirmation rows at t = 0, and Table 1 and S10 InternVL's at Full's threshold.
    for line in (*lines_of("S11"), *lines_of("S10")):
        if line.model != "internvl" or (line.model, line.arm) in MAIN:
            _, accuracy, hfpr, auroc, *_ = MAIN[line.model, line.arm].published
            assert (auroc, accuracy, hfpr) == (line.published[0], line.published[3], line.published[4])
    for line in (*LINES, *LITE_LINES[-2:]):
        assert sum(map(int, str(line.published[6]).split("/"))) == line.published[0], "a tally counts every question"
    scores = {(line.model, line.probes, line.arm): number(line, 3) for line in LINES}
    assert all(number(line, 1) == scores[line.model, line.probes, line.arm] for line in MATCHED_LINES)
    whole = {(line.probes, line.arm): line.published[3] for line in LITE_LINES}
    assert all(line.published[1] == whole[line.probes, line.about["minus"]] for line in FOCUS_LINES)
    shapes = {"qwen": "qwen3-vl-8b", "llava": "llava-1.5-7b", "internvl": "internvl3.5-8b"}

    def key(line: Line) -> tuple[str, tuple[str, float]]:
        selector, _, budget = line.arm.partition(":")
        return shapes[line.model], (selector, float(budget))

    for line in lines_of("2", 2):
        found = EFFICIENCY[key(line)]
        assert line.published[1:] == (found.single, found.prefill, f"−{100 * found.memory_saved:.1f}%")
    for line in lines_of("DILUTION"):
        totals = (TOTAL_WITH_DETECTOR if line.about["detector"] else TOTAL)[key(line)]
        assert line.published == (totals.get(32), totals.get(128))
    assert tuple(line.arm for line in lines_of("S17")) == TIMED


def test_published_changes_are_the_differences_of_cells_of_their_line() -> None:
    for lines, columns, rounding in (
        ((*LINES, *LITE_LINES[-2:]), ((4, 3, 2),), OPEN),
        (MATCHED_LINES, ((5, 1, 2), (7, 1, 3)), OPEN),
        (FOCUS_LINES, ((3, 2, 1),), OPEN),
        (lines_of("S19"), ((4, 3, 2), (7, 6, 5)), YES_NO),
        (lines_of("S24"), ((6, 3, 2), (7, 3, 4)), YES_NO),
    ):
        for line in lines:
            for change, left, right in columns:
                assert number(line, change) == pytest.approx(number(line, left) - number(line, right), abs=rounding)


def test_published_changes_are_the_differences_of_cells_of_other_tables() -> None:
    scores = {(line.model, line.probes, line.arm): number(line, 3) for line in LINES}
    for line in RECOVERIES:
        gain = scores[line.model, line.probes, line.arm] - scores[line.model, line.probes, line.about["minus"]]
        assert number(line, 0) == pytest.approx(gain, abs=OPEN)
    paired = [
        (line, [MAIN.get((line.model, arm)) for arm in (line.arm, line.about["minus"])]) for line in lines_of("S4")
    ]
    checked = 0
    for line, (one, other) in paired:
        if line.model != "internvl" and one and other:
            assert number(line, 1) == pytest.approx(number(one, 1) - number(other, 1), abs=YES_NO), line.words
            checked += 1
    assert checked >= 6


def test_published_changes_of_the_same_cases_agree_in_two_tables() -> None:
    s24, s22 = (
        [line for block in PAPER_TABLES.get(table).blocks for line in block.lines if line.probes == OUTCOME]
        for table in ("S24", "S22")
    )
    full = {line.words[0]: number(line, 1) for line in s24}
    cases = [line for line in s22 if len(line.words) == 3 and line.published[0] in (96, 48)]
    assert len(cases) == 5
    for line in cases:
        assert number(line, 5) == pytest.approx(number(line, 4) - full[line.words[0]], abs=YES_NO)


# Files of tables.

FILE = Path(__file__).with_name("x1.yaml")


def test_a_file_says_lines_fields_panels_and_what_is_left_blank() -> None:
    table = read_table(FILE)
    (block,) = table.blocks
    first, second, third = block.lines
    assert [column.title for column in block.columns] == ["n", "Accuracy", "Gain"]
    assert [column.interval for column in block.columns] == [False, True, True]
    assert (first.words, first.panel, first.about) == (("Qwen", "Target"), "A", {"minus": "full"})
    assert first.published == (1000, Measured(0.8, 0.7, 0.9), None)
    assert (second.words, second.panel, second.published) == (("Qwen", "Full"), "A", (None,) * 3)
    assert (third.words, third.panel, third.arm) == (("", ""), "B", "grid:0.3")
    assert table.needs()[:2] == [Need("qwen", "confirmation", ("target:0.3",)), Need("qwen", "confirmation", ("full",))]
    (claim,) = table.claims
    assert claim.needs == (Need("qwen", "confirmation", ("target:0.3", "full")),)
    assert not claim.answers, "tokens are kept whatever is answered"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("of: qwen", "of: llama", "there is no population 'llama'"),
        ("model: qwen", "modell: qwen", "population 'qwen' has unknown keys: modell"),
        ("measure: differences", "measure: guessed", "there is no function 'guessed'"),
        ("measure: differences", "mesure: differences", "unexpected key 'mesure'"),
        ("full, Target, 1000", "full, Target, 1, 2, 3, 1000", "row 1 of its lines has 9 entries"),
        ("keep(full) < 0", "keep(full) < 0.5", "'keep(target:0.3) - keep(full) < 0.5' says nothing of two arms"),
        (" - keep(full) < 0", " < 0.5", "'keep(target:0.3) < 0.5' says nothing of two arms"),
        ("keep(full)", "kept(full)", "unknown metric 'kept'"),
        ("title: One line", "", "missing 1 key: 'title'"),
        ("[n, accuracy,", "[n, accuracies,", "unknown metric 'accuracies'"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_with_its_name_and_the_reason(
    tmp_path: Path, old: str, new: str, said: str, refused: Refused
) -> None:
    text = FILE.read_text()
    assert old in text
    (tmp_path / "x1.yaml").write_text(text.replace(old, new))
    refused(said, read_table, tmp_path / "x1.yaml")


def test_a_file_that_is_no_yaml_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "x1.yaml").write_text(FILE.read_text().replace("number: X1", "number: ["))
    with pytest.raises(SightlineError, match=r"x1\.yaml cannot be read as the file of a table: line \d+: "):
        read_table(tmp_path / "x1.yaml")


# Open answers as they are measured.

ACCEPTED = ("ten", "mill", "P.O. Box", "red")
ANSWERS = {
    "full": ACCEPTED, "target_grid:0.3": ("10", "mill lane", "P.O. Box", "blue"),
    "target_grid:0.7": ("ten", "mill", "PO Box", "red"), "random:0.7": ("ten", "mill", "no", "blue"),
    "grid:0.7": ("no", "no", "no", "no"), "resize:0.7": ("ten", "mill", "PO Box", "red"),
}  # fmt: skip


class AnsweredStudy(Study):
    """A study whose rows are of every arm on four questions."""

    def rows(self, model: str, probes: str, box_source: str = "annotation", scorer: str = "") -> pd.DataFrame:
        rows = [
            {
                "arm": arm, "plain_arm": arm, "probe_id": f"{probes}:{place}", "image_id": str(place), "task": probes,
                "intervention": "none", "view": "orig", "label": label, "answer": answer,
                "selector": arm.partition(":")[0], "keep": float(arm.partition(":")[2] or 1),
                **vars(score_answer(probes, answer, [label] * 10)),
            }
            for arm, answers in ANSWERS.items()
            for place, (answer, label) in enumerate(zip(answers, ACCEPTED, strict=True))
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def run(self, model: str, probes: str, box_source: str = "annotation", scorer: str = "") -> Any:
        questions = [{"id": f"{probes}:{place}", "answers": [label] * 10} for place, label in enumerate(ACCEPTED)]
        return SimpleNamespace(probes=questions)


def answered_study(tmp_path: Path, profile: str = "paper") -> Study:
    return AnsweredStudy(tmp_path / "study", {}, options=StudyOptions(profile=profile, example_draws=200))


def cells_of(made: Study, table: str, block: int, probes: str, arm: str) -> list[Measured]:
    """Of Qwen's line about these questions and this arm."""
    chosen = PAPER_TABLES.get(table).blocks[block]
    key = ("qwen", probes, arm)
    return list(chosen.measure(made, next(x for x in chosen.lines if (x.model, x.probes, x.arm) == key)))


def test_a_line_has_both_scores_their_difference_and_who_won(tmp_path: Path) -> None:
    made = answered_study(tmp_path)
    n, keep, full, pruned, change, interval, tally = cells_of(made, "S20", 0, "textvqa", "target_grid:0.3")
    # "10" is "ten" in the official processing; "mill lane" and "blue" are wrong.
    assert (n.value, keep.value, full.value, pruned.value) == (4, 0.3, 1.0, 0.5)
    assert change.value == -0.5
    assert change.low <= -0.5 <= change.high
    assert str(interval.value).startswith("[−")
    assert tally.value == "0/2/2"


def test_a_claim_about_few_questions_is_open_whatever_its_interval(tmp_path: Path) -> None:
    grid, full_line = (Line((), (), "qwen", "docvqa", arm) for arm in ("grid:0.7", "full"))
    claim = rule_claim("Grid loses.", parse_rule("score(grid:0.7) - score(full) < 0"), grid, full_line)
    assert claim.needs == (Need("qwen", "docvqa", ("grid:0.7", "full")),)
    found = claim.judge(answered_study(tmp_path))
    assert found.outcome == "open"
    assert found.words.startswith("score of grid:0.7 minus full: −1.000 [−1.0000, ")
    assert "4 images are fewer than 10" in found.words


def test_the_artifacts_forms_know_no_number_words_and_no_punctuation(tmp_path: Path) -> None:
    made = answered_study(tmp_path)
    soft = compared(made, "qwen", "textvqa", "target_grid:0.3", "full", rule=ARTIFACT)
    assert (soft.score, soft.reference) == (0.25, 1.0), "'10' is not 'ten' without the table of number words"
    official, stripped = (
        compared(made, "qwen", "docvqa", "target_grid:0.7", "full", rule=rule) for rule in ("", ARTIFACT)
    )
    assert (official.score, stripped.score) == (pytest.approx((1 + 1 + 0.75 + 1) / 4), 1.0)
    own, named, by_default = (
        by_rule(study, "qwen", "docvqa", rule)["score"].tolist()
        for study, rule in ((made, ""), (made, ARTIFACT), (answered_study(tmp_path, "artifact"), ""))
    )
    assert own != named == by_default, "its profile scores by them"


def test_budgets_and_controls_stand_beside_the_method(tmp_path: Path, refused: Refused) -> None:
    made = answered_study(tmp_path)
    change, _, tally = cells_of(made, "S20", 2, "textvqa", "target_grid:0.7")
    assert (change.value, tally.value) == (0.5, "2/0/2"), "a larger budget beside the smaller one"
    cells = cells_of(made, "S21", 0, "docvqa", "target_grid:0.7")
    keep, query, random, grid, resize, over_random, _, over_grid, _, over_resize, _ = (cell.value for cell in cells)
    assert (keep, grid, over_resize) == (0.7, 0.0, 0.0)
    assert query == resize == over_grid
    assert over_random == pytest.approx(query - random)  # type: ignore[operator]
    assert all("resize:0.7" not in need.arms for need in PAPER_TABLES.get("S21").needs() if need.model == "llava")
    assert {line.model: line for line in MATCHED_LINES}["llava"].published[4] is None, "it cannot resize"
    refused("target:0.4 and full have not both been measured", compared, made, "llava", "docvqa", "target:0.4", "full")


def test_commands_name_the_scorer_and_the_size_that_images_were_shown_at() -> None:
    words = explained(PAPER_TABLES.get("S19"))
    assert "--image-option min_pixels=50176 --image-option max_pixels=50176 --scorer verification" in words
    assert "--image-option min_pixels=50176 --image-option max_pixels=802816 --scorer candidate_ranking" in words
    assert "--out runs/qwen-ocrbench-verification" in words
    assert "min_pixels=802816" in explained(PAPER_TABLES.get("S5")), "yes/no tables are as they were"


# Cases: S22 to S24 over frames made by hand.


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
    """Three questions of TextVQA and one of DocVQA; Full scores 1, all budgets lose half where a region is lost."""
    records = []
    for probe, worst in {"t1": 1.0, "t2": 0.0, "t3": 0.8, "d1": 0.2}.items():
        for arm in ("full", *KEPT.values()):
            records.append(
                {
                    "model": "qwen", "probe_id": probe, "image_id": probe, "intervention": "none", "view": "orig",
                    "task": "textvqa" if probe.startswith("t") else "docvqa", "selector": arm.partition(":")[0],
                    "arguments": "{}", "score": 1.0 if arm == "full" or worst >= 0.5 else 0.5, "worst_region": worst,
                    "arm": study.arm("qwen", arm), "plain_arm": study.arm("qwen", arm),
                    "ecr": (worst + 1.0) / 2.0, "all_half": float(worst >= 0.5),
                }
            )  # fmt: skip
    return pd.DataFrame(records)


def test_coverage_is_averaged_over_questions_and_scores_over_benchmarks(study: Study) -> None:
    study._made["case rows", LOT] = case_rows(study)
    assert {line.why_not for line in printed(study, "S22", 0).values()} != {""}, "a choice without rows says why"
    lines = printed(study, "S22", 1)
    assert {line.why_not for line in lines.values()} == {""}
    n, ecr, worst, all_half, score, change = values(lines["All 70%"])
    assert (n, worst, all_half) == (4, 0.5, 0.5)
    assert ecr == pytest.approx(0.75)
    # TextVQA: (1 + 0.5 + 1) / 3, DocVQA: 0.5; both weigh the same.
    assert score == pytest.approx((2.5 / 3 + 0.5) / 2)
    assert change == pytest.approx(score - 1.0)
    assert values(lines["TextVQA 70%"])[0] == 3
    assert values(lines["DocVQA 30%"])[-1] == pytest.approx(-0.5)
    assert lines["All 70%"].line.published == (None,) * 6


def test_worst_and_union_coverage_are_ranked_with_the_change_of_score(study: Study) -> None:
    rows = case_rows(study)
    more = rows.assign(probe_id=rows["probe_id"] + "b", image_id=rows["image_id"] + "b")
    own = pd.concat([rows, more], ignore_index=True)
    # The union says the opposite of what the worst region says.
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


def test_agreement_of_two_people_is_measured_from_their_files(study: Study, tmp_path: Path) -> None:
    why = {line.why_not for line in printed(study, "S22", 3).values()}
    assert why == {"agreement needs rows of two people: give --annotations and --second-annotations"}
    files = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    label = TypedBox(50.0, 0.0, 10.0, 10.0, "field_label:Total")
    for file, width, more in ((files[0], 10.0, (label,)), (files[1], 5.0, ())):
        boxes = (TypedBox(0.0, 0.0, width, 10.0, "answer_value:7"), *more)
        write_typed_rows(file, [TypedRow("docvqa:1", "docvqa", "1", boxes=boxes, status="annotated")])
    people = Study(tmp_path / "study", {}, options=StudyOptions(annotations=files[0], second_annotations=files[1]))
    lines = printed(people, "S22", 3)
    assert values(lines["All"]) == [1, 0, 0, 0, 0.5, 0.25, 0.25, 1.0]
    assert values(lines["DocVQA"]) == values(lines["All"])
    assert "no annotated question in common" in lines["TextVQA"].why_not
    roles = printed(people, "S22", 4)
    assert values(roles["answer value"]) == [1, 1, 1, 1.0]
    assert values(roles["field label"]) == [1, 0, 0, 0.0]
    assert math.isnan(values(roles["context"])[-1])
    people.record()
    later = Study(tmp_path / "study", {})
    assert (later.options.annotations, later.options.second_annotations) == files, "remembered for other tables"


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


def test_a_detectors_prior_is_compared_with_three_ways_to_do_without(study: Study) -> None:
    questions = {"t1": ("textvqa", 0.0), "t2": ("textvqa", 0.2), "d1": ("docvqa", 0.1), "d2": ("docvqa", 0.1)}
    rows = pd.DataFrame(
        [
            {"probe_id": probe, "image_id": probe, "task": task, "arm": arm, "score": score + more}
            for probe, (task, more) in questions.items()
            for arm, score in {"full": 1.0, BASE: 0.4, METADATA: 0.6, NO_PRIOR: 0.65, OCR: 0.7}.items()
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


CHOICES = {OUTCOME: "Cases chosen by outcome, as in the paper", LOT: f"drawn by lot, .* \\(seed {STRATIFIED_SEED}\\)"}


@pytest.mark.parametrize("number", ["S22", "S23", "S24"])
def test_both_choices_are_printed_and_only_the_papers_own_has_published_values(number: str) -> None:
    table = PAPER_TABLES.get(number)
    assert "chosen by outcome" in table.about
    for how, title in CHOICES.items():
        lines = [line for block in table.blocks if re.search(title, block.title) for line in block.lines]
        assert lines
        assert {line.probes for line in lines} == {how}
        assert how == OUTCOME or {value for line in lines for value in line.published} == {None}
