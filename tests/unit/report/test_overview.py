"""The top of the page: one interval for one share, and a model that only guesses is called so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sightline.report.build import build_report
from sightline.report.compare import compare_runs
from sightline.report.overview import main_table, verdicts
from sightline.report.sections.provenance import provenance_table
from sightline.report.source import read_source
from sightline.report.summary import AT_CHANCE, summarise
from sightline.statistics.bootstrap import SEED
from tests.unit.report.conftest import DRAWS
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


def test_a_model_at_chance_is_called_so_in_every_verdict(guessing: Path, run: Path) -> None:
    source = read_source([guessing, run], names=["guessing", "reading"])
    summary = summarise(source, DRAWS)
    assert list(summary.at_chance) == ["guessing"]
    assert summary.at_chance["guessing"].startswith(f"guessing: {AT_CHANCE}; Accuracy of Full is 0.500 (")
    warned = [verdict for verdict in verdicts(source, summary) if "The model answers at chance" in verdict.words]
    assert {verdict.arm for verdict in warned} == {"full", "target:0.3", "grid:0.3"}
    assert {verdict.panel for verdict in warned} == {"guessing · A. Box-free methods and controls"}


def test_an_accuracy_above_chance_is_not_enough_when_margins_do_not_rank(tmp_path: Path) -> None:
    """80 % right because of 80 % negatives: AUROC tells that the answers follow the label's share, not the image."""

    def mostly_negative(row: dict[str, Any]) -> None:
        says_no(row)
        if row["image_id"] > "img0007" and row["label"] == "yes":
            row["label"], row["correct"] = "no", True

    run = make_run(tmp_path / "run", arms=("full", "grid:0.3"), edit_row=mostly_negative)
    summary = summarise(read_source([run]), DRAWS)
    line = summary.arms.iloc[0]
    assert line["accuracy_low"] > 0.5
    assert f"{AT_CHANCE}; AUROC of Full" in summary.at_chance[""]


def test_the_first_note_of_a_page_says_that_the_model_is_at_chance(guessing: Path, tmp_path: Path) -> None:
    report = build_report([guessing], tmp_path / "report", draws=DRAWS, cases=0)
    comparison = compare_runs(guessing, guessing, tmp_path / "comparison", draws=DRAWS, cases=0)
    for page, prefix, verdict in (
        (report, "", "The model answers"),
        (comparison, "A: ", "In A and B the model answers"),
    ):
        text = page.read_text(encoding="utf-8")
        first = text.index(f"{prefix}{AT_CHANCE}; Accuracy of Full is 0.500 (")
        assert first < text.index(f"{verdict} at chance: nothing about pruning")


def test_answers_that_are_not_yes_or_no_have_no_chance_of_one_half(tmp_path: Path) -> None:
    def spelled(row: dict[str, Any]) -> None:
        row |= {"margin": None, "loss_no": None, "loss_yes": None, "correct": row["label"] == "yes"}
        row["label"] = row["predicted"] = "14.50"

    run = make_run(tmp_path / "run", arms=("full", "grid:0.3"), edit_row=spelled)
    summary = summarise(read_source([run]), DRAWS)
    assert summary.arms["accuracy"].iloc[0] == 0.5
    assert summary.at_chance == {}
