"""Tables of open answers: what is printed agrees with itself, and cells are what rows say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from sightline.errors import SightlineError
from sightline.paper.explained import explained
from sightline.paper.needs import Need
from sightline.paper.open_scores import ARTIFACT, by_rule, compared, score_difference
from sightline.paper.paper_table import PAPER_TABLES, Line
from sightline.paper.study import Study, StudyOptions
from sightline.paper.tables.table_s19 import LINES as OCRBENCH_LINES
from sightline.paper.tables.table_s20 import LINES, LITE_LINES, RECOVERIES, against_full, change_alone
from sightline.paper.tables.table_s21 import FOCUS_LINES, matched
from sightline.paper.tables.table_s21 import LINES as MATCHED_LINES

ROUNDING = 1.1e-4


def number(line: Line, cell: int) -> float:
    value = line.published[cell]
    assert isinstance(value, int | float)
    return float(value)


# What was published.


@pytest.mark.parametrize("line", [*LINES, *LITE_LINES[-2:]], ids=lambda line: " ".join(line.words))
def test_a_published_change_is_pruned_minus_full_and_its_tally_counts_every_question(line: Line) -> None:
    assert number(line, 4) == pytest.approx(number(line, 3) - number(line, 2), abs=ROUNDING)
    assert sum(map(int, str(line.published[6]).split("/"))) == line.published[0]


@pytest.mark.parametrize("line", RECOVERIES, ids=lambda line: " ".join(line.words))
def test_a_published_recovery_is_the_difference_of_two_published_scores(line: Line) -> None:
    scores = {(each.model, each.probes, each.arm): number(each, 3) for each in LINES}
    gain = scores[line.model, line.probes, line.arm] - scores[line.model, line.probes, line.about.minus]
    assert number(line, 0) == pytest.approx(gain, abs=ROUNDING)


@pytest.mark.parametrize("line", MATCHED_LINES, ids=lambda line: " ".join(line.words))
def test_published_controls_stand_beside_the_score_of_the_table_before(line: Line) -> None:
    (query,) = (
        number(each, 3) for each in LINES if (each.model, each.probes, each.arm) == (line.model, line.probes, line.arm)
    )
    assert number(line, 1) == query
    assert number(line, 5) == pytest.approx(query - number(line, 2), abs=ROUNDING)
    assert number(line, 7) == pytest.approx(query - number(line, 3), abs=ROUNDING)


def test_focus_words_are_compared_with_the_scores_of_the_whole_question() -> None:
    whole = {(line.probes, line.arm): line.published[3] for line in LITE_LINES}
    for line in FOCUS_LINES:
        assert line.published[1] == whole[line.probes, line.about[0]]
        assert number(line, 3) == pytest.approx(number(line, 2) - number(line, 1), abs=ROUNDING)


def test_published_changes_on_ocrbench_are_pruned_minus_full() -> None:
    for line in OCRBENCH_LINES:
        for full, pruned, change in ((2, 3, 4), (5, 6, 7)):
            assert number(line, change) == pytest.approx(number(line, pruned) - number(line, full), abs=1.1e-3)


# What is measured.

ANSWERS = {
    "full": ("ten", "mill", "P.O. Box", "red"),
    "target_grid:0.3": ("10", "mill lane", "P.O. Box", "blue"),
    "target_grid:0.7": ("ten", "mill", "PO Box", "red"),
    "random:0.7": ("ten", "mill", "no", "blue"),
    "grid:0.7": ("no", "no", "no", "no"),
    "resize:0.7": ("ten", "mill", "PO Box", "red"),
}
ACCEPTED = (["ten"] * 10, ["mill"] * 10, ["P.O. Box"] * 10, ["red"] * 10)


def answered(task: str) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """Rows of every arm on four questions, and the questions."""
    from sightline.answering.answer_scores import score_answer

    rows = []
    for arm, answers in ANSWERS.items():
        for place, (answer, accepted) in enumerate(zip(answers, ACCEPTED, strict=True)):
            scores = score_answer(task, answer, accepted)
            rows.append(
                {
                    "arm": arm, "plain_arm": arm, "probe_id": f"{task}:{place}", "image_id": str(place), "task": task,
                    "intervention": "none", "view": "orig", "label": accepted[0], "answer": answer,
                    "selector": arm.partition(":")[0], "keep": float(arm.partition(":")[2] or 1), **vars(scores),
                }
            )  # fmt: skip
    probes = [{"id": f"{task}:{place}", "answers": accepted} for place, accepted in enumerate(ACCEPTED)]
    return pd.DataFrame(rows), probes


class AnsweredStudy(Study):
    """A study whose rows are ``answered``."""

    def rows(self, model: str, probes: str, box_source: str = "annotation", scorer: str = "") -> pd.DataFrame:
        return answered(probes)[0]

    def run(self, model: str, probes: str, box_source: str = "annotation", scorer: str = "") -> Any:
        return SimpleNamespace(probes=answered(probes)[1])


def study(tmp_path: Path, profile: str = "paper") -> Study:
    return AnsweredStudy(tmp_path / "study", {}, options=StudyOptions(profile=profile, example_draws=200))


def line_of(lines: tuple[Line, ...], probes: str, arm: str) -> Line:
    return next(line for line in lines if (line.model, line.probes, line.arm) == ("qwen", probes, arm))


def test_a_line_has_the_scores_of_both_arms_their_difference_and_who_won(tmp_path: Path) -> None:
    n, keep, full, pruned, change, interval, tally = against_full(
        study(tmp_path), line_of(LINES, "textvqa", "target_grid:0.3")
    )
    # "10" is "ten" in the official processing; "mill lane" and "blue" are wrong.
    assert (n.value, keep.value, full.value, pruned.value) == (4, 0.3, 1.0, 0.5)
    assert change.value == -0.5
    assert change.low <= -0.5 <= change.high
    assert str(interval.value).startswith("[−")
    assert tally.value == "0/2/2"


def test_the_artifacts_forms_know_no_number_words_and_no_punctuation(tmp_path: Path) -> None:
    made = study(tmp_path)
    soft = compared(made, "qwen", "textvqa", "target_grid:0.3", "full", rule=ARTIFACT)
    assert (soft.score, soft.reference) == (0.25, 1.0), "'10' is not 'ten' without the table of number words"
    official = compared(made, "qwen", "docvqa", "target_grid:0.7", "full")
    stripped = compared(made, "qwen", "docvqa", "target_grid:0.7", "full", rule=ARTIFACT)
    assert official.score == pytest.approx((1 + 1 + 0.75 + 1) / 4)
    assert stripped.score == 1.0


def test_the_artifact_profile_scores_by_the_artifacts_forms(tmp_path: Path) -> None:
    by_default = by_rule(study(tmp_path, "artifact"), "qwen", "docvqa")
    assert by_default["score"].tolist() == by_rule(study(tmp_path), "qwen", "docvqa", ARTIFACT)["score"].tolist()
    assert by_default["score"].tolist() != by_rule(study(tmp_path), "qwen", "docvqa")["score"].tolist()


def test_a_larger_budget_is_compared_with_the_smaller_one(tmp_path: Path) -> None:
    change, _, tally = change_alone(study(tmp_path), line_of(RECOVERIES, "textvqa", "target_grid:0.7"))
    assert (change.value, tally.value) == (0.5, "2/0/2")


def test_controls_of_the_same_budget_stand_beside_the_method(tmp_path: Path) -> None:
    cells = matched(study(tmp_path), line_of(MATCHED_LINES, "docvqa", "target_grid:0.7"))
    keep, query, random, grid, resize, over_random, _, over_grid, _, over_resize, _ = (cell.value for cell in cells)
    assert (keep, grid, over_resize) == (0.7, 0.0, 0.0)
    assert query == resize == over_grid
    assert over_random == pytest.approx(query - random)  # type: ignore[operator]


def test_a_model_that_cannot_resize_has_no_cell_for_it(tmp_path: Path) -> None:
    lines = {line.model: line for line in MATCHED_LINES}
    assert all("resize:0.7" not in need.arms for need in PAPER_TABLES.get("S21").needs() if need.model == "llava")
    assert lines["llava"].published[4] is None


def test_a_claim_about_scores_follows_its_interval(tmp_path: Path) -> None:
    claim = score_difference(
        "Grid loses.", model="qwen", probes="docvqa", arm="grid:0.7", minus="full", expects="below"
    )
    assert claim.needs == (Need("qwen", "docvqa", ("grid:0.7", "full")),)
    found = claim.judge(study(tmp_path))
    assert found.outcome == "open", "four questions are too few, whatever their interval"
    assert found.words.startswith("score of grid:0.7 minus full: −1.000 [−1.0000, ")
    assert "4 images are fewer than 10" in found.words


def test_an_arm_without_rows_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match=r"target:0\.4 and full have not both been measured"):
        compared(study(tmp_path), "llava", "docvqa", "target:0.4", "full")


def test_commands_name_the_scorer_and_the_size_that_images_were_shown_at() -> None:
    words = explained(PAPER_TABLES.get("S19"))
    assert "--image-option min_pixels=50176 --image-option max_pixels=50176 --scorer verification" in words
    assert "--image-option min_pixels=50176 --image-option max_pixels=802816 --scorer candidate_ranking" in words
    assert "--out runs/qwen-ocrbench-verification" in words
    assert "min_pixels=802816" in explained(PAPER_TABLES.get("S5")), "yes/no tables are as they were"
