"""Metrics: of answers, of answers in words, of evidence that is seen."""

import math
from collections.abc import Iterable, Iterator
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
from sightline.gate.decisions import run_gate
from sightline.gate.rules import find_metric
from sightline.report.columns import metric_columns
from sightline.report.sections.geometry import strata_table
from sightline.report.summary import headlines, main_table, summarise, verdicts
from sightline.rows.reader import unseen_evidence
from sightline.rows.run import load_run
from sightline.rows.source import read_source
from sightline.statistics import metrics
from sightline.statistics.arm_rows import ArmRows, FloatArray
from sightline.statistics.bootstrap import ImageSums
from sightline.statistics.metrics import METRICS, POPULATIONS, DisplayGroup, Metric, point, why_not
from sightline.statistics.summaries import arm_points, arm_rows, arm_summary
from tests.runs.yes_no import make_run


def example() -> ArmRows:
    """Two images, a positive and a negative probe each; one positive is right without a covered cell."""
    columns: dict[str, Any] = {
        "ecr": [1.0, 0.25, 0.0, 0.75], "anchor_ecr": [0.5, 0.25, 0.0, 0.75], "lpp": [0.2, 0.9, 0.0, 0.9],
    }  # fmt: skip
    labels, margins = [True, False, True, False], [2.0, 1.0, 0.0, -1.0]
    return ArmRows.of(labels, margins, ["b", "b", "a", "a"], keep=[0.3, 0.3, 0.5, 0.5], **columns)


def points(rows: ArmRows, names: Iterable[str]) -> dict[str, float]:
    return {name: point(METRICS[name], rows) for name in names}


def test_answers_by_hand_and_a_threshold_moves_them_but_not_ranking_or_likelihood() -> None:
    labels, values = [True, True, False, False], [1.0, -1.0, 0.0, -2.0]
    likely = ("auroc", "ece", "brier", "nll")
    decided = ("accuracy", "positive_accuracy", "negative_accuracy", "hfpr", "yes_rate")
    at_zero, at_half = (points(ArmRows.of(labels, values, threshold=t), (*decided, *likely)) for t in (0.0, 0.5))
    assert {name: at_zero[name] for name in decided} == dict.fromkeys(decided, 0.5)  # the margin 0 says yes at t = 0
    assert at_zero["auroc"] == 0.75
    yes = [1 / (1 + math.exp(-m)) for m in values]
    assert at_zero["brier"] == pytest.approx(np.mean([(p - y) ** 2 for p, y in zip(yes, (1, 1, 0, 0), strict=True)]))
    assert at_zero["nll"] == pytest.approx(-np.mean(np.log([yes[0], yes[1], 1 - yes[2], 1 - yes[3]])))
    assert (at_half["hfpr"], at_half["accuracy"]) == (0.0, 0.75)
    assert {name: at_half[name] for name in likely} == {name: at_zero[name] for name in likely}


VISIBLE, LABELS = [1.0, 0.5, 0.0, 0.8, 0.0, 1.0], [True, True, True, True, False, False]
COVERED = [0.5, 0.5, 0.0, 0.0, 0.0, 0.25]


def cropped(covered: list[float]) -> ArmRows:
    return ArmRows.of(LABELS, np.ones(6), ecr=covered, anchor_ecr=np.asarray(covered) / 2, visible=VISIBLE)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (example(), {"pos_ecr": 0.5, "neg_src": 0.5, "pn_average": 0.5, "anchor_ecr": 0.25, "lpp": 0.1,
                     "weakly_supported": 0.5, "unsupported": 0.5, "keep": 0.4}),
        # Both labels weigh equally, however many probes each has.
        (ArmRows.of([True, False, False, False], [0.0] * 4, ecr=[1.0, 0.0, 0.0, 0.0]), {"pn_average": 0.5}),
        # Probes without regions do not count as uncovered.
        (ArmRows.of([True, True], [1.0, 1.0], ecr=[0.8, 0.0], has_regions=[True, False]), {"pos_ecr": 0.8}),
        # An impossible answer is clamped, not infinite.
        (ArmRows.of([True, False], [-1e6, -1.0]), {"nll": (-math.log(1e-12) + math.log1p(math.exp(-1.0))) / 2}),
        # Answers without margins still have an accuracy.
        (ArmRows.of([True, False], predicted=[True, True]), {"accuracy": 0.5}),
        # What a crop cut away is told apart from what pruning took. Full is exactly one relative to what is visible.
        (cropped(VISIBLE), {"pos_ecr": 2.3 / 4, "visible_evidence": 2.3 / 4, "relative_pos_ecr": 1.0,
                            "relative_neg_src": 1.0, "unsupported": 1 / 4, "unsupported_by_pruning": 0.0}),
        # Evidence that is nowhere visible counts in no relative coverage, and is not blamed on pruning.
        (cropped(COVERED), {"relative_pos_ecr": 1.5 / 3, "relative_anchor_ecr": 0.75 / 3, "relative_neg_src": 0.25,
                            "unsupported": 2 / 4, "unsupported_by_pruning": 1 / 3}),
    ],
)  # fmt: skip
def test_metrics_by_hand(rows: ArmRows, expected: dict[str, float]) -> None:
    assert points(rows, expected) == pytest.approx(expected, abs=1e-15)


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=30), st.data())
def test_auroc_is_the_normalised_mann_whitney_statistic(values: list[int], data: st.DataObject) -> None:
    labels = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    scores = np.array(values, dtype=np.float64)
    if labels.all() or not labels.any():
        assert math.isnan(metrics.auroc(labels, scores))
        return
    expected = mannwhitneyu(scores[labels], scores[~labels]).statistic / (labels.sum() * (~labels).sum())
    assert metrics.auroc(labels, scores) == pytest.approx(expected, abs=1e-12)


def test_ece_bins_are_left_closed_and_the_last_holds_one() -> None:
    edges = np.array([0.0, 1 / 15, 7 / 15, 14 / 15, 1.0, np.nextafter(7 / 15, 0)])
    assert metrics.ece_bin(edges).tolist() == [0, 1, 7, 14, 14, 6]


TABLES: dict[DisplayGroup, str] = {
    "main": "keep score accuracy hfpr exact auroc pos_ecr relative_pos_ecr anchor_ecr neg_src unsupported "
    "unsupported_by_pruning",
    "calibration": "yes_rate positive_accuracy negative_accuracy ece brier nll",
    "geometry": "visible_evidence pos_ecr relative_pos_ecr anchor_ecr relative_anchor_ecr relative_neg_src pn_average "
    "anchor_pn_average lpp geo_f1 center_recall patch_recall worst_region all_half",
    "differences": "score accuracy positive_accuracy hfpr exact auroc pos_ecr anchor_ecr neg_src weakly_supported "
    "unsupported",
}
WORDS = ("score", "exact", "contains", "soft_accuracy", "anls", "anls_stripped", "ocrbench", "answer_loss")


def test_every_metric_names_a_population_reads_only_what_it_needs_and_stands_in_the_tables_it_stood_in() -> None:
    columns: dict[str, Any] = {name: [1.0, 1.0] for metric in METRICS.values() for name in metric.columns}
    rows = ArmRows.of([True, False], [1.0, -1.0], ["a", "b"], **columns)
    for name, metric in METRICS.items():
        assert name == metric.name
        assert metric.over in POPULATIONS
        assert metric.definition
        assert why_not(metric, rows) == ""
        assert math.isfinite(point(metric, rows))
    for arm in (rows, example()):
        known = [metric for metric in METRICS.values() if not why_not(metric, arm)]
        assert ImageSums.of(arm, known).point == pytest.approx([point(metric, arm) for metric in known], abs=1e-15)
    for group, names in TABLES.items():
        assert [known.name for known in metrics.metrics_shown_in(group)] == names.split()
    assert [column.key for column in metric_columns("main") if not column.interval] == ["keep"]
    assert len(METRICS.names()) == len(set(METRICS.names())) == len({known.label for known in METRICS.values()})
    blind = {name for name, metric in METRICS.items() if not metric.reads_answers}
    coverage = {"keep", "pos_ecr", "anchor_ecr", "neg_src", "relative_pos_ecr", "lpp", "legibility", "illegible"}
    assert blind >= coverage
    reading = "accuracy hfpr auroc score exact answer_loss ece unsupported weakly_supported balanced_accuracy yes_rate"
    assert not blind & {*reading.split(), "nll", "ocrbench", "unsupported_by_pruning"}


@pytest.mark.parametrize(
    ("rows", "name", "words"),
    [
        (ArmRows.of([True, True], [1.0, 2.0]), "auroc", "needs both labels and all 2 of its probes have 'yes'"),
        (ArmRows.of([True, True], [1.0, 2.0]), "hfpr", "there are no negatives"),
        (ArmRows.of([True, False], [1.0, np.nan]), "accuracy", "1 of 2 margins are not finite"),
        (ArmRows.of([True, False], [1.0, np.inf]), "ece", "1 of 2 margins are not finite"),
        (ArmRows.of([True, False], [1.0, 2.0]), "pos_ecr", "no column 'ecr'"),
        (ArmRows.of(LABELS, np.ones(6), ecr=COVERED), "unsupported_by_pruning", "the rows have no column 'visible'"),
        (ArmRows.of([True], predicted=[True]), "brier", "no margin"),
        (ArmRows.of([True], ecr=[1.0]), "accuracy", "no prediction"),
        (ArmRows.of([True], [1.0], ecr=[1.0], has_regions=[False]), "pos_ecr", "there are no positives with regions"),
        (ArmRows.of([True], [1.0], ecr=[0.0], visible=[0.0]), "relative_pos_ecr", "no positives with visible evidence"),
        (ArmRows.of([True], [1.0], ecr=[np.nan], has_regions=[True]), "pos_ecr", "1 of 1 values of 'ecr' are not fin"),
        (ArmRows.of([True], [1.0], ecr=[np.nan], has_regions=[True]), "weakly_supported", "values of 'ecr' are not fi"),
        (ArmRows.of([True], [1.0], ecr=[1.0], all_half=[0.7]), "all_half", "'all_half' has values other than 0 and 1"),
        (ArmRows.of([True], [-1.0], ecr=[1.0]), "weakly_supported", "there are no correctly answered positives"),
    ],
)
def test_what_cannot_be_computed_is_nan_with_a_reason(rows: ArmRows, name: str, words: str) -> None:
    assert words in why_not(METRICS[name], rows)
    assert math.isnan(point(METRICS[name], rows))


# Metrics over rows whose answers are words: what applies, what does not, and what it is called.


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


def test_scores_of_words_are_over_all_probes_and_what_is_about_yes_and_no_says_why_not(frame: pd.DataFrame) -> None:
    found = arm_points(frame, WORDS)
    assert found == pytest.approx({name: frame[name].astype(float).mean() for name in WORDS})
    assert set(AnswerScores.__dataclass_fields__) <= set(METRICS)
    for name in WORDS:
        assert METRICS[name].answers == "words"
        check_metric(METRICS[name])
    for part in (frame, frame[frame["label"] == "no"]):
        assert arm_rows(part).labels.all()
        assert not arm_rows(part).yes_or_no
    evidence = {"pos_ecr": 1.7 / 4, "anchor_ecr": 1.6 / 4, "worst_region": 1.3 / 4, "all_half": 1 / 4}
    evidence |= {"unsupported": 1 / 3, "weakly_supported": 1 / 3, "accuracy": 3 / 5}
    assert arm_points(frame, list(evidence)) == pytest.approx(evidence), "of all questions with regions"
    about = [metric for metric in METRICS.values() if metric.answers == "yes or no"]
    assert {"hfpr", "auroc", "ece", "neg_src", "pn_average", "yes_rate", "negative_accuracy"} <= {m.name for m in about}
    line = arm_summary(frame, draws=20).iloc[0]
    for metric in about:
        assert np.isnan(line[metric.name]), metric.name
        assert metric.name in line["reason"]
    assert {metric.answers for metric in METRICS.values() if metric.over.startswith("negatives")} == {"yes or no"}
    assert POPULATIONS["negatives"](arm_rows(frame)).sum() == 0
    assert all(why in line["reason"] for why in ("the answers are not yes or no", "the rows have no margin"))


@pytest.fixture(scope="module")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose rows are answers in words, right where the yes/no answer of the synthetic run was."""

    def spelled(row: dict[str, Any]) -> None:
        right = bool(row["correct"])
        row |= {"score": 0.25 + 0.75 * right, "exact": right, "label": "no", "predicted": "no" if right else "14.50"}
        for name in ("margin", "loss_yes", "loss_no", "greedy_yes", "greedy_no"):
            del row[name]

    columns = (Column("score", "float64", "Of the benchmark."), Column("exact", "bool", "Whether it is right."))
    folder = tmp_path_factory.mktemp("words") / "run"
    return make_run(folder, images=12, arms=("full", "target:0.3"), edit_row=spelled, scorer_columns=columns)


def test_tables_about_words_show_scores_and_the_gate_decides_on_them(open_run: Path) -> None:
    told = summary(load_run(open_run).frame())
    assert list(told.columns[:5]) == ["arm", "Keep", "Score", "Accuracy", "ECR"]
    source = read_source([open_run])
    made = summarise(source, draws=50)
    assert not [note for note in source.notes if "every probe has label" in note]
    assert made.says_nothing == {}  # all labels are "no", and an answer in words cannot be guessed with one half
    titles = [column.title for column in main_table(made).columns]
    assert titles == ["Arm", "Keep", "Score", "Accuracy", "Exact", "ECR", "AnchorECR", "Unsupported"]
    compared = "score accuracy exact pos_ecr anchor_ecr weakly_supported unsupported"
    assert set(made.differences["metric"]) == set(compared.split())
    full, arm = (verdict.words for verdict in verdicts(source, made))
    assert full.startswith("is the reference: score ")
    assert "; score " in arm
    assert "% of 21 correct answers are unsupported" in arm
    (words,) = headlines(source, made)
    assert ("correct answer" in words, "yes answer" in words) == (True, False)
    assert set(strata_table(source).frame["arm"]) == {"full", "target:0.3"}
    names = {"Score": "score", "ANLS": "anls", "textvqa accuracy": "soft_accuracy", "exact-match": "exact"}
    assert {spelled: find_metric(spelled) for spelled in names} == names
    rules = ["score(full) >= 0.25", "exact(target:0.3) - exact(full) > -1", "anls(full) >= 0.5"]
    (score, difference, missing), _ = run_gate(open_run, rules, least_n=1, draws=50)
    assert score.passed
    assert difference.passed
    assert missing.verdict == "undecided"
    assert "no column 'anls'" in missing.words


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
    probes = [{"probe_id": f"p{i}", "label": "yes", "visible": v} for i, v in enumerate(visible)]
    probes.append({"probe_id": "n", "label": "no", "visible": 0.0})
    rows = pd.DataFrame([{**probe, "arm": arm} for arm in ("full", "grid:0.3") for probe in probes])
    found = unseen_evidence(rows)
    assert found.startswith(words)
    assert bool(found) == bool(words)
    assert unseen_evidence(rows.drop(columns="visible")) == ""


# A metric is one registered object: it appears wherever it says, without a list being edited.


@pytest.fixture
def _prompt_length() -> Iterator[Metric]:
    """A metric over a column that no other metric reads."""
    facts: dict[str, Any] = {"better": "lower", "needs": ("sequence_pruned",), "limits": (0.0, 900.0)}
    shown: dict[str, Any] = {"shown_in": ("main", "terminal"), "aliases": ("tokens",)}

    @metrics.metric("prompt_length", "Prompt", "mean tokens of the pruned prompt", **facts, **shown)
    def prompt_length(rows: ArmRows) -> FloatArray:
        return rows.columns["sequence_pruned"]

    yield prompt_length
    del METRICS._entries["prompt_length"]


@pytest.mark.usefixtures("_prompt_length")
def test_a_new_metric_stands_in_the_main_table_the_terminal_the_csv_and_the_gate(small_run: Path) -> None:
    made = summarise(read_source([small_run]), draws=20)
    table = main_table(made)
    titles = [column.title for column in table.columns]
    assert titles[-1] == "Prompt"
    assert "prompt_length,prompt_length_low,prompt_length_high" in table.csv().splitlines()[0]
    lengths = load_run(small_run).frame().groupby("arm")["sequence_pruned"].mean()
    assert summary(load_run(small_run).frame()).set_index("arm")["Prompt"].to_dict() == pytest.approx(lengths.to_dict())
    (outcome,), _ = run_gate(small_run, ["tokens(target:0.3) <= 899"], least_n=1, draws=20)
    assert outcome.passed
    assert outcome.value == pytest.approx(lengths["target:0.3"])
    assert {"hFPR", "PosECR", "NegSRC", "AUROC"} <= set(titles)
    assert not {"Score", "Exact", "ECR"} & set(titles), "yes and no are no words"
    assert "score" not in set(made.differences["metric"])
