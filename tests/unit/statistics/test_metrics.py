"""Metrics: of answers, of answers in words, of evidence that is seen."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from sightline.answering.answer_scores import AnswerScores
from sightline.commands.run import summary
from sightline.contract.plugins import check_metric
from sightline.core.row import Column
from sightline.errors import SightlineError
from sightline.gate.decisions import run_gate
from sightline.gate.rules import find_metric
from sightline.report.sections.geometry import strata_table
from sightline.report.summary import headlines, main_table, summarise, verdicts
from sightline.rows.run import load_run
from sightline.rows.source import read_source
from sightline.rows.usable import unseen_evidence
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.bootstrap import ImageSums
from sightline.statistics.metrics import (
    METRICS,
    POPULATIONS,
    answer_metrics,
    auroc,
    ece_bin,
    metric_named,
    point,
    why_not,
)
from sightline.statistics.summaries import arm_points, arm_rows, arm_summary
from tests.unit.report.fake_run import make_run

margins = st.lists(st.integers(-3, 3), min_size=2, max_size=30)


def example() -> ArmRows:
    """Two images, a positive and a negative probe each; one positive is right without a covered cell."""
    return ArmRows.of(
        [True, False, True, False],
        [2.0, 1.0, 0.0, -1.0],
        ["b", "b", "a", "a"],
        ecr=[1.0, 0.25, 0.0, 0.75],
        anchor_ecr=[0.5, 0.25, 0.0, 0.75],
        lpp=[0.2, 0.9, 0.0, 0.9],
        keep=[0.3, 0.3, 0.5, 0.5],
    )


def test_answers_by_hand() -> None:
    found = answer_metrics([True, True, False, False], [1.0, -1.0, 0.0, -2.0])
    assert found["accuracy"] == 0.5
    assert found["positive_accuracy"] == 0.5
    assert found["negative_accuracy"] == 0.5
    assert found["hfpr"] == 0.5  # the margin 0 says yes at t = 0
    assert found["yes_rate"] == 0.5
    assert found["auroc"] == 0.75
    yes = [1 / (1 + math.exp(-m)) for m in (1.0, -1.0, 0.0, -2.0)]
    assert found["brier"] == pytest.approx(np.mean([(p - y) ** 2 for p, y in zip(yes, (1, 1, 0, 0), strict=True)]))
    right = [yes[0], yes[1], 1 - yes[2], 1 - yes[3]]
    assert found["nll"] == pytest.approx(-np.mean(np.log(right)))


def test_a_threshold_moves_answers_but_not_ranking_or_likelihood() -> None:
    labels, values = [True, True, False, False], [1.0, -1.0, 0.0, -2.0]
    at_zero, at_half = answer_metrics(labels, values), answer_metrics(labels, values, threshold=0.5)
    assert at_half["hfpr"] == 0.0
    assert at_half["accuracy"] == 0.75
    for name in ("auroc", "ece", "brier", "nll"):
        assert at_half[name] == at_zero[name]


def test_geometry_by_hand() -> None:
    rows = example()
    assert point(METRICS["pos_ecr"], rows) == 0.5
    assert point(METRICS["neg_src"], rows) == 0.5
    assert point(METRICS["pn_average"], rows) == 0.5
    assert point(METRICS["anchor_ecr"], rows) == 0.25
    assert point(METRICS["lpp"], rows) == pytest.approx(0.1)
    assert point(METRICS["weakly_supported"], rows) == 0.5
    assert point(METRICS["unsupported"], rows) == 0.5
    assert point(METRICS["keep"], rows) == pytest.approx(0.4)


def test_pn_average_weighs_both_labels_equally_however_many_probes_each_has() -> None:
    rows = ArmRows.of([True, False, False, False], [0.0] * 4, ecr=[1.0, 0.0, 0.0, 0.0])
    assert point(METRICS["pn_average"], rows) == 0.5


def test_probes_without_regions_do_not_count_as_uncovered() -> None:
    rows = ArmRows.of([True, True], [1.0, 1.0], ecr=[0.8, 0.0], has_regions=[True, False])
    assert point(METRICS["pos_ecr"], rows) == 0.8


@given(margins, st.data())
def test_auroc_is_the_normalised_mann_whitney_statistic(values: list[int], data: st.DataObject) -> None:
    labels = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    scores = np.array(values, dtype=np.float64)
    if labels.all() or not labels.any():
        assert math.isnan(auroc(labels, scores))
        return
    expected = mannwhitneyu(scores[labels], scores[~labels]).statistic / (labels.sum() * (~labels).sum())
    assert auroc(labels, scores) == pytest.approx(expected, abs=1e-12)


def test_ece_bins_are_left_closed_and_the_last_holds_one() -> None:
    assert ece_bin(np.array([0.0, 1 / 15, 7 / 15, 14 / 15, 1.0])).tolist() == [0, 1, 7, 14, 14]
    assert ece_bin(np.array([np.nextafter(7 / 15, 0)])).tolist() == [6]


def test_nll_of_an_impossible_answer_is_clamped_not_infinite() -> None:
    assert answer_metrics([True, False], [-1e6, -1.0])["nll"] < 14.2


def test_every_metric_names_a_population_and_reads_only_what_it_needs() -> None:
    names = [
        "keep", "visible", "ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "worst_region",
        "all_half", "legibility", "score", "exact", "contains", "soft_accuracy", "anls", "anls_stripped", "ocrbench",
        "answer_loss",
    ]  # fmt: skip
    columns: dict[str, Any] = {name: [1.0, 1.0] for name in names}
    rows = ArmRows.of([True, False], [1.0, -1.0], ["a", "b"], **columns)
    for name, metric in METRICS.items():
        assert name == metric.name
        assert metric.over in POPULATIONS
        assert metric.definition
        assert why_not(metric, rows) == ""
        assert math.isfinite(point(metric, rows))


def test_the_bootstrap_statistic_at_one_count_per_image_is_the_point_estimate() -> None:
    rows = example()
    known = [metric for metric in METRICS.values() if not why_not(metric, rows)]
    assert len(known) > 12
    found = ImageSums.of(rows, known).point
    assert found == pytest.approx([point(metric, rows) for metric in known], abs=1e-15)


@pytest.mark.parametrize(
    ("rows", "name", "words"),
    [
        (ArmRows.of([True, True], [1.0, 2.0]), "auroc", "needs both labels and all 2 of its probes have 'yes'"),
        (ArmRows.of([True, True], [1.0, 2.0]), "hfpr", "there are no negatives"),
        (ArmRows.of([True, False], [1.0, np.nan]), "accuracy", "1 of 2 margins are not finite"),
        (ArmRows.of([True, False], [1.0, np.inf]), "ece", "1 of 2 margins are not finite"),
        (ArmRows.of([True, False], [1.0, 2.0]), "pos_ecr", "no column 'ecr'"),
        (ArmRows.of([True], predicted=[True]), "brier", "no margin"),
        (ArmRows.of([True], ecr=[1.0]), "accuracy", "no prediction"),
        (ArmRows.of([True], [1.0], ecr=[1.0], has_regions=[False]), "pos_ecr", "there are no positives with regions"),
        (
            ArmRows.of([True], [1.0], ecr=[np.nan], has_regions=[True]),
            "pos_ecr",
            "1 of 1 values of 'ecr' are not finite",
        ),
        (
            ArmRows.of([True], [1.0], ecr=[np.nan], has_regions=[True]),
            "weakly_supported",
            "values of 'ecr' are not finite",
        ),
        (ArmRows.of([True], [1.0], ecr=[1.0], all_half=[0.7]), "all_half", "'all_half' has values other than 0 and 1"),
        (ArmRows.of([True], [-1.0], ecr=[1.0]), "weakly_supported", "there are no correctly answered positives"),
    ],
)
def test_what_cannot_be_computed_is_nan_with_a_reason(rows: ArmRows, name: str, words: str) -> None:
    assert words in why_not(METRICS[name], rows)
    assert math.isnan(point(METRICS[name], rows))


def test_the_documentation_lists_every_metric_as_defined() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "statistics.md").read_text()
    for metric in METRICS.values():
        line = f"| `{metric.name}` | {metric.label} | {metric.definition} | {metric.over} | {metric.better} |"
        assert line in page, line


def test_answers_without_margins_still_have_an_accuracy() -> None:
    assert point(METRICS["accuracy"], ArmRows.of([True, False], predicted=[True, True])) == 0.5


def test_bad_arrays_are_named() -> None:
    with pytest.raises(SightlineError, match=r"ecr has shape \(1,\)"):
        ArmRows.of([True, False], [1.0, 2.0], ecr=[1.0])
    with pytest.raises(SightlineError, match="labels must be true or false"):
        ArmRows.of(["yes", "no"], [1.0, 2.0])
    with pytest.raises(SightlineError, match="no rows"):
        ArmRows.of([], [])
    with pytest.raises(SightlineError, match="unknown metric 'acuracy'"):
        metric_named("acuracy")


# Metrics over rows whose answers are words: what applies, what does not, and what it is called.


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


# What a crop cut away is told apart from what pruning took, in numbers and in words.


VISIBLE = [1.0, 0.5, 0.0, 0.8, 0.0, 1.0]
LABELS = [True, True, True, True, False, False]
COVERED = [0.5, 0.5, 0.0, 0.0, 0.0, 0.25]


def rows(covered: list[float] = COVERED) -> ArmRows:
    return ArmRows.of(LABELS, np.ones(6), ecr=covered, anchor_ecr=np.asarray(covered) / 2, visible=VISIBLE)


def value(name: str, of: ArmRows) -> float:
    assert why_not(METRICS[name], of) == ""
    return point(METRICS[name], of)


def test_full_is_exactly_one_relative_to_what_is_visible() -> None:
    full = rows(VISIBLE)
    assert value("pos_ecr", full) == value("visible_evidence", full) == pytest.approx(2.3 / 4)
    assert value("relative_pos_ecr", full) == 1.0
    assert value("relative_neg_src", full) == 1.0


def test_evidence_that_is_nowhere_visible_counts_in_no_relative_coverage() -> None:
    pruned = rows()
    assert value("relative_pos_ecr", pruned) == pytest.approx((0.5 + 1.0 + 0.0) / 3)
    assert value("relative_anchor_ecr", pruned) == pytest.approx((0.25 + 0.5 + 0.0) / 3)
    assert value("relative_neg_src", pruned) == 0.25


def test_an_unsupported_answer_is_blamed_on_pruning_only_where_there_was_something_to_prune() -> None:
    assert value("unsupported", rows()) == 2 / 4
    assert value("unsupported_by_pruning", rows()) == 1 / 3
    assert value("unsupported", rows(VISIBLE)) == 1 / 4
    assert value("unsupported_by_pruning", rows(VISIBLE)) == 0.0


def test_rows_without_the_column_have_no_relative_coverage_and_say_so() -> None:
    old = ArmRows.of(LABELS, np.ones(6), ecr=COVERED)
    for name in ("relative_pos_ecr", "unsupported_by_pruning", "visible_evidence"):
        assert why_not(METRICS[name], old) == "the rows have no column 'visible'"
    nowhere = ArmRows.of([True], [1.0], ecr=[0.0], visible=[0.0])
    assert why_not(METRICS["relative_pos_ecr"], nowhere) == "there are no positives with visible evidence"


def positives_seen(visible: list[float | None]) -> pd.DataFrame:
    """Two arms over positives that are so visible, and a negative that is not."""
    probes = [{"probe_id": f"p{i}", "label": "yes", "visible": v} for i, v in enumerate(visible)]
    probes.append({"probe_id": "n", "label": "no", "visible": 0.0})
    return pd.DataFrame([{**probe, "arm": arm} for arm in ("full", "grid:0.3") for probe in probes])


@pytest.mark.parametrize(
    ("visible", "words"),
    [
        ([1.0, 1.0, None], ""),
        ([0.0, 0.5, 1.0, 1.0], "1 of 4 positives (25%) lie wholly outside what the model sees, 1 more in part: "),
        ([0.0, 0.0, 1.0], "2 of 3 positives (67%) lie wholly outside what the model sees: "),
        ([0.9, 1.0, None], "1 of 2 positives (50%) lie in part outside what the model sees: "),
    ],
)
def test_positives_outside_the_crop_are_counted_once_whatever_the_arms(visible: list[float | None], words: str) -> None:
    found = unseen_evidence(positives_seen(visible))
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_rows_that_do_not_know_what_is_visible_warn_of_nothing() -> None:
    assert unseen_evidence(positives_seen([0.0]).drop(columns="visible")) == ""
