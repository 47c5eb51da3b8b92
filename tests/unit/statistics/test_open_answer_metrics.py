"""Metrics over rows whose answers are words: what applies, what does not, and what it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline.answering.answer_scores import AnswerScores
from sightline.commands.run import summary
from sightline.contract.plugins import check_metric
from sightline.core.row import Column
from sightline.gate.decisions import run_gate
from sightline.gate.rules import find_metric
from sightline.report.sections.geometry import strata_table
from sightline.report.summary import headlines, main_table, summarise, verdicts
from sightline.rows.run import load_run
from sightline.rows.source import read_source
from sightline.statistics.metrics import METRICS, POPULATIONS
from sightline.statistics.summaries import arm_points, arm_rows, arm_summary
from tests.unit.report.fake_run import make_run

OPEN_COLUMNS = (Column("score", "float64", "Of the benchmark."), Column("exact", "bool", "Whether it is right."))
WORDS = ("score", "exact", "contains", "soft_accuracy", "anls", "anls_stripped", "ocrbench", "answer_loss")


@pytest.fixture
def frame() -> pd.DataFrame:
    """Five questions on four images; the right answers of two of them are "no" and "yes"."""
    return pd.DataFrame(
        {
            "arm": "a", "probe_id": list("pqrst"), "image_id": list("11234"),
            "label": ["14.50", "no", "exit", "yes", "x"],
            "predicted": ["14.50", "no", "exits", "no", "y"], "correct": [True, True, True, False, False],
            "score": [1.0, 1.0, 0.8, 0.0, 0.3], "exact": [True, True, False, False, False],
            "contains": [True, True, True, False, False], "soft_accuracy": [1.0, 0.9, 0.0, 0.0, 0.3],
            "anls": [1.0, 1.0, 0.8, 0.0, 0.0], "anls_stripped": [1.0, 1.0, 0.8, 0.0, 0.0],
            "ocrbench": [True, True, True, False, False], "answer_loss": [0.1, 0.2, 0.3, 0.4, 0.5],
            "keep": 0.3, "ecr": [1.0, 0.0, 0.5, 0.2, np.nan], "anchor_ecr": [1.0, 0.0, 0.4, 0.2, np.nan],
            "worst_region": [1.0, 0.0, 0.1, 0.2, np.nan], "all_half": [1.0, 0.0, 0.0, 0.0, np.nan], "visible": 1.0,
        }
    )  # fmt: skip


def test_every_score_has_its_metric_over_all_probes(frame: pd.DataFrame) -> None:
    found = arm_points(frame, WORDS)
    assert found == pytest.approx({name: frame[name].astype(float).mean() for name in WORDS})
    assert set(AnswerScores.__dataclass_fields__) <= set(METRICS)
    for name in WORDS:
        assert METRICS[name].answers == "words"
        check_metric(METRICS[name])


def test_a_right_answer_that_is_no_makes_no_negative(frame: pd.DataFrame) -> None:
    rows = arm_rows(frame)
    assert rows.labels.all()
    assert not rows.yes_or_no
    only_no = arm_rows(frame[frame["label"] == "no"])
    assert only_no.labels.all()
    assert not only_no.yes_or_no
    assert arm_points(frame, ["accuracy"])["accuracy"] == pytest.approx(3 / 5)


def test_what_is_about_evidence_is_about_all_questions_with_regions(frame: pd.DataFrame) -> None:
    found = arm_points(frame, ["pos_ecr", "anchor_ecr", "worst_region", "all_half", "unsupported", "weakly_supported"])
    assert found == pytest.approx(
        {
            "pos_ecr": 1.7 / 4, "anchor_ecr": 1.6 / 4, "worst_region": 1.3 / 4, "all_half": 1 / 4,
            "unsupported": 1 / 3, "weakly_supported": 1 / 3,
        }
    )  # fmt: skip


def test_what_is_about_yes_and_no_has_no_value_and_says_why(frame: pd.DataFrame) -> None:
    about = [metric for metric in METRICS.values() if metric.answers == "yes or no"]
    assert {"hfpr", "auroc", "ece", "neg_src", "pn_average", "yes_rate", "negative_accuracy"} <= {m.name for m in about}
    line = arm_summary(frame, draws=20).iloc[0]
    for metric in about:
        assert np.isnan(line[metric.name]), metric.name
        assert metric.name in line["reason"]
    negatives = [metric.name for metric in METRICS.values() if metric.over.startswith("negatives")]
    assert {METRICS[name].answers for name in negatives} == {"yes or no"}
    assert POPULATIONS["negatives"](arm_rows(frame)).sum() == 0


@pytest.mark.parametrize(
    ("spelled", "name"),
    [("Score", "score"), ("ANLS", "anls"), ("textvqa accuracy", "soft_accuracy"), ("exact-match", "exact")],
)
def test_a_gate_reads_the_scores_by_their_names(spelled: str, name: str) -> None:
    assert find_metric(spelled) == name


def open_run(folder: Path) -> Path:
    """A run whose rows are answers in words, right where the yes/no answer of the synthetic run was."""

    def spelled(row: dict[str, Any]) -> None:
        right = bool(row["correct"])
        row |= {"score": 0.25 + 0.75 * right, "exact": right, "label": "no", "predicted": "no" if right else "14.50"}
        for name in ("margin", "loss_yes", "loss_no", "greedy_yes", "greedy_no"):
            del row[name]

    return make_run(folder, images=12, arms=("full", "target:0.3"), edit_row=spelled, scorer_columns=OPEN_COLUMNS)


def test_tables_about_words_show_scores_and_leave_out_false_alarms(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run")
    told = summary(load_run(run).frame())
    assert list(told.columns[:5]) == ["arm", "Keep", "Score", "Accuracy", "ECR"]
    made = summarise(read_source([run]), draws=50)
    titles = [column.title for column in main_table(made).columns]
    assert titles == ["Arm", "Keep", "Score", "Accuracy", "Exact", "ECR", "AnchorECR", "Unsupported"]
    assert set(made.differences["metric"]) == {
        "score", "accuracy", "exact", "pos_ecr", "anchor_ecr", "weakly_supported", "unsupported",
    }  # fmt: skip
    full, arm = (verdict.words for verdict in verdicts(read_source([run]), made))
    assert full.startswith("is the reference: score ")
    assert "; score " in arm
    assert "% of 21 correct answers are unsupported" in arm


def test_a_report_about_words_speaks_of_answers_and_not_of_yes(tmp_path: Path) -> None:
    source = read_source([open_run(tmp_path / "run")])
    made = summarise(source, draws=50)
    assert not [note for note in source.notes if "every probe has label" in note]
    assert made.says_nothing == {}  # all labels are "no", and an answer in words cannot be guessed with one half
    (words,) = headlines(source, made)
    assert "correct answer" in words
    assert "yes answer" not in words
    strata = strata_table(source).frame
    assert set(strata["arm"]) == {"full", "target:0.3"}


def test_tables_about_yes_and_no_show_no_scores_of_words(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=4, arms=("full", "target:0.3"))
    made = summarise(read_source([run]), draws=20)
    titles = {column.title for column in main_table(made).columns}
    assert {"hFPR", "PosECR", "NegSRC", "AUROC"} <= titles
    assert not {"Score", "Exact", "ECR"} & titles
    assert "score" not in set(made.differences["metric"])


def test_the_gate_decides_on_scores(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run")
    rules = ["score(full) >= 0.25", "exact(target:0.3) - exact(full) >= -1", "anls(full) >= 0.5"]
    (score, difference, missing), _ = run_gate(run, rules, least_n=1, draws=50)
    assert score.passed
    assert difference.passed
    assert missing.verdict == "undecided"
    assert "no column 'anls'" in missing.words
