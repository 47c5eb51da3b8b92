"""The first sentence of a report is made from its numbers, and says so where they show nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sightline.report.build import build_report
from sightline.report.summary import headlines, summarise
from sightline.rows.source import read_source
from tests.unit.report.conftest import DRAWS
from tests.unit.report.fake_run import EDITED, make_run
from tests.unit.report.test_overview import says_no


def said(*runs: Path) -> list[str]:
    source = read_source(list(runs))
    return headlines(source, summarise(source, DRAWS))


def covered(share: float, selector: str = "random") -> Any:
    """Every answer right; of the selector's positives the first ``share`` lost all evidence, of others none."""

    def edit(row: dict[str, Any]) -> None:
        row |= {"predicted": row["label"], "correct": True, "margin": 1.0 if row["label"] == "yes" else -1.0}
        gone = row["selector"] == selector and int(row["image_id"].removeprefix("img")) < 40 * share
        row["ecr"] = row["anchor_ecr"] = 0.0 if gone else 1.0

    return edit


def test_controls_that_answer_without_evidence_are_named_with_their_budget_and_share(tmp_path: Path) -> None:
    arms = ("full", "target:0.3", "random:0.3", "protected:0.3")
    (sentence,) = said(make_run(tmp_path / "run", images=40, arms=arms, edit_row=covered(0.5)))
    assert sentence == (
        "Random keeps 30%: 50% of correct yes answers are unsupported, with no evidence left. Accuracy does not tell: "
        "that of Random cannot be told from Full's. Target at the same budget: 0% unsupported."
    )


def test_a_lower_accuracy_is_said_where_there_is_one(tmp_path: Path) -> None:
    arms = ("full", "random:0.3", "grid:0.3", "visionzip:0.3")
    (sentence,) = said(make_run(tmp_path / "run", images=60, arms=arms))
    assert sentence.startswith("Random and Grid keep 30%: ")
    assert "are unsupported, with no evidence left. Their accuracy is 0." in sentence
    assert sentence.endswith("Visionzip at the same budget: 0% unsupported.")


def test_where_nothing_is_lost_the_headline_claims_no_loss_and_no_safety(tmp_path: Path) -> None:
    arms = ("full", "target:0.3", "random:0.3")
    (sentence,) = said(make_run(tmp_path / "run", images=40, arms=arms, edit_row=covered(0.0)))
    assert sentence.startswith("No box-free arm is shown to answer right without the evidence: ")
    assert sentence.endswith("at most 9% have none left.")


def test_oracles_are_never_in_the_headline(tmp_path: Path) -> None:
    (sentence,) = said(make_run(tmp_path / "run", arms=("full", "anti_evidence:0.3")))
    assert sentence == "No box-free arm prunes anything here: there is nothing to say about what pruning costs."


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ({"images": 1}, "1 image is fewer than 10: nothing about pruning can be read from its answers."),
        ({"regions": False}, "No correct yes answer has an annotated region"),
    ],
)
def test_what_cannot_be_told_is_said(tmp_path: Path, kept: dict[str, Any], words: str) -> None:
    (sentence,) = said(make_run(tmp_path / "run", arms=("full", "random:0.3"), **kept))
    assert sentence.startswith(words)


def test_a_model_at_chance_is_said_instead(tmp_path: Path) -> None:
    (sentence,) = said(make_run(tmp_path / "run", arms=("full", "target:0.3"), edit_row=says_no))
    assert sentence.startswith("The model answers at chance: nothing about pruning can be read from its answers; ")


def test_the_headline_stands_before_the_verdicts_and_findings_of_interventions_beside_them(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=10, arms=EDITED)
    text = build_report([run], tmp_path / "out", draws=DRAWS, cases=2).read_text(encoding="utf-8")
    assert text.index('<p class="headline">') < text.index('<ul class="verdicts">')
    overview = text[text.index('<section id="overview"') : text.index('<section id="frontier"')]
    for section, sentence in (
        ("deletion", "target:0.3 loses"),
        ("occlusion", "On positives, graying the evidence lowers the target support of full by"),
        ("image-dependence", "Accuracy of full is"),
    ):
        assert f'<li><b><a href="#{section}">' in overview
        assert sentence in overview
