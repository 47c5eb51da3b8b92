"""The top of the page: one interval for one share, and a model that only guesses is called so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sightline.report.build import build_report
from sightline.report.compare import compare_runs
from sightline.report.sections.provenance import provenance_table
from sightline.report.summary import main_table, summarise, verdicts
from sightline.rows.source import read_source
from sightline.statistics.bootstrap import SEED
from tests.unit.report.conftest import DRAWS
from tests.unit.report.fake_open_run import make_open_run
from tests.unit.report.fake_run import make_run


@pytest.mark.parametrize("name", ["weakly_supported", "unsupported"])
def test_a_share_has_one_interval_in_the_main_table_and_in_provenance(run: Path, name: str) -> None:
    source = read_source([run])
    arms = summarise(source, DRAWS).arms.set_index("arm")
    provenance = provenance_table(source, DRAWS, SEED).frame.set_index("arm")
    bounds = [f"{name}_low", f"{name}_high"]
    assert arms[bounds].equals(provenance[bounds])
    assert (arms[bounds[1]] > arms[bounds[0]]).all(), "not even a share of 0 is known exactly"


def test_the_caption_says_which_intervals_allow_for_an_unseen_image(run: Path) -> None:
    summary = summarise(read_source([run]), DRAWS)
    caption = main_table(summary).caption
    unvaried = [str(arm) for arm in summary.arms.loc[summary.arms["unsupported"].isin([0.0, 1.0]), "arm"]]
    assert "full" in unvaried
    assert "Unsupported" in caption.partition("an image that was not seen: ")[2]
    varied = summary.arms.assign(few_differ="")
    assert "not seen" not in main_table(type(summary)(varied, summary.differences, [])).caption


def says_no(row: dict[str, Any]) -> None:
    """A model that says no to everything, whatever it is shown, with margins that know nothing of the label."""
    margin = -1.0 - sum(map(ord, row["image_id"])) % 7
    row |= {"margin": margin, "loss_no": 1.0, "loss_yes": 1.0 - margin, "predicted": "no"}
    row["correct"] = row["label"] == "no"


@pytest.fixture(scope="module")
def guessing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "guessing"
    return make_run(folder, arms=("full", "target:0.3", "grid:0.3"), edit_row=says_no)


AT_CHANCE = "The model answers at chance: nothing about pruning can be read from its answers; "


def test_verdicts_of_a_model_at_chance_compare_no_answers(guessing: Path, run: Path) -> None:
    source = read_source([guessing, run], names=["guessing", "reading"])
    summary = summarise(source, DRAWS)
    assert list(summary.says_nothing) == ["guessing"]
    said = summary.says_nothing["guessing"]
    assert said.startswith(f"guessing: {AT_CHANCE}Balanced accuracy of Full is 0.500 (")
    silent, reading = list[str](), list[str]()
    for verdict in verdicts(source, summary):
        (silent if verdict.panel.startswith("guessing") else reading).append(verdict.words)
    assert len(silent) == 3
    for words in silent:
        assert "chance" not in words, "it is said once, at the head"
        assert not any(claim in words for claim in ("Full:", "unsupported", "identical", "than"))
    assert sum("% of the evidence survives" in words for words in silent) == 2, "coverage asks for no answer"
    assert any("not distinguishable from Full" in words for words in reading)


def test_a_share_of_right_answers_carries_its_n(run: Path) -> None:
    source = read_source([run])
    right = source.frame[(source.frame["label"] == "yes") & source.frame["correct"]].groupby("arm").size()
    words = {verdict.arm: verdict.words for verdict in verdicts(source, summarise(source, DRAWS))}
    assert f" of {right['grid:0.3']} correct yes answers are unsupported" in words["grid:0.3"]


def test_an_accuracy_above_chance_is_not_enough_when_one_label_is_rare(tmp_path: Path) -> None:
    """80 % right because of 80 % negatives: the answers follow the label's share, not the image."""

    def mostly_negative(row: dict[str, Any]) -> None:
        says_no(row)
        if row["image_id"] > "img0007" and row["label"] == "yes":
            row["label"], row["correct"] = "no", True

    run = make_run(tmp_path / "run", arms=("full", "grid:0.3"), edit_row=mostly_negative)
    summary = summarise(read_source([run]), DRAWS)
    assert summary.arms.iloc[0]["accuracy_low"] > 0.5
    assert summary.says_nothing[""].startswith(f"{AT_CHANCE}Balanced accuracy of Full is 0.500 (")


def test_a_page_says_once_at_its_head_that_nothing_can_be_read(guessing: Path, tmp_path: Path) -> None:
    report = build_report([guessing], tmp_path / "report", draws=DRAWS, cases=4).read_text(encoding="utf-8")
    assert report.count("nothing about pruning can be read") == 1
    assert report.index(AT_CHANCE) < report.index('<section id="overview"')
    assert '<p class="headline">' not in report
    assert "<strong>A case.</strong>" in report
    assert "The answer flips" not in report.split("<script")[0]
    comparison = compare_runs(guessing, guessing, tmp_path / "comparison", draws=DRAWS, cases=4)
    text = comparison.read_text(encoding="utf-8")
    assert text.count("nothing about pruning can be read") == 2, "of A and of B"
    assert "changes beyond its interval" not in text


def test_a_comparison_with_a_model_at_chance_claims_only_what_changes(
    guessing: Path, run: Path, tmp_path: Path
) -> None:
    text = compare_runs(guessing, run, tmp_path / "out", draws=DRAWS, cases=0).read_text(encoding="utf-8")
    assert f"A: {AT_CHANCE}" in text
    headline = text.partition('<p class="headline">')[2].partition("</p>")[0]
    assert "accuracy of full" in headline
    assert "is higher" in headline


def test_a_score_next_to_nothing_is_no_ground_for_a_headline(tmp_path: Path) -> None:
    def wrong(row: dict[str, Any]) -> None:
        row |= {"score": 0.0, "correct": False}

    run = make_open_run(tmp_path / "run", images=20, arms=("full", "target:0.3", "grid:0.3"), edit_row=wrong)
    text = build_report([run], tmp_path / "report", draws=DRAWS, cases=0).read_text(encoding="utf-8")
    assert "The model answers next to nothing right: nothing about pruning can be read from its answers; " in text
    assert "Of Full" not in text


def test_answers_that_are_not_yes_or_no_have_no_chance_of_one_half(tmp_path: Path) -> None:
    def spelled(row: dict[str, Any]) -> None:
        row |= {"margin": None, "loss_no": None, "loss_yes": None, "correct": row["label"] == "yes"}
        row["label"] = row["predicted"] = "14.50"

    run = make_run(tmp_path / "run", arms=("full", "grid:0.3"), edit_row=spelled)
    summary = summarise(read_source([run]), DRAWS)
    assert summary.arms["accuracy"].iloc[0] == 0.5
    assert summary.says_nothing == {}
